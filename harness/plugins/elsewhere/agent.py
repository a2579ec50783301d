"""The agent: the program that drives a runtime for the harness on a target.

The harness sends this file and the runtime's `driver` over the standard input of the
target's command, so nothing is installed there. The agent needs Python 3.8, numpy and
the runtime, and imports nothing else. Messages are frames::

    harness ── {"do": "hello" | "have" | "put" | "place" | a driver's method} ──▶ agent
    agent   ── {"value": NAME} and an array, any number of times ──▶ harness
    agent   ── {"done": RESULT} or {"failed": TEXT} ──▶ harness

A frame is the length of its head, the head in JSON, and the bytes of its arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Union

try:
    import numpy as np
except ImportError:  # the harness then says that it is missing
    np = None  # type: ignore[assignment]

Buffer = Union[bytes, memoryview]

PROTOCOL = 2
READY = "parity-agent-ready"
OLDEST = (3, 8)
HEAD_LIMIT_BYTES = 1 << 26
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
KEPT_S = 7 * 24 * 3600
"""Time after which a file that was not used again leaves the target, in seconds."""

BOOT = """
import os, sys
# A Python that reads its program line by line imports from the current folder too.
sys.path[:] = [place for place in sys.path if place]
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
os.write(1, ("\\n" + READY + " %d.%d\\n" % sys.version_info[:2]).encode())
agent = {"__name__": "parity_agent"}
exec(compile(take(int(take(12))), "parity-agent", "exec"), agent)
agent["serve"]()
"""
"""The first program that the target's Python runs: it reads the agent and starts it."""


def boot() -> bytes:
    """Return the line that a Python reads first.

    Python runs it as it comes, and not at the end of the input, because it was started
    with ``-i``. The words of a remote command must not need quotes, as ``-c`` would.
    """
    return f"exec({f'READY = {READY!r}' + BOOT!r})\n".encode()


def pack(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Iterator[Buffer]:
    """Yield the parts of a frame."""
    listed = [[name, one.dtype.str, list(one.shape)] for name, one in arrays.items()]
    # Mappings and sets of names travel as lists.
    text = json.dumps({"head": head, "arrays": listed}, default=list).encode()
    # An array that has no bytes to send raises here, before a frame has begun.
    views = [
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for array in arrays.values()
        if array.size
    ]
    yield struct.pack(">I", len(text)) + text
    yield from views


def unpack(
    fill: Callable[[memoryview], None],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a frame with a function that fills a buffer; return its head and arrays.

    Raises:
        ValueError: The bytes are no frame.

    """
    size = bytearray(4)
    fill(memoryview(size))
    (length,) = struct.unpack(">I", size)
    if length > HEAD_LIMIT_BYTES:
        msg = f"it begins with {bytes(size)!r}"
        raise ValueError(msg)
    text = bytearray(length)
    fill(memoryview(text))
    told = json.loads(text.decode())  # noqa: TID251  # a target has numpy alone
    arrays = {}
    for name, dtype, shape in told["arrays"]:
        flat = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=np.dtype(dtype))
        if flat.size:
            fill(flat.view(np.uint8).data)
        arrays[name] = flat.reshape(shape)
    return told["head"], arrays


def others_write(seen: os.stat_result) -> bool:
    """Whether other users may write to a file or folder.

    A group of the user alone has the number of the user, on Linux and on Android.
    """
    is_own = hasattr(os, "getuid") and seen.st_gid == os.getgid() == os.getuid()
    by_group = seen.st_mode & stat.S_IWGRP and not is_own
    return bool(by_group or seen.st_mode & stat.S_IWOTH)


def lacks_privacy(folder: Path) -> str:
    """Return why others may change what is in a folder; empty if they cannot.

    Whoever owns the folder, may write to it, or may put another one in its place can.
    """
    own, above = folder.lstat(), folder.parent.stat()
    if not stat.S_ISDIR(own.st_mode):
        return "is no folder"
    if not hasattr(os, "getuid") or own.st_uid != os.getuid():
        return "belongs to another user"
    if others_write(own):
        return "may be written by other users"
    is_theirs = above.st_uid not in (0, os.getuid())
    if is_theirs or (others_write(above) and not above.st_mode & stat.S_ISVTX):
        return "may be replaced by other users"
    return ""


def checked(digest: str) -> str:
    """Return a SHA-256 digest, which is the name of a file.

    Raises:
        ValueError: It is something else, such as a path.

    """
    if not re.match("[0-9a-f]{64}\\Z", digest):
        msg = f"{digest[:80]!r} is no digest"
        raise ValueError(msg)
    return digest


def sha256(path: Path) -> str:
    """Return the digest of a plain file, which is not a link.

    Raises:
        OSError: There is no such file.

    """
    seen = hashlib.sha256()
    with os.fdopen(os.open(str(path), os.O_RDONLY | _NO_LINK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            msg = f"{path} is no plain file"
            raise OSError(msg)
        for block in iter(lambda: file.read(1 << 20), b""):
            seen.update(block)
    return seen.hexdigest()


def check_order(there: int, at: int) -> None:
    """Refuse a piece of a file that does not begin where the last one ended.

    Raises:
        OSError: It begins elsewhere. With a gap it would be a large file of zeros.

    """
    if there != at:
        msg = "a piece of a file arrived out of order"
        raise OSError(msg)


class Files:
    """The files that a target has already, by their digest.

    Attributes:
        note: Why they are not in the usual folder; empty if they are.

    """

    def __init__(self) -> None:
        owner = os.getuid() if hasattr(os, "getuid") else 0
        folder = Path(tempfile.gettempdir(), f"parity-agent-{owner}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        why = lacks_privacy(folder)
        self.note = why and f"{folder} {why}; this session has a folder of its own"
        # Another user may have made the usual folder, to give us files of his.
        self._folder = Path(tempfile.mkdtemp(prefix="parity-agent-")) if why else folder
        # A memory card of a phone keeps no modes, and nothing can be private there.
        self._is_private = not (why and lacks_privacy(self._folder))
        self._placed = [str(self._folder)] if why else []
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove what was not used for long; an agent that was killed left folders."""
        for path in self._folder.iterdir():
            # Another agent may be removing it too.
            with contextlib.suppress(OSError):
                seen = path.lstat()
                if seen.st_mtime < time.time() - KEPT_S:
                    if stat.S_ISDIR(seen.st_mode):
                        shutil.rmtree(str(path), ignore_errors=True)
                    else:
                        path.unlink()

    def have(self, files: dict[str, int]) -> dict[str, Any]:
        """Return the digests of those files that are not here, and the `note`."""
        lacking = [
            digest for digest, size in files.items() if not self._has(digest, size)
        ]
        return {"lacking": lacking, "note": self.note}

    def _has(self, digest: str, size: int) -> bool:
        """Whether a file is here.

        `put` gives a file its name after it has read it. In a folder that only this
        user can write to, nobody else can have made or changed it since. So its name
        and size are enough there: to read a large file takes seconds in each session.
        """
        path = self._folder / checked(digest)
        try:
            seen = path.lstat()
            is_ours = stat.S_ISREG(seen.st_mode) and not others_write(seen)
            if not is_ours or seen.st_size != size:
                return False
            is_known = self._is_private and seen.st_uid == os.getuid()
            if not is_known and sha256(path) != digest:
                return False
            os.utime(str(path))
        except OSError:
            return False
        return True

    def put(self, digest: str, at: int, size: int, piece: np.ndarray) -> None:
        """Write a piece of a file; the last one completes it."""
        part = self._folder / f"{checked(digest)}.{os.getpid()}"
        how = os.O_WRONLY | os.O_CREAT | _NO_LINK | (0 if at else os.O_TRUNC)
        try:
            with os.fdopen(os.open(str(part), how, 0o600), "wb") as file:
                check_order(file.seek(0, os.SEEK_END), at)
                file.write(piece.data)
                if at + piece.size < size:
                    return
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # a full disk must not stay full
            with contextlib.suppress(OSError):  # it may never have been made
                part.unlink()
            raise
        if sha256(part) != digest:
            part.unlink()
            msg = "a file arrived damaged"
            raise ValueError(msg)
        part.replace(self._folder / digest)

    def place(self, files: dict[str, str]) -> str:
        """Give files their names in a temporary folder, and return its path."""
        folder = tempfile.mkdtemp(prefix="named-", dir=str(self._folder))
        self._placed.append(folder)
        for name, digest in files.items():
            if name in {"", ".."} or Path(name).name != name:
                msg = f"{name!r} is no name of a file"
                raise ValueError(msg)
            here, there = self._folder / checked(digest), Path(folder, name)
            try:
                os.link(str(here), str(there))
            except FileExistsError:  # names that are one for this file system
                raise
            except OSError:  # this file system has no links
                shutil.copyfile(str(here), str(there))
        return folder

    def leave(self) -> None:
        """Remove the temporary folders; the files stay for the next session."""
        for folder in self._placed:
            shutil.rmtree(folder, ignore_errors=True)


def identity(path: Path) -> list[int]:
    """Return what tells a file from another one of the same path elsewhere."""
    seen = path.stat()
    return [seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_uid]


def seen_here(files: dict[str, Any]) -> bool:
    """Whether the harness's own files can be read here: then none has to be sent.

    Somebody else may make a file there that looks like one of them. So each belongs to
    this user or to root; root itself may use what it sees.
    """
    user = os.getuid() if hasattr(os, "getuid") else -1
    try:
        return all(
            identity(Path(path)) == one and (user == 0 or one[3] in {0, user})
            for path, one in files.items()
        )
    except OSError:
        return False


class Agent:
    """Answers the harness's requests, one after another."""

    def __init__(self, wire_in: int, wire_out: int) -> None:
        self._in, self._out = wire_in, wire_out
        self._files: Files | None = None
        self._driver: Any = None

    def answer(self) -> None:
        """Answer one request."""
        said, arrays = unpack(self._fill)
        do, given = said["do"], said["with"]
        try:
            if do == "hello":
                done: Any = self._hello(**given)
            elif do == "seen":
                done = seen_here(**given)
            elif do in {"have", "put", "place"}:
                self._files = self._files or Files()
                if do == "put":
                    given["piece"] = arrays["piece"]
                done = getattr(self._files, do)(**given)
            else:
                done = getattr(self._driver, do)(arrays, self._show, **given)
        except Exception as error:  # noqa: BLE001  # the harness gets every error
            self._send({"failed": str(error) or type(error).__name__})
            return
        self._send({"done": done})

    def leave(self) -> None:
        """End at once: a native thread may still compute for nobody."""
        if self._files is not None:
            self._files.leave()
        os._exit(0)

    def _hello(self, source: str) -> dict[str, Any]:
        """Import the runtime by its driver, and say what is here."""
        told = {
            "protocol": PROTOCOL,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "numpy": getattr(np, "__version__", ""),
            "lacks": "",
        }
        driver: dict[str, Any] = {"__name__": "parity_driver"}
        try:
            exec(compile(source, "parity-driver", "exec"), driver)  # noqa: S102
        except ImportError as error:
            return {**told, "lacks": f"{error}"}
        self._driver = driver["open_driver"]()
        return {**told, "runtime": self._driver.version}

    def _show(self, name: str, value: np.ndarray) -> None:
        self._send({"value": name}, {name: value})

    def _send(
        self, head: dict[str, Any], arrays: dict[str, np.ndarray] | None = None
    ) -> None:
        for part in pack(head, arrays or {}):
            view = memoryview(part)
            while view:
                view = view[os.write(self._out, view) :]

    def _fill(self, view: memoryview) -> None:
        while view:
            size = os.readv(self._in, [view])
            if not size:
                msg = "the harness has ended"
                raise BrokenPipeError(msg)
            view = view[size:]


def serve() -> None:
    """Answer until the harness closes the connection."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    # What native code prints must not get between the frames.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    agent = Agent(wire_in, wire_out)
    try:
        while True:
            agent.answer()
    except OSError:  # the connection is gone
        agent.leave()
