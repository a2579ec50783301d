"""Functions that turn numbers into verdicts. This package sees no array."""
