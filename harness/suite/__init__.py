"""Read a suite: from parity.toml and the files beside it to cases."""
