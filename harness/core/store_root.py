"""Where the store of this machine lies, and an entry in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

from harness.core.errors import StoreError

SCHEMA: Final = 1
"""The number of the way in which entries are kept."""


def is_url(name: str) -> bool:
    """Whether a store's name is a URL and no folder: ``s3://bucket/prefix``."""
    return "://" in name


def cache_folder() -> Path:
    """Return the harness's own folder in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("parity-harness", appauthor=False))


def local_root(name: str = "") -> Path:
    """Return the named folder, or else ``$PARITY_STORE``.

    A folder in the user's cache folder stands for no name, and for a URL.

    Raises:
        StoreError: The name begins with the home of a user that is not there.

    """
    name = name or os.environ.get("PARITY_STORE", "")
    if not name or is_url(name):
        return cache_folder()
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        msg = f"there is no home for the store {name!r}; give another folder."
        raise StoreError(msg) from error


def entry_folder(root: Path, kind: str, digest: str) -> Path:
    """Return where a store keeps an entry, whether or not it is there."""
    return root / f"v{SCHEMA}" / kind / digest[:2] / digest
