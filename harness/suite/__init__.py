"""Read a suite: parity.toml and the files beside it become cases."""
