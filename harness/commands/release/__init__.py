"""`parity diff`, `baseline`, `gate` and `history`: one run beside another."""
