"""The subcommands of `parity`, a file each."""
