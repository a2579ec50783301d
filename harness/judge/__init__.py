"""From numbers to verdicts. Nothing here sees an array."""
