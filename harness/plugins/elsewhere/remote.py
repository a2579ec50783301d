"""Drive a runtime on a target through its agent, as a session drives it here."""

from __future__ import annotations

import hashlib
import os
import select
import shlex
import subprocess  # noqa: TID251  # the harness talks with it while it runs
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

from harness.core.case import Target
from harness.core.errors import StageError
from harness.core.kept_log import KeptLog
from harness.core.outcome import Outcome
from harness.core.program import isolated, signal_name
from harness.core.runtime import Runtime
from harness.engine.host import last_words
from harness.engine.pythons import python_of
from harness.plugins.elsewhere import agent
from harness.plugins.elsewhere.agent_calls import STALL_S, AgentCalls, AgentError
from harness.plugins.elsewhere.frames import Had, Hello, Line

_PIECE_BYTES: Final = 1 << 24
_PIPE_BYTES: Final = 1 << 20
_BANNER_BYTES: Final = 1 << 20
"""What a shell may print before a Python answers."""

_BEFORE: Final = "before a Python answered"


class Remote(AgentCalls):
    """A runtime on a target; `log` has the last lines that the target printed.

    `files` are those that a session needs, in one folder.

    Raises:
        StageError: The target cannot be reached, or lacks something.

    """

    def __init__(
        self, declared: Runtime, target: Target, files: Sequence[Path]
    ) -> None:
        self._target = target
        self._command: Sequence[str] = target.command
        if target.version:
            # The current folder may have another version.
            self._command = (str(python_of(declared, target.version)), "-I")
        self.log = KeptLog()
        self._answered = False
        self._popen = self._started()
        try:
            told = self._greeted(declared)
            self.version = told.runtime
            self.about = (
                ("target", target.name),
                ("machine", f"{told.machine}, Python {told.python}"),
            )
            self.files = self._sent(files)
        except AgentError as error:
            self.close()
            msg = f"Target {target.name!r} failed before a run: {error}."
            raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the agent, which takes its temporary files along."""
        popen = self._popen
        with suppress(OSError):
            popen.stdin and popen.stdin.close()
        try:
            popen.wait(1)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        self._listener.join(1)
        for end in (popen.stdout, popen.stderr):
            with suppress(OSError):
                end and end.close()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [*self._command, "-i", "-q", "-u"]
        environment = isolated()
        # It is this Python's own, and may have another version of the runtime.
        environment.pop("PYTHONPATH", None)
        try:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=environment,
            )
        except OSError as error:
            msg = (
                f"Target {self._target.name!r} starts with {command[0]!r}, which "
                f"cannot be run ({error.strerror}); correct `command` under "
                f"[target.{self._target.name}] in parity.toml."
            )
            raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
        for end in (popen.stdin, popen.stdout):
            if end is not None:
                os.set_blocking(end.fileno(), False)
                _widen(end.fileno())
        self._listener = threading.Thread(
            target=self._listen, args=(popen,), daemon=True
        )
        self._listener.start()
        return popen

    def _listen(self, popen: subprocess.Popen[bytes]) -> None:
        """Pass the target's log on to this process's own, and keep some of it."""
        assert popen.stderr is not None  # noqa: S101  # for mypy
        with suppress(OSError, ValueError):
            while data := os.read(popen.stderr.fileno(), 4096):
                self.log.add(data)
                sys.stderr.flush()
                os.write(2, data)

    def _greeted(self, declared: Runtime) -> Hello:
        """Send the agent and the runtime's driver; return what the target has."""
        self._write([agent.boot()])
        version = self._ready()
        if version < agent.OLDEST:
            text = ".".join(map(str, version))
            self._refuse(f"has Python {text}, and the agent needs 3.8 or newer")
        program = source_of(agent.__name__)
        self._write([f"{len(program):12d}".encode() + program])
        said = {"source": source_of(declared.driver).decode()}
        told = self._asked("hello", Hello, said)
        if told.protocol != agent.PROTOCOL:
            self._refuse(
                f"speaks version {told.protocol} of the agent's protocol, and this "
                f" harness speaks {agent.PROTOCOL}; give it the agent of this "
                "version",
                Outcome.CRASHED,
            )
        if not told.numpy:
            self._refuse("has no numpy; install it into the target's Python")
        if told.lacks:
            packages = " or ".join(declared.distributions)
            self._refuse(
                f"has no {packages} that can be imported ({told.lacks}); install it "
                "into the target's Python"
            )
        return told

    def _ready(self) -> tuple[int, ...]:
        """Wait for the target's Python, and return its version."""
        seen, count = b"", 0
        line = agent.READY.encode()
        while line not in seen or not seen.partition(line)[2].endswith(b"\n"):
            one = bytearray(1)
            # Whatever a shell prints at its start is passed over.
            self._fill(memoryview(one), STALL_S, _BEFORE)
            seen, count = (seen + one)[-4096:], count + 1
            if count > _BANNER_BYTES:
                self._refuse(f"printed {count:,} bytes {_BEFORE}")
        self._answered = True
        try:
            return tuple(int(part) for part in seen.split()[-1].split(b"."))
        except ValueError:
            self._refuse(
                "repeats what it is sent; its command must pass bytes on unchanged, "
                "without a terminal",
                Outcome.CRASHED,
            )

    def _sent(self, files: Sequence[Path]) -> dict[str, str]:
        """Bring a session's files to the target; return their paths there."""
        names = {path.name for path in files}
        if len(names) < len(files):
            msg = f"Two files of a session have one name: {sorted(map(str, files))}."
            raise StageError(msg, outcome=Outcome.RUN)
        seen = {str(path.resolve()): agent.identity(path) for path in files}
        if self._asked("seen", bool, {"files": seen}):
            # A target that sees the files need not see a link to their folder.
            return {path.name: str(path.resolve()) for path in files}
        digests = {path.name: sha256(path) for path in files}
        sizes = {digests[path.name]: path.stat().st_size for path in files}
        had = self._asked("have", Had, {"files": sizes}, limit_s=None)
        if had.note:
            self.about += (("files", had.note),)
        for path in files:
            if digests[path.name] in had.lacking:
                self._send_file(path, digests[path.name])
        folder = self._asked("place", Line, {"files": digests}, limit_s=None)
        return {path.name: f"{folder}/{path.name}" for path in files}

    def _send_file(self, path: Path, digest: str) -> None:
        import numpy as np

        size = path.stat().st_size
        with path.open("rb") as file:
            for at in range(0, max(size, 1), _PIECE_BYTES):
                piece = np.frombuffer(file.read(_PIECE_BYTES), np.uint8)
                said = {"digest": digest, "at": at, "size": size}
                # After the last piece the target reads the whole file.
                limit_s = STALL_S if at + _PIECE_BYTES < size else None
                self._asked("put", None, said, {"piece": piece}, limit_s=limit_s)

    def _fill(self, view: memoryview, limit_s: float | None, where: str) -> None:
        """Read as many bytes as a buffer has."""
        assert self._popen.stdout is not None  # noqa: S101  # for mypy
        end = self._popen.stdout.fileno()
        while view:
            if not select.select([end], [], [], limit_s)[0]:
                self._stalled(where)
            try:
                size = os.readv(end, [view])
            except BlockingIOError:
                continue
            except OSError:
                size = 0
            if not size:
                self._ended(where)
            view = view[size:]

    def _write(self, parts: Any) -> None:
        assert self._popen.stdin is not None  # noqa: S101  # for mypy
        end = self._popen.stdin.fileno()
        for part in parts:
            view = memoryview(part)
            while view:
                if not select.select([], [end], [], STALL_S)[1]:
                    self._stalled("while it should have read")
                try:
                    view = view[os.write(end, view) :]
                except BlockingIOError:
                    continue
                except OSError:
                    self._ended("while it should have read")

    def _stalled(self, where: str) -> NoReturn:
        self._refuse(
            f"has sent and taken nothing for {STALL_S:g} s {where}; look whether "
            f"{self._program()} starts a Python",
            Outcome.TIMED_OUT,
        )

    def _ended(self, where: str) -> NoReturn:
        """Report a connection that ended; before the first answer it never began."""
        where = where if self._answered else _BEFORE
        try:
            code = self._popen.wait(STALL_S)
        except subprocess.TimeoutExpired:
            self._refuse(f"closed the connection {where}", Outcome.CRASHED)
        self._listener.join(1)
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"died with {signal_name(-code)}"
        words = f"{how} {where}{last_words(self.log.text)}"
        if self._answered or code < 0:
            self._refuse(words, Outcome.CRASHED)
        self._refuse(f"{words}; look whether {self._program()} starts a Python")

    def _program(self) -> str:
        return f"`{shlex.join(self._command)}`"


def _widen(end: int) -> None:
    """Let a pipe hold more, so that each side works on while the other does."""
    with suppress(ImportError, OSError, AttributeError):
        import fcntl

        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def source_of(module: str) -> bytes:
    """Return the source of a module, which another Python then runs."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).read_bytes()


def sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file; a target has no other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
