"""What networks are made of, so that two runs can tell which part changed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from harness.core.case import Component
from harness.core.digest import digest_tree, digest_value
from harness.core.errors import StoreError
from harness.engine.keys import REPORTS, weights_digest
from harness.recipes import weight_folders

_CONFIGURATION_SUFFIXES = (".json", ".txt", ".yaml", ".yml")


def made_of(components: Iterable[Component]) -> dict[str, str]:
    """Return digests of the parts of networks, as a record keeps them (`made_of`)."""
    parts: dict[str, str] = {}
    for one in components:
        parts[f"{one.name}/checkpoint"] = weights_digest(one)
        parts[f"{one.name}/recipe"] = digest_value([one.recipe, dict(one.options)])
        if not one.source.path.is_file():
            folders = weight_folders(one.recipe, one.source, one.options)
            parts[f"{one.name}/configuration"] = _configuration(
                one.source.path, tuple(folders)
            )
    return parts


@functools.cache
def _configuration(checkpoint: Path, folders: tuple[str, ...]) -> str:
    """Return a digest of a checkpoint's small files, which hold no weights."""
    trees: list[str] = []
    for folder in folders:
        with suppress(StoreError):  # a checkpoint may hold weights alone
            trees.append(
                digest_tree(
                    checkpoint / folder,
                    _CONFIGURATION_SUFFIXES,
                    is_left_out=lambda name: REPORTS.fullmatch(name) is not None,
                )
            )
    return digest_value(trees)
