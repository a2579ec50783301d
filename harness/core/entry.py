"""One entry of the store: a folder whose record says what it must hold.

This module makes, reads and checks an entry. The store decides where entries lie.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.core.digest import canonical_json, digest_file, digest_value
from harness.core.errors import SpecError, StageError, StoreError
from harness.core.outcome import Outcome

_KIND = re.compile(r"[a-z0-9][a-z0-9-]*")
_RECORD = "entry.json"
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, SpecError)
_REMEDY = "Run `parity store verify` to drop damaged entries; the next run makes them."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """Size and xxh3-128 digest of a file at the time when its entry was made."""

    size_bytes: int
    digest: str


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
            digest = digest_file(self.path / name)
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
                size = path.stat().st_size
            except OSError as error:
                msg = f"{self.id}: {path} is missing ({error.strerror}). {_REMEDY}"
                raise StoreError(msg) from error
            if size != record.size_bytes:
                change = "truncated" if size < record.size_bytes else "changed"
                msg = (
                    f"{self.id}: {path} is {change}: it has {size:,} bytes, was made "
                    f"with {record.size_bytes:,}. {_REMEDY}"
                )
                raise StoreError(msg)


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
    folder: Path, *, kind: str, key: Mapping[str, object], meta: Mapping[str, object]
) -> Mapping[str, FileRecord]:
    """Make a folder an entry: record every file, and write all of it to the disk.

    Args:
        folder: Folder with the files of the product.
        kind: Kind of the product.
        key: Everything that decides the contents.
        meta: Notes of the stage that made it.

    Returns:
        Size and digest of each file, by its relative POSIX name.

    Raises:
        SpecError: The meta has no exact JSON form.
        StoreError: The folder has something in it that is no plain file.

    """
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or name == _RECORD:
            msg = (
                f"Build of {kind!r} wrote {name!r}: an entry holds plain files, and "
                f"{_RECORD} is the store's own. Write a file of another name."
            )
            raise StoreError(msg)
        if path.is_file():
            size = path.stat().st_size
            files[name] = FileRecord(size_bytes=size, digest=digest_file(path))
            _sync(path)
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
    (folder / _RECORD).write_text(text + "\n", encoding="utf-8")
    _sync(folder / _RECORD)
    for path in (*folder.rglob("*/"), folder):
        sync_folder(path)
    return files


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder, after a check of the sizes of its files.

    Raises:
        StoreError: There is no entry, its record is damaged, or a file has another
            size.

    """
    path = folder / _RECORD
    try:
        used_s = path.stat().st_mtime
        record = json.loads(path.read_bytes())
        entry = Entry(
            kind=record["kind"],
            key_digest=key_digest_of(record["kind"], record["key"]),
            path=folder,
            key=record["key"],
            meta=record["meta"],
            files={name: FileRecord(**item) for name, item in record["files"].items()},
            made_by=record["made_by"],
            used_s=used_s,
        )
    except _UNREADABLE as error:
        why = f"{type(error).__name__}: {error}"
        msg = f"{id_of(folder)}: {path} cannot be read ({why}). {_REMEDY}"
        raise StoreError(msg) from error
    if entry.id != id_of(folder):
        msg = f"{id_of(folder)}: {path} is {entry.id}'s, not its own. {_REMEDY}"
        raise StoreError(msg)
    entry.check_sizes()
    return entry


def touch(entry: Entry) -> None:
    """Record that the entry was found just now."""
    # The record file's own time is used, so no further file can be damaged. Another
    # person's store may be read-only; the time then stays as it is.
    with suppress(OSError):
        os.utime(entry.path / _RECORD)


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
