"""The folder of a store: who may read it, and what was damaged in it.

A store that the harness makes is private: folders have mode 0700 and files 0600,
whatever the umask is. If its root is there already, everything in it gets the root's
own mode. So whoever shares a store on purpose gives its root such a mode. A new store
in an empty folder, and the store in the user's cache folder, become private, unless
others may write there.

Damaged entries are moved to ``damaged/``, and the newest of them are kept there for
those who want to know what happened.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.core.errors import StoreError
from harness.core.permissions import (
    PRIVATE,
    WRITABLE,
    make_folders,
    mode_of,
    set_mode,
)
from harness.core.received import DamagedError, decode, read_bytes
from harness.core.shown import echo
from harness.core.store_root import SCHEMA, cache_folder
from harness.core.whole_file import write_whole
from harness.engine import shared as shared_store
from harness.engine import worker

MARK: Final = "store.json"
_MARK_BYTES: Final = 1 << 16
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk that has no room left."""

DAMAGED: Final = "damaged"
_KEPT: Final = 8
_KEPT_BYTES: Final = 256 << 20


class _Schema(msgspec.Struct, frozen=True):
    """The part of a mark that every version can read."""

    schema: int


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What `MARK` says of a store.

    Attributes:
        schema: Number of the way in which entries are kept.
        shared: URL of the store that this one is the cache of; empty if of none.
        read_only: Whether nothing may be put there.

    """

    schema: int = SCHEMA
    shared: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The root of a store, whose mode everything in it has."""

    root: Path

    def open(self) -> None:
        """Make the root, or narrow it if nobody has shared it on purpose.

        Raises:
            OSError: It cannot be made.

        """
        if not self.root.is_dir():
            make_folders(self.root)
            return
        is_ours = cache_folder() in {self.root, *self.root.parents}
        if is_ours or not any(self.root.iterdir()):
            mode = mode_of(self.root)
            if is_ours or not mode & WRITABLE:
                set_mode(self.root, PRIVATE)

    def read_mark(self) -> Mark:
        """Return the store's mark; that of a new store where there is none.

        Raises:
            StoreError: It is of another schema. Or it is no mark, and nothing else
                shows that the folder is a store.

        """
        mark = self.root / MARK
        with self.sentences():
            try:
                content = read_bytes(mark, _MARK_BYTES)
                schema = decode(content, _Schema).schema
                if schema == SCHEMA:
                    return decode(content, Mark)
            except FileNotFoundError:
                return Mark()
            except DamagedError as error:
                if not (self.root / f"v{SCHEMA}").is_dir():
                    msg = (
                        f"{mark} is not a store's mark; delete it, or set PARITY_STORE."
                    )
                    raise StoreError(msg) from error
                self.replace(mark, f"{mark} is damaged ({error})")
                return Mark()
        msg = (
            f"The store at {self.root} has schema {schema!r}; harness "
            f"{__version__} knows {SCHEMA}, so it was left untouched. "
            "Take a newer harness, or point PARITY_STORE at another folder."
        )
        raise StoreError(msg)

    def write_mark(self, mark: Mark) -> None:
        """Write the store's mark.

        Raises:
            OSError: It cannot be written.

        """
        path = self.root / MARK
        if path.is_dir():
            self.set_aside(path)
        write_whole(path, msgspec.json.encode(mark) + b"\n")
        set_mode(path, self.file_mode)

    @property
    def folder_mode(self) -> int:
        """Mode of the folders: that of the root."""
        return mode_of(self.root) | PRIVATE

    @property
    def file_mode(self) -> int:
        """Mode of the files: that of the folders, without the right to run them."""
        return self.folder_mode & 0o666

    def make(self, folder: Path) -> Path:
        """Make a folder, and what is missing above it; a file in its place is moved.

        Raises:
            OSError: It cannot be made.

        """
        for place in (*reversed(folder.parents), folder):
            if place.is_relative_to(self.root) and _is_no_folder(place):
                self.set_aside(place)
        make_folders(folder, self.folder_mode)
        return folder

    def give_modes(self, folder: Path) -> None:
        """Give a folder and everything in it the modes of the store."""
        for path in (folder, *folder.rglob("*")):
            set_mode(path, self.folder_mode if path.is_dir() else self.file_mode)

    def set_aside(self, path: Path) -> Path | None:
        """Move what is damaged to ``damaged/``; return its place, or None.

        It is removed if it is too large to be kept, and so are the oldest that were
        moved there before.

        Raises:
            OSError: It cannot be moved.

        """
        name = "+".join(path.relative_to(self.root).parts)
        kept = self.root / DAMAGED / f"{name}.{secrets.token_hex(4)}"
        if _is_no_folder(kept.parent):
            kept.parent.unlink()
        make_folders(kept.parent, self.folder_mode)
        try:
            path.rename(kept)
        except FileNotFoundError:  # another process was first
            return None
        # The names do not tell when, and the time of a file is that of its contents.
        with suppress(OSError):
            os.utime(kept, follow_symlinks=False)
        self._trim(kept.parent)
        return kept if os.path.lexists(kept) else None

    def replace(self, path: Path, why: str) -> None:
        """Move what is damaged aside, because it is made anew, and say so.

        Raises:
            OSError: It cannot be moved.

        """
        aside = self.set_aside(path)
        where = f"moved to {aside}" if aside else "removed"
        say_damaged(str(self.root), f"{why}. It was {where}, and is made anew.")

    def _trim(self, folder: Path) -> None:
        found = sorted(folder.iterdir(), key=lambda path: -path.lstat().st_mtime_ns)
        total = 0
        for count, path in enumerate(found):
            total += size_of(path)
            if count >= _KEPT or total > _KEPT_BYTES:
                delete(path)

    @contextmanager
    def sentences(self, workplace: Path | None = None) -> Iterator[None]:
        """Replace an `OSError` by a sentence about the store.

        `workplace` is the folder of an entry that is being written.

        Raises:
            StoreError: The ``with`` cannot read or write.

        """
        try:
            yield
        except OSError as error:
            raise self.error(error, workplace) from error

    def error(self, error: OSError, workplace: Path | None) -> StoreError:
        """Return the sentence that `sentences` raises."""
        if error.errno in FULL:
            written = 0 if workplace is None else size_of(workplace)
            return StoreError(
                f"The store at {self.root} cannot take the entry: {error.strerror}; it "
                f"needs more than the {written / 1e6:,.1f} MB written so far, and "
                f"{free_bytes(self.root) / 1e6:,.1f} MB are free. Run `parity store "
                "prune`, or set PARITY_STORE to a larger disk."
            )
        return StoreError(
            f"The store at {self.root} cannot be used: {error.strerror} "
            f"({error.filename}). Set PARITY_STORE to a folder that you can write."
        )


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free on the disk of a folder, made or not."""
    standing = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(standing).free


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    total = 0
    for one in (path, *path.rglob("*")):
        with suppress(OSError):  # another process removes it
            total += 0 if one.is_dir() else one.lstat().st_size
    return total


def delete(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it, as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _is_no_folder(path: Path) -> bool:
    return os.path.lexists(path) and not path.is_dir()


def say_damaged(place: str, text: str) -> None:
    """Say that something of a store is damaged: a worker's log and the terminal do."""
    echo(text, err=True)
    shared_store.on_wait(worker.DAMAGED, place, text)
