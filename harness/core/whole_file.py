"""Write a file in one move, so that a reader finds all of it or the one before."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path


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
