"""Large files of equal contents: the disk has them once, by hard links.

Variants of one network often have the same weights.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.digest import digest_file
from harness.core.entry import Entry, FileRecord

FILES: Final = "files"
"""Name of the folder in a store that has each large file, by its digest."""

LINKED_BYTES: Final = 1 << 16
"""Size from which a file is kept once; below it a link saves less than it costs."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file as the disk has it; links to one file are equal."""

    device: int
    number: int
    size_bytes: int


def on_disk(entry: Entry) -> list[OnDisk]:
    """Return the files of an entry that are there."""
    found = []
    for name in entry.files:
        with suppress(OSError):  # another process removed it since it was listed
            about = (entry.path / name).stat()
            found.append(OnDisk(about.st_dev, about.st_ino, about.st_size))
    return found


def link(path: Path, record: FileRecord, folder: Path) -> None:
    """Replace a file by a link to one of the same contents in a folder.

    If there is none, this file becomes the first.

    Raises:
        OSError: There are no links on this file system, or another process removed the
            file meanwhile. The file is as it was.

    """
    first = folder / record.digest
    if first.exists():
        if digest_file(first) == record.digest:
            linked = path.with_name(f"{path.name}.linked")
            os.link(first, linked)
            linked.replace(path)
            return
        first.unlink()  # it was changed after it was made
    os.link(path, first)


def drop_unlinked(folder: Path) -> None:
    """Remove the large files that no entry has any more."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if path.stat().st_nlink == 1:
                path.unlink()
