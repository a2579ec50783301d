"""Functions that measure arrays. This package knows no tolerance."""
