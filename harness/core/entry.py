"""One entry of the store: a folder that says what it holds, and can be held to it.

Makes, reads and checks an entry; where entries lie and who may make them is
`store`'s business.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.core.digest import canonical_json, digest_file, digest_value
from harness.core.errors import SpecError, StoreError

_KIND = re.compile(r"[a-z0-9][a-z0-9-]*")
_RECORD = "entry.json"
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, SpecError)
_REMEDY = "Run `parity store verify` to drop damaged entries; the next run makes them."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """What a file was when its entry was made."""

    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing a stage made.

    Attributes:
        kind: Which stage's product: ``onnx``, ``mnn``, ``trace``.
        key_digest: Digest of `kind` and `key`; the folder's name.
        path: The folder.
        key: All that decides the contents, tool versions included.
        meta: What the maker had to say about it.
        files: Relative POSIX name to what was written.
        made_by: Tool to version, of the process that made it.
        created: UTC time, ISO 8601.
        used_s: When it had last been found, in seconds since 1970.

    """

    kind: str
    key_digest: str
    path: Path
    key: Mapping[str, object] = field(repr=False)
    meta: Mapping[str, object] = field(repr=False)
    files: Mapping[str, FileRecord] = field(repr=False)
    made_by: Mapping[str, str] = field(repr=False)
    created: str
    used_s: float

    @property
    def id(self) -> str:
        """Kind and digest: ``onnx.df93…``; also the name of its lock."""
        return f"{self.kind}.{self.key_digest}"

    @property
    def size_bytes(self) -> int:
        """The files' sizes together."""
        return sum(record.size_bytes for record in self.files.values())

    def file(self, name: str) -> Path:
        """Return the path of one of its files.

        Raises:
            StoreError: It has no file of that name.

        """
        if name not in self.files:
            msg = f"{self.id}: has no file {name!r}; it has {sorted(self.files)}."
            raise StoreError(msg)
        return self.path / name

    def check(self) -> None:
        """Hold every file against the size and the digest it was made with.

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
        """Hold every file against its size only: no byte is read.

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


def key_digest_of(kind: str, key: Mapping[str, object]) -> str:
    """Return the digest that names an entry's folder.

    Raises:
        SpecError: The kind is not a name, or the key has no exact JSON form.

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
    """Return the `Entry.id` of the entry that lies, or would lie, in a folder."""
    return f"{folder.parent.parent.name}.{folder.name}"


def seal(
    folder: Path,
    *,
    kind: str,
    key: Mapping[str, object],
    meta: Mapping[str, object],
) -> None:
    """Make a folder an entry: record every file, and have the disk hold all of it.

    Raises:
        SpecError: The meta has no exact JSON form.
        StoreError: There is something in the folder that is no plain file.

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
            files[name] = {"size_bytes": size, "digest": digest_file(path)}
            _sync(path)
    record = {
        "kind": kind,
        "key": key,
        "meta": meta,
        "files": files,
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


def read_entry(folder: Path) -> Entry:
    """Return the entry in a folder, with the sizes of its files checked.

    Raises:
        StoreError: There is none, its record is damaged, or a file has another size.

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
            created=record["created"],
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
    """Note that the entry was found just now."""
    # The record's own time is the mark: one file less that can be damaged. A store
    # that others own may be read-only; then it does not age.
    with suppress(OSError):
        os.utime(entry.path / _RECORD)


def _sync(path: Path) -> None:
    # Opened for writing, as Windows wants it, unless it is somebody's who forbids that.
    mode = "rb+" if os.access(path, os.W_OK) else "rb"
    with path.open(mode, buffering=0) as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have the disk hold a folder's list of names."""
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
