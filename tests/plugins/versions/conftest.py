"""A package index without a network, as the unit tests have it."""

from tests.unit.conftest import index, wheels

__all__ = ["index", "wheels"]
