"""The deployed file in its runtime: run, watched, and its operators run alone."""
