"""The subcommands of `parity`; each has its own module or folder."""
