"""Full-size cases run when they are asked for by name: they take 20 GB and an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

FULL_SIZE = "full_size"


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave full-size cases out unless ``-m`` names them."""
    if FULL_SIZE in config.option.markexpr:
        return
    large = [item for item in items if item.get_closest_marker(FULL_SIZE)]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]
