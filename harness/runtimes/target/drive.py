"""Drive a runtime: in this process, or on a target through its agent.

A session asks a `Driving` for what the runtime itself must do. So the same session
serves both, and a target's values are checked, compared and named as those from here.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import select
import shlex
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.program import signal_name
from harness.core.runtime import Runtime
from harness.engine.environments import python_of
from harness.engine.host import last_words
from harness.runtimes.session import Feeds, not_installed
from harness.runtimes.target import agent

if TYPE_CHECKING:
    import numpy as np

STALL_S: Final = 60.0
"""Time that a target may take to start, or to take a piece of a file, in seconds. While
it computes, the time limit of the case counts."""

_PIECE_BYTES: Final = 1 << 24
_PIPE_BYTES: Final = 1 << 20
_BEFORE: Final = "before a Python answered"

Show = Callable[[str, "np.ndarray"], None]


class Driving(ABC):
    """A runtime that a session drives.

    Attributes:
        version: The runtime's version.
        files: The path of each of the session's files, where the runtime finds it.
        about: Where the runtime runs, for the record; empty for here.

    """

    version: str
    files: Mapping[str, str]
    about: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        """Call a method of the runtime's driver, and return its result."""

    @abstractmethod
    def close(self) -> None:
        """End the connection, if there is one."""


Record = Callable[[Driving, Sequence[Path]], Driving]
"""Takes a runtime and a session's files; returns a runtime whose calls are recorded."""

_RECORD: Final[ContextVar[Record | None]] = ContextVar("record", default=None)


@contextmanager
def recorded(record: Record) -> Iterator[None]:
    """Have the calls of sessions recorded that are opened in the ``with``."""
    token = _RECORD.set(record)
    try:
        yield
    finally:
        _RECORD.reset(token)


def drive(declared: Runtime, device: Device, files: Sequence[Path]) -> Driving:
    """Return a runtime, here or on the device's target, that has a session's files.

    Raises:
        StageError: The target cannot be reached, or the runtime is not installed.

    """
    if device.target is not None:
        return Remote(declared, device.target, files)
    here, record = _Here(declared, files), _RECORD.get()
    return here if record is None else record(here, files)


class _Here(Driving):
    """A runtime in this process."""

    def __init__(self, declared: Runtime, files: Sequence[Path]) -> None:
        try:
            module = importlib.import_module(declared.driver)
        except ModuleNotFoundError as error:
            raise not_installed(declared, error) from error
        self._driver = module.open_driver()
        self.version = self._driver.version
        self.files = {path.name: str(path) for path in files}

    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        return getattr(self._driver, do)(feeds or {}, show, **said)

    def close(self) -> None:
        self._driver = None  # its sessions are freed with it


class AgentError(Exception):
    """An error that a runtime raised on a target; its text is the runtime's."""


class Remote(Driving):
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
        self.log = ""
        self._answered = False
        self._popen = self._started()
        try:
            told = self._greeted(declared)
            self.version = told["runtime"]
            self.about = (
                ("target", target.name),
                ("machine", f"{told['machine']}, Python {told['python']}"),
            )
            self.files = self._sent(files)
        except AgentError as error:
            self.close()
            msg = f"Target {target.name!r} failed before a run: {error}."
            raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
        except BaseException:
            self.close()
            raise

    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        """Call a method of the target's driver, and return its result.

        Raises:
            StageError: The connection broke.
            AgentError: The method raised an error.

        """
        return self._asked(do, said, feeds, show, is_limited=False)

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
        # A start-up file is read by a Python that reads its program line by line. The
        # search path is this Python's own, and may have another version of the runtime.
        ours = {"PYTHONSTARTUP", "PYTHONPATH"}
        environment = {k: v for k, v in os.environ.items() if k not in ours}
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
        """Pass the target's log on to this process's own, and keep its end."""
        assert popen.stderr is not None  # noqa: S101  # for mypy
        with suppress(OSError, ValueError):
            while data := os.read(popen.stderr.fileno(), 4096):
                self.log = (self.log + data.decode(errors="replace"))[-4096:]
                sys.stderr.flush()
                os.write(2, data)

    def _greeted(self, declared: Runtime) -> dict[str, Any]:
        """Send the agent and the runtime's driver; return what the target has."""
        self._write([agent.boot()])
        version = self._ready()
        if version < agent.OLDEST:
            text = ".".join(map(str, version))
            self._refuse(f"has Python {text}, and the agent needs 3.8 or newer")
        program = source_of(agent.__name__)
        self._write([f"{len(program):12d}".encode() + program])
        said = {"source": source_of(declared.driver).decode()}
        told: dict[str, Any] = self._asked("hello", said)
        if told.get("protocol") != agent.PROTOCOL:
            self._refuse(
                f"speaks version {told.get('protocol')} of the agent's protocol, and "
                f"this harness speaks {agent.PROTOCOL}; give it the agent of this "
                "version",
                Outcome.CRASHED,
            )
        if not told["numpy"]:
            self._refuse("has no numpy; install it into the target's Python")
        if told["lacks"]:
            packages = " or ".join(declared.distributions)
            self._refuse(
                f"has no {packages} that can be imported ({told['lacks']}); install it "
                "into the target's Python"
            )
        return told

    def _ready(self) -> tuple[int, ...]:
        """Wait for the target's Python, and return its version."""
        seen = b""
        line = agent.READY.encode()
        while line not in seen or not seen.partition(line)[2].endswith(b"\n"):
            one = bytearray(1)
            # Whatever a shell prints at its start is passed over.
            self._fill(memoryview(one), STALL_S, _BEFORE)
            seen = (seen + one)[-4096:]
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
        seen = {str(path.resolve()): agent.identity(path) for path in files}
        if self._asked("seen", {"files": seen}):
            # A target that sees the files need not see a link to their folder.
            return {path.name: str(path.resolve()) for path in files}
        digests = {path.name: sha256(path) for path in files}
        sizes = {digests[path.name]: path.stat().st_size for path in files}
        lacking = self._asked("have", {"files": sizes})
        for path in files:
            if digests[path.name] in lacking:
                self._send_file(path, digests[path.name])
        folder = self._asked("place", {"files": digests}, is_limited=False)
        return {path.name: f"{folder}/{path.name}" for path in files}

    def _send_file(self, path: Path, digest: str) -> None:
        import numpy as np

        size = path.stat().st_size
        with path.open("rb") as file:
            for at in range(0, max(size, 1), _PIECE_BYTES):
                piece = np.frombuffer(file.read(_PIECE_BYTES), np.uint8)
                said = {"digest": digest, "at": at, "size": size}
                # After the last piece the target reads the whole file.
                more = at + _PIECE_BYTES < size
                self._asked("put", said, {"piece": piece}, is_limited=more)

    def _asked(
        self,
        do: str,
        said: Mapping[str, object],
        arrays: Feeds | None = None,
        show: Show | None = None,
        *,
        is_limited: bool = True,
    ) -> Any:
        """Send a request, hand over the values that come, and return the result."""
        self._write(agent.pack({"do": do, "with": said}, arrays or {}))
        limit_s = STALL_S if is_limited else None
        fill = partial(self._fill, limit_s=limit_s, where=f"during {do!r}")
        while True:
            try:
                head, values = agent.unpack(fill)
            except (ValueError, KeyError, TypeError) as error:
                self._refuse(
                    f"sent something that is no frame of the agent ({error}); its "
                    "command must pass bytes on unchanged, without a terminal",
                    Outcome.CRASHED,
                )
            if "value" in head:
                name = head["value"]
                if show is not None:
                    show(name, values[name])
            elif "failed" in head:
                raise AgentError(head["failed"])
            else:
                return head.get("done")

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
        words = f"{how} {where}{last_words(self.log)}"
        if self._answered or code < 0:
            self._refuse(words, Outcome.CRASHED)
        self._refuse(f"{words}; look whether {self._program()} starts a Python")

    def _program(self) -> str:
        return f"`{shlex.join(self._command)}`"

    def _refuse(self, words: str, outcome: Outcome = Outcome.UNAVAILABLE) -> NoReturn:
        msg = f"Target {self._target.name!r} {words}."
        raise StageError(msg, outcome=outcome)


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
