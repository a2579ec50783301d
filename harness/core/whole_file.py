"""Write a file in one move, so that a reader finds all of it or the one before."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.core.errors import ParityError


@contextmanager
def writing(path: Path, rest: str) -> Iterator[None]:
    """Replace an `OSError` by a sentence: the path cannot be written, why, and `rest`.

    Raises:
        ParityError: What the ``with`` writes to that file or folder cannot be written.

    """
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}); {rest}."
        raise ParityError(msg) from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside `path`, then move it to `path`; nothing else is left.

    Args:
        path: The file to write or to replace; its folder must be there.
        content: Text, which is written as UTF-8 with its own line ends, or bytes.

    Raises:
        OSError: The file cannot be written. An old file is as it was.

    """
    # Two processes may write the same file.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
