"""The commands `parity baseline` and `parity gate`."""
