"""`parity card` and `parity verify`: what was measured, for somebody else to check."""
