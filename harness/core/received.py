"""Read what somebody else may have sent: typed, bounded, and never as code.

Cards, runs, traces, stores and models are made to be sent. Each reader of such a file
uses these functions, and looks at nothing before they return. They raise `DamagedError`
with one clause. The caller knows what the file is, and makes a sentence of it.
"""

from __future__ import annotations

import lzma
import re
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

TEXT_BYTES = 512 << 20
"""Largest size of a JSON file: a report of all values of a large run has 100 MB."""

_XZ_MEMORY = 128 << 20
"""Memory of a reader of ``.xz``, in bytes; what `lzma` writes by itself needs 9 MB."""

_LONGEST_NAME = 255
"""Most bytes of a file's name, on the usual file systems."""

_LONGEST_PATH = 1024
"""Most bytes of a path below a folder. A system has at most 4096 for all of a path."""

_BROKEN = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, SyntaxError),
    *(MemoryError, NotImplementedError, struct.error, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""Errors of Python's and NumPy's readers for a file that is damaged."""


class DamagedError(ValueError):
    """Received data is not what it must be; the message is one clause."""


@contextmanager
def in_a_clause() -> Iterator[None]:
    """Replace an error of a reader of Python, NumPy or msgspec by a `DamagedError`."""
    try:
        yield
    except DamagedError:
        raise
    except RecursionError as error:
        msg = "it is nested too deeply"
        raise DamagedError(msg) from error
    except _BROKEN as error:
        text = str(error).partition("\n")[0].rstrip(".")
        raise DamagedError(text or type(error).__name__) from error


def check_plain(path: Path, most_bytes: int | None = None) -> None:
    """Refuse what is no plain file, or has more than `most_bytes`.

    A pipe or a device of that name would keep its reader waiting.

    Raises:
        OSError: There is nothing at `path`.
        DamagedError: It is no plain file, or it is larger.

    """
    seen = path.stat()
    if not stat.S_ISREG(seen.st_mode):
        msg = "it is no plain file"
        raise DamagedError(msg)
    if most_bytes is not None and seen.st_size > most_bytes:
        msg = f"it has more than {most_bytes:,} bytes"
        raise DamagedError(msg)


def read_bytes(path: Path, most_bytes: int = TEXT_BYTES) -> bytes:
    """Return the contents of a plain file that has at most `most_bytes`.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is no plain file, or it is larger.

    """
    check_plain(path)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        msg = f"it has more than {most_bytes:,} bytes"
        raise DamagedError(msg)
    return content


def unpacked(content: bytes, most_bytes: int) -> bytes:
    """Return what an ``.xz`` file holds, which may be at most `most_bytes`.

    Raises:
        DamagedError: It is no such file, is cut short, or holds more.

    """
    with in_a_clause():
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        made = reader.decompress(content, max_length=most_bytes + 1)
    if len(made) > most_bytes:
        msg = f"it unpacks to more than {most_bytes:,} bytes"
        raise DamagedError(msg)
    if not reader.eof or reader.unused_data:
        msg = "it is cut short" if not reader.eof else "something follows its end"
        raise DamagedError(msg)
    return made


def decode(content: bytes | str, kind: type[T], *, words: bool = False) -> T:
    """Return JSON as a value of a type that msgspec can check.

    Numbers are finite, and the nesting is bounded. A field that the type does not
    declare is left out, so that nothing can be passed on without a check. With `words`
    a number may be written as text: ``"nan"``, ``"inf"`` and ``"-inf"`` have no other
    form in JSON.

    Raises:
        DamagedError: The text is no JSON, or has another type. The clause says where.

    """
    with in_a_clause():
        return msgspec.json.decode(content, type=kind, strict=not words)  # noqa: TID251  # here it is bounded


def read_json(
    path: Path, kind: type[T], most_bytes: int = TEXT_BYTES, *, words: bool = False
) -> T:
    """Return a JSON file as a value of a type that msgspec can check; see `decode`.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is too large, no JSON, or has another type.

    """
    return decode(read_bytes(path, most_bytes), kind, words=words)


def leads_inside(name: str) -> bool:
    r"""Whether a path from data leads to something below the folder that it is for.

    A file there may still be a link that leads elsewhere.

    >>> leads_inside("a/b.bin"), leads_inside("../b"), leads_inside("/b")
    (True, False, False)
    >>> leads_inside(r"C:\b"), leads_inside("b" * 300), leads_inside("")
    (False, False, False)
    """
    parts = re.split(r"[/\\]", name)
    sizes = [len(part.encode(errors="replace")) for part in parts]
    away = ".." in parts or not parts[0] or re.match(r"[A-Za-z]:", name)
    fits = max(sizes) <= _LONGEST_NAME and sum(sizes) + len(sizes) <= _LONGEST_PATH
    return not away and fits and "\0" not in name


def convert(value: object, kind: type[T], *, words: bool = False) -> T:
    """Return JSON values as a value of a type that msgspec can check; see `decode`.

    Raises:
        DamagedError: The values have another type. The clause says where.

    """
    with in_a_clause():
        return msgspec.convert(value, kind, strict=not words)
