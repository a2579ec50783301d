"""Run a deployed file in its runtime, watch it, and run its operators alone."""
