"""Full-size cases and benchmarks run when ``-m`` names them.

The first need 24 GiB of memory, the second want a quiet machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ONLY_BY_NAME = ("full_size", "bench")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave these out unless ``-m`` names them."""
    unnamed = [name for name in ONLY_BY_NAME if name not in config.option.markexpr]
    left = [item for item in items if any(map(item.get_closest_marker, unnamed))]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
