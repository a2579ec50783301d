"""Digest values, files and folders, so that equal contents have equal names."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path

import xxhash

from harness.core.errors import SpecError, StoreError


def digest_file(path: Path) -> str:
    """Return the xxh3-128 digest of a file's bytes.

    The file is read, not memory-mapped. A map is twice as fast on a cached file, but a
    file that shrinks while it is mapped kills the process.
    """
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def digest_tree(
    path: Path, suffixes: Collection[str], *, without: Path | None = None
) -> str:
    """Return one digest for the files under a folder that end in `suffixes`.

    The digest covers each file's relative name and contents. It does not depend on the
    folder's place or on the files' times: a moved or copied checkpoint keeps its
    digest. Files under the folder `without` do not count.

    Raises:
        StoreError: No file matches, so nothing distinguishes this folder from another.

    """
    files = sorted(
        (file.relative_to(path).as_posix(), file)
        for file in path.rglob("*")
        if file.suffix in suffixes
        and file.is_file()
        and not (without and file.is_relative_to(without))
    )
    if not files:
        msg = f"{path}: no file ends in {sorted(suffixes)}; is this the right folder?"
        raise StoreError(msg)
    return digest_value({name: digest_file(file) for name, file in files})


def digest_value(value: object) -> str:
    """Return the xxh3-128 digest of a value's canonical JSON.

    >>> digest_value({"opset": 18, "axes": "dynamic"})
    'df93d20aad95c12b28bd4503da4c6e3e'
    >>> digest_value({"axes": "dynamic", "opset": 18}) == _
    True

    """
    return xxhash.xxh3_128_hexdigest(canonical_json(value).encode())


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: keys sorted, no spaces.

    >>> canonical_json({"b": (1, 2.5), "a": None})
    '{"a":null,"b":[1,2.5]}'

    Raises:
        SpecError: A value in it has no exact JSON form. The message says where.

    """
    return json.dumps(_plain(value, ""), sort_keys=True, separators=(",", ":"))


def _plain(value: object, where: str) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(item, f"{where}[{at}]") for at, item in enumerate(value)]
        # Only text is allowed as a key: json.dumps writes the keys 1 and "1" as the
        # same text.
        case Mapping() if all(isinstance(name, str) for name in value):
            return {
                name: _plain(item, f"{where}.{name}" if where else name)
                for name, item in value.items()
            }
        case _:
            msg = (
                f"{where or 'the value'} cannot be written as JSON: "
                f"{type(value).__name__} {value!r}; give it as text, finite numbers, "
                "lists and text-keyed mappings."
            )
            raise SpecError(msg)
