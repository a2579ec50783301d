"""What the files that `parity init` writes have in common: comments, and paths."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NEAR: Final = 2
"""Folders upwards that a path may go before it is given in full."""


def noted(setting: str, comment: str) -> str:
    """Return a line of TOML with its comment in the column of the others."""
    return f"{setting:<27} # {comment}"


def path_from(folder: Path, path: Path) -> str:
    """Return a path as it is from the folder, or in full if it is far."""
    here, there = folder.resolve(), path.resolve()
    if here.parts[:2] != there.parts[:2]:  # two drives, or nothing else in common
        return there.as_posix()
    relative = Path(os.path.relpath(there, here))
    return (there if relative.parts.count("..") > NEAR else relative).as_posix()
