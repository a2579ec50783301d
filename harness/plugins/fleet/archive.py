"""The archive of one entry, as a store that machines share keeps it.

Nobody knows who wrote there. So an archive is read into a plan first: which files there
are, and how large. Files are written only if the plan is that of the entry that was
asked for, and of its kind. What is written is compared with the record's digests.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn, Self

import xxhash

from harness.core.entry import RECORD, RECORD_BYTES, FileRecord, parse_record
from harness.core.kinds import is_shared, strangers
from harness.core.permissions import make_folders
from harness.core.received import DamagedError, in_a_clause

_COPIED_BYTES: Final = 1 << 20
_PLAIN: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE})
_EXTENDED_BYTES: Final = 1 << 16
"""Largest size of a header that gives the next member a long name or a large size."""

_MEMBERS: Final = 1 << 17


class _Plain(tarfile.TarInfo):
    """A member that is a plain file or a folder; no link, device or sparse file."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header, before anything that it declares is read.

        Raises:
            DamagedError: It is of another type, or too large.

        """
        found = super().frombuf(buf, encoding, errors)
        # Python's reader takes as much memory as an extended header declares.
        is_extended = found.type == tarfile.XHDTYPE and found.size <= _EXTENDED_BYTES
        if found.size < 0 or not (is_extended or found.type in _PLAIN):
            _refuse(f"it has a member of the type {found.type!r}")
        return found


def pack(folder: Path, archive: Path) -> None:
    """Write an entry's folder as an archive."""
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(
                path, path.relative_to(folder).as_posix(), recursive=False, filter=_bare
            )


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made a file: a shared store tells nothing of its writers."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(archive: Path, into: Path, expected_id: str) -> None:
    """Write the files of an archive to an empty folder, if it is the entry asked for.

    Args:
        archive: The file.
        into: The folder.
        expected_id: `Entry.id` of the entry that was asked for.

    Raises:
        OSError: The archive cannot be read, or a file cannot be written.
        DamagedError: It is no such archive. It has something other than the plain files
            that the record names, or that the entry's kind may have. A file has another
            size or another digest.

    """
    with archive.open("rb") as file:
        try:
            with (
                in_a_clause(),
                tarfile.open(fileobj=file, mode="r:", tarinfo=_Plain) as tar,
            ):
                _unpack(tar, into, expected_id)
        except tarfile.TarError as error:
            raise DamagedError(str(error)) from error
        except DamagedError as error:
            # A full disk is no fault of the archive.
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise


def _unpack(tar: tarfile.TarFile, into: Path, expected_id: str) -> None:
    members = _members(tar)
    head = members.pop(RECORD, None)
    if head is None or head.size > RECORD_BYTES:
        _refuse(f"it has no {RECORD} of at most {RECORD_BYTES:,} bytes")
    content = b"".join(_read(tar, head))
    record = parse_record(content, expected_id)
    if not is_shared(record.kind):
        _refuse(f"an entry of the kind {record.kind!r} never comes from elsewhere")
    if unlike := sorted(members.keys() ^ record.files.keys()):
        _refuse(f"its files and its record differ in {unlike[0]!r}")
    for name, member in members.items():
        if member.size != record.files[name].size_bytes:
            _refuse(f"{name!r} has another size than its record says")
    # A model says which other files are its weights, so it comes first.
    models = [name for name in members if name.endswith(".onnx")]
    for name in models:
        _write(tar, members[name], into / name, record.files[name])
    if strange := strangers(record.kind, members, into):
        _refuse(f"an entry of the kind {record.kind!r} has no file {strange[0]!r}")
    for name in members.keys() - set(models):
        _write(tar, members[name], into / name, record.files[name])
    (into / RECORD).write_bytes(content)


def _members(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """Return the files of an archive by name."""
    members: dict[str, tarfile.TarInfo] = {}
    for count, member in enumerate(tar):
        if member.name in members or member.issparse() or count >= _MEMBERS:
            _refuse(f"its member {member.name!r} is there twice, or is no plain file")
        if not member.isdir():
            members[member.name] = member
    return members


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """Yield the bytes of a file, block by block."""
    stream = tar.extractfile(member)
    if stream is None:
        _refuse(f"{member.name!r} is no plain file")
    with stream:
        while block := stream.read(_COPIED_BYTES):
            yield block


def _write(
    tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, record: FileRecord
) -> None:
    """Write one file that is not there yet, and compare it with its record."""
    make_folders(path.parent)
    digest, size = xxhash.xxh3_128(), 0
    with path.open("xb") as file:
        for block in _read(tar, member):
            digest.update(block)
            size += len(block)
            file.write(block)
    if (size, digest.hexdigest()) != (record.size_bytes, record.digest):
        _refuse(f"{member.name!r} has another digest than its record says")


def _refuse(why: str) -> NoReturn:
    raise DamagedError(why)
