"""One entry of the store: a folder whose record says what it must hold.

This module makes, reads and checks an entry. The store decides where entries lie.
"""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from harness import __version__
from harness.core.digest import canonical_json, digest_file, digest_value
from harness.core.errors import SpecError, StageError, StoreError
from harness.core.kinds import Count, check_notes
from harness.core.outcome import Outcome
from harness.core.permissions import set_mode
from harness.core.received import DamagedError, decode, in_a_clause, read_bytes

_KIND = re.compile(r"[a-z0-9][a-z0-9-]*")
RECORD = "entry.json"
RECORD_BYTES = 64 << 20
"""Largest size of an entry's record: that of a large network has some megabytes."""

_FILES = 1 << 16
"""Largest number of files of an entry."""

_NAME_BYTES = 255
"""Largest size of a part of a file's name, which file systems have in common."""

_REMEDY = "Run `parity store verify` to drop damaged entries; the next run makes them."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """Size and xxh3-128 digest of a file at the time when its entry was made."""

    size_bytes: Count
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What `RECORD` says of an entry; `Entry` describes the fields."""

    kind: str
    key: dict[str, object]
    meta: dict[str, object]
    files: dict[str, FileRecord]
    made_by: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One product of a stage, as a folder in the store.

    Attributes:
        kind: Kind of the product: ``onnx``, ``mnn``, ``trace``.
        key_digest: Digest of `kind` and `key`. It names the folder.
        path: Path of the folder.
        key: Everything that decides the contents, tool versions included.
        meta: Notes of the stage that made it.
        files: Size and digest of each file, by its relative POSIX name.
        made_by: Version of each tool in the process that made it.
        used_s: Time when it was last found, in seconds since 1970.

    """

    kind: str
    key_digest: str
    path: Path
    key: Mapping[str, object] = field(repr=False)
    meta: Mapping[str, object] = field(repr=False)
    files: Mapping[str, FileRecord] = field(repr=False)
    made_by: Mapping[str, str] = field(repr=False)
    used_s: float

    @property
    def id(self) -> str:
        """Kind and digest, ``onnx.df93…``; its lock has the same name."""
        return f"{self.kind}.{self.key_digest}"

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(record.size_bytes for record in self.files.values())

    @property
    def summary(self) -> dict[str, Any]:
        """What a record keeps of the entry: digest, size, tool versions and notes."""
        return {
            "digest": self.key_digest,
            "size_bytes": self.size_bytes,
            "made_by": dict(self.made_by),
            "meta": dict(self.meta),
        }

    def file(self, name: str) -> Path:
        """Return the path of one of the files.

        Raises:
            StoreError: The entry has no file of that name.

        """
        if name not in self.files:
            msg = f"{self.id}: has no file {name!r}; it has {sorted(self.files)}."
            raise StoreError(msg)
        return self.path / name

    def check(self) -> None:
        """Compare every file with its recorded size and digest.

        Raises:
            StoreError: A file is missing, truncated or changed.

        """
        self.check_sizes()
        for name, record in self.files.items():
            try:
                digest = digest_file(self.path / name)
            except OSError as error:
                raise self._unreadable(name, error) from error
            if digest != record.digest:
                msg = (
                    f"{self.id}: {self.path / name} was changed after it was made: "
                    f"its digest is {digest}, was {record.digest}. {_REMEDY}"
                )
                raise StoreError(msg)

    def check_sizes(self) -> None:
        """Compare every file with its recorded size, without reading it.

        Raises:
            StoreError: A file is missing or has another size.

        """
        for name, record in self.files.items():
            path = self.path / name
            try:
                size = self._plain_size(name)
            except OSError as error:
                raise self._unreadable(name, error) from error
            if size != record.size_bytes:
                change = "truncated" if size < record.size_bytes else "changed"
                msg = (
                    f"{self.id}: {path} is {change}: it has {size:,} bytes, was made "
                    f"with {record.size_bytes:,}. {_REMEDY}"
                )
                raise StoreError(msg)

    def _plain_size(self, name: str) -> int:
        """Return the size of a plain file; no part of its path may be a link."""
        path = self.path
        *folders, last = PurePosixPath(name).parts
        for part in folders:
            path /= part
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise self._no_plain_file(path, "folder")
        about = (path / last).lstat()
        if not stat.S_ISREG(about.st_mode):
            raise self._no_plain_file(path / last, "file")
        return about.st_size

    def _no_plain_file(self, path: Path, what: str) -> StoreError:
        return StoreError(f"{self.id}: {path} is no plain {what}. {_REMEDY}")

    def _unreadable(self, name: str, error: OSError) -> StoreError:
        is_missing = isinstance(error, FileNotFoundError)
        how = "is missing" if is_missing else "cannot be read"
        path = self.path / name
        return StoreError(f"{self.id}: {path} {how} ({error.strerror}). {_REMEDY}")


def check_artifact(artifact: Entry) -> None:
    """Compare every file of an entry with its digest before native code reads it.

    Raises:
        StageError: A file is missing, truncated or changed.

    """
    try:
        artifact.check()
    except StoreError as error:
        raise StageError(str(error), outcome=Outcome.LOAD) from error


def key_digest_of(kind: str, key: Mapping[str, object]) -> str:
    """Return the digest that names an entry's folder.

    Raises:
        SpecError: The kind is not a valid name, or the key has no exact JSON form.

    """
    if not _KIND.fullmatch(kind):
        msg = f"kind must be lower case letters, digits and '-', got {kind!r}."
        raise SpecError(msg)
    try:
        return digest_value([kind, key])
    except SpecError as error:
        msg = f"Key of {kind!r}: {str(error).removeprefix('[1].')}"
        raise SpecError(msg) from None


def id_of(folder: Path) -> str:
    """Return the `Entry.id` of an entry in a folder, even before it is made."""
    return f"{folder.parent.parent.name}.{folder.name}"


def seal(
    folder: Path,
    *,
    kind: str,
    key: Mapping[str, object],
    meta: Mapping[str, object],
    mode: int = 0o600,
) -> Mapping[str, FileRecord]:
    """Make a folder an entry: record every file, and write all of it to the disk.

    Args:
        folder: Folder with the files of the product.
        kind: Kind of the product.
        key: Everything that decides the contents.
        meta: Notes of the stage that made it.
        mode: Mode of the files, whatever the umask is. A file that has another name
            elsewhere keeps its own, because it is the user's.

    Returns:
        Size and digest of each file, by its relative POSIX name.

    Raises:
        SpecError: The meta has no exact JSON form.
        StoreError: The folder has something in it that is no plain file, or its record
            is too large to be read again.

    """
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not is_plain_name(name):
            msg = (
                f"Build of {kind!r} wrote {name!r}: an entry holds plain files with "
                f"plain names, and {RECORD} is the store's own. Write a file of "
                "another name."
            )
            raise StoreError(msg)
        if path.is_file():
            about = path.stat()
            if about.st_nlink == 1:
                set_mode(path, mode)
            files[name] = FileRecord(size_bytes=about.st_size, digest=digest_file(path))
            _sync(path)
        else:
            set_mode(path, _of_folder(mode))
    record = {
        "kind": kind,
        "key": key,
        "meta": meta,
        "files": {name: asdict(one) for name, one in files.items()},
        "made_by": {
            "harness": __version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        text = canonical_json(record)
    except SpecError as error:
        msg = f"Build of {kind!r} returned: {error}"
        raise SpecError(msg) from None
    if len(text) >= RECORD_BYTES:
        msg = (
            f"Build of {kind!r} returned {len(text):,} bytes of notes, and "
            f"{RECORD_BYTES:,} are read at most; write them to a file instead."
        )
        raise StoreError(msg)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")
    set_mode(folder / RECORD, mode)
    _sync(folder / RECORD)
    for path in (*folder.rglob("*/"), folder):
        sync_folder(path)
    return files


def _of_folder(mode: int) -> int:
    """Return the mode of a folder whose files have a mode: who reads may enter."""
    return mode | (mode & 0o444) >> 2


def parse_record(content: bytes, expected_id: str) -> Record:
    """Return the record of an entry, after every check that needs no other file.

    Args:
        content: The bytes of `RECORD`.
        expected_id: The `Entry.id` that belongs to the entry's folder.

    Raises:
        DamagedError: It is not that entry's record, its notes are not those of its
            kind, or a file has a name that leads elsewhere.

    """
    record = decode(content, Record)
    with in_a_clause():
        try:
            found = f"{record.kind}.{key_digest_of(record.kind, record.key)}"
        except SpecError as error:
            raise DamagedError(str(error)) from None
    if found != expected_id:
        msg = f"it is {found}'s, not its own"
        raise DamagedError(msg)
    if len(record.files) > _FILES:
        msg = f"it lists {len(record.files):,} files, and {_FILES:,} are read at most"
        raise DamagedError(msg)
    for name in record.files:
        if not is_plain_name(name):
            msg = f"its file {name[:_NAME_BYTES]!r} has no plain relative name"
            raise DamagedError(msg)
    check_notes(record.kind, record.meta)
    return record


def is_plain_name(name: str) -> bool:
    r"""Whether a file's name leads to a place below its folder, on every system.

    >>> [is_plain_name(name) for name in ("a/b.bin", "../a", "/a", "a//b", "a\\b", "")]
    [True, False, False, False, False, False]
    """
    parts = name.split("/")
    try:
        are_short = all(len(part.encode()) <= _NAME_BYTES for part in parts)
    except UnicodeEncodeError:  # no name in UTF-8, which JSON cannot hold
        return False
    return (
        are_short
        and not any(part in {"", ".", ".."} for part in parts)
        and not any(letter == "\\" or letter < " " for letter in name)
        and not (os.name == "nt" and ":" in name)
        and name != RECORD
    )


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder, after a check of the sizes of its files.

    Raises:
        StoreError: There is no entry, its record is damaged, or a file has another
            size, or is a link.

    """
    path = folder / RECORD
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            _damaged(f"{folder} is no folder")
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            _damaged("it is a link")
        record = parse_record(read_bytes(path, RECORD_BYTES), id_of(folder))
    except (OSError, DamagedError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"{id_of(folder)}: {path} cannot be read ({why}). {_REMEDY}"
        raise StoreError(msg) from error
    entry = Entry(
        kind=record.kind,
        key_digest=folder.name,
        path=folder,
        key=record.key,
        meta=record.meta,
        files=record.files,
        made_by=record.made_by,
        used_s=about.st_mtime,
    )
    entry.check_sizes()
    return entry


def _damaged(why: str) -> None:
    raise DamagedError(why)


def touch(entry: Entry) -> None:
    """Record that the entry was found just now."""
    # The record file's own time is used, so no further file can be damaged. Another
    # person's store may be read-only; the time then stays as it is.
    with suppress(OSError):
        os.utime(entry.path / RECORD)


def _sync(path: Path) -> None:
    # Windows needs a file that is open for writing. A file that may not be written is
    # opened for reading.
    mode = "rb+" if os.access(path, os.W_OK) else "rb"
    with path.open(mode, buffering=0) as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Write a folder's list of names to the disk."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
