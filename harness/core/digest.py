"""Digest values, files and folders, so that equal contents have equal names."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Mapping
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
    path: Path,
    suffixes: Collection[str],
    *,
    is_left_out: Callable[[str], bool] = lambda _: False,
) -> str:
    """Return one digest for the files under a folder that end in `suffixes`.

    The digest covers each file's relative name and contents. It does not depend on the
    folder's place or on the files' times: a moved or copied checkpoint keeps its
    digest. Links to folders are followed. Hidden folders are left out, and folders for
    whose name `is_left_out` returns true.

    Raises:
        StoreError: No file matches, so nothing distinguishes this folder from another.

    """
    digests, seen = {}, set()
    for at, folders, names in os.walk(path, followlinks=True):
        here = Path(at)
        if (same := (here.stat().st_dev, here.stat().st_ino)) in seen:
            folders.clear()  # a link that leads back up would have no end
            continue
        seen.add(same)
        folders[:] = [f for f in folders if f[0] != "." and not is_left_out(f)]
        for file in (here / name for name in names):
            if file.suffix in suffixes and file.is_file():
                digests[file.relative_to(path).as_posix()] = digest_file(file)
    if not digests:
        msg = f"{path}: no file ends in {sorted(suffixes)}; is this the right folder?"
        raise StoreError(msg)
    return digest_value(digests)


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
