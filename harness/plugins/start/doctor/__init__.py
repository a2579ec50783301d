"""`parity doctor`: show what is installed and what works here; repair nothing."""
