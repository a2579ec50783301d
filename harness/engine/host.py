"""Run a function in a separate process, so that a crash affects only that process.

    this process ── Host ──▶ host process ── fork ──▶ job process
                             imports once,            runs one function, ends
                             computes nothing

A host imports a runtime once (seconds) and forks a process for every job
(milliseconds). It stays single-threaded and never uses the runtime, so a fork is safe.
On systems other than Linux a fork is not safe. There a host runs one job itself and is
then replaced.

The connection is the host's life line. When this process ends for any reason, the host
reads the end of the file, kills its job and exits. `worker` is the other end.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251  # over a pipe, to and from a child of ours
import signal
import subprocess  # noqa: TID251  # it outlives one call; `isolated` says what it may import
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import Any, Final

import psutil

from harness.core.errors import SpecError, StageError
from harness.core.kept_log import KeptLog, unblocked
from harness.core.outcome import Outcome
from harness.core.program import WORDS, isolated, signal_name
from harness.core.waiting import SLICE_S
from harness.engine.worker import FORKS, JobResult, report_progress

__all__ = ["Host", "JobResult", "report_progress"]

Heard = Callable[[str, str, str], None]
"""A function that receives the progress of a job's `report_progress`."""

START_LIMIT_S = 300.0
_GRACE_S = 5.0
SILENT: Final = {
    # onnxruntime 1.29 and later open a database, start a thread and post to Microsoft.
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment in which no library reports to a server."""

_DEFAULT_ENVIRONMENT = {
    # numpy's OpenBLAS would start threads at import, and the host must have none.
    "OPENBLAS_NUM_THREADS": "1",
    # Threads that spin while they wait take cores from parallel jobs. Measured: a UNet
    # on two busy cores took six times as long.
    "OMP_WAIT_POLICY": "PASSIVE",
    # glibc would give each large array back to the system and fetch the next one anew,
    # page by page. Measured on digits: a third of the time in the kernel.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    # The other way to look for a GPU initialises CUDA, which no fork survives.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    **SILENT,
}
_STORE = "PARITY_STORE"
# The search path is the first message: without it the host may not find the harness.
_BOOT = """\
import sys
from multiprocessing import connection
channel = connection.Connection(int(sys.argv[1]))
sys.path[:] = channel.recv()
from harness.engine import worker
worker.serve(channel)
"""


class Host(AbstractContextManager["Host"]):
    """Run jobs in processes that have a runtime imported.

    The host process starts at the first job. Several threads may use it, one job at a
    time. A job has the search path, the working directory and the store of its caller,
    and otherwise the environment in which the host was made.

    Args:
        name: Name in the process list, for example ``mnn``.
        preload: Modules to import once; their import must not compute anything.
        fork: Whether to fork a process for every job, or to start a new one.

    Attributes:
        name: The name.
        kind: Name, modules and environment. A host can replace any other of its kind.

    """

    def __init__(
        self, name: str, preload: Sequence[str] = (), *, fork: bool = FORKS
    ) -> None:
        self.name = name
        self.kind = (name, tuple(preload), _environment())
        self._fork = fork
        self._process: _Process | None = None
        self._is_ready = False
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether its process has started and not ended."""
        return self._process is not None and self._process.popen.poll() is None

    def close(self) -> None:
        """End the host process and its job; a later `run` starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.end()
            process.close_log()

    def __exit__(self, *_: object) -> None:
        """Close it, however the `with` ends."""
        self.close()

    def run(
        self,
        function: Callable[..., object] | str,
        /,
        *args: object,
        timeout_s: float,
        label: str,
        failure: Outcome = Outcome.RUN,
        on_progress: Heard | None = None,
        **kwargs: object,
    ) -> JobResult:
        """Call a function in a separate process and return its result.

        The process ends abruptly after its answer. No ``atexit`` function runs, and a
        file that the function leaves open may be incomplete.

        Args:
            function: A function at the top level of a module that can be imported, or
                its name: ``module:function``.
            *args: Its arguments, which must be small and picklable.
            timeout_s: Time limit of the job; the import has its own `START_LIMIT_S`.
            label: The action and the case; it begins every message.
            failure: Outcome of an exception that is not a `ParityError`.
            on_progress: Receives the progress of the job's `report_progress`.
            **kwargs: Its keyword arguments, like `args`.

        Raises:
            ParityError: The function raised it. The job's output is added to the `log`
                of a `StageError`.
            StageError: The function raised another error, took too long, or its process
                died.
            SpecError: The function or an argument cannot be sent.

        """
        request = _request(function, args, kwargs)
        with self._lock:
            try:
                process = self._started(label, failure)
                process.send(request)
                ending = process.converse(timeout_s, on_progress)
                log = process.read_log()
            except BaseException:  # Ctrl-C too: no job may continue without its parent
                self.close()
                raise
            if ending.host_ended:
                self.close()
        result = _result(ending, log, label=label, timeout_s=timeout_s, failure=failure)
        return replace(result, import_log=process.import_log)

    def begin(self) -> None:
        """Start the process ahead of the first job, and do not wait for its imports."""
        with self._lock:
            if self._process is None:
                self._process = _Process(*self.kind, fork=self._fork)
                self._is_ready = False

    def _started(self, label: str, failure: Outcome) -> _Process:
        if self._is_ready and self._process and self._process.popen.poll() is not None:
            self.close()  # the process died between two jobs
        if self._process is None:
            self._process = _Process(*self.kind, fork=self._fork)
            self._is_ready = False
        if not self._is_ready:
            self._process.require_ready(label, failure)
            self._is_ready = True
        return self._process


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ending:
    """The end of a job: an answer, an exit code, or None if it exceeded its time."""

    answer: tuple[Any, ...] | None = None
    exit_code: int | None = None
    peak_bytes: int = 0
    host_ended: bool = False


class _Process:
    """A host process, the connection to it, and the pipe for all its output."""

    def __init__(
        self,
        name: str,
        preload: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        fork: bool,
    ) -> None:
        self.channel, theirs = Pipe()
        self._log = KeptLog()
        flags = ("-u", "-c", _BOOT)
        self.popen = subprocess.Popen(
            [sys.executable, *flags, str(theirs.fileno()), f"parity-host:{name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=environment,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # a terminal's Ctrl-C reaches this process alone
        )
        theirs.close()
        self._printed = unblocked(self.popen.stdout)
        self._waited_for: list[Any] = [self.channel, self._printed.fileno()]
        self.import_log = ""
        # A finalizer runs once: when called, when this object is freed, or at exit.
        self.close_log = weakref.finalize(self, self._printed.close)
        self.end = weakref.finalize(self, _end, self.popen, self.channel, os.getpid())
        self.send(pickle.dumps(_search_path()))
        self.send(pickle.dumps((preload, fork)))

    def send(self, message: bytes) -> None:
        """Send to the host; if it is gone, `receive` will report that."""
        with suppress(OSError):
            self.channel.send_bytes(message)

    def receive(self, deadline_s: float) -> tuple[Any, ...]:
        """Return the next message, or ``late`` or ``gone`` if there is none.

        What is printed meanwhile is read, so that nobody waits to print.
        """
        while True:
            rest_s = max(0.0, deadline_s - time.monotonic())
            ready = connection.wait(self._waited_for, min(SLICE_S, rest_s))
            if ready != [self.channel] and not self._log.read(self._printed):
                self._waited_for = [self.channel]
            if self.channel in ready:
                break
            if not rest_s:  # however much is printed
                return ("late",)
        try:
            text = self.channel.recv_bytes()
        except (EOFError, OSError):
            return ("gone",)
        try:
            message: tuple[Any, ...] = pickle.loads(text)  # noqa: S301  # from our child
        except Exception as error:  # noqa: BLE001  # the child's memory may be damaged
            return ("failed", f"its message cannot be read: {error!r}")
        return message

    def require_ready(self, label: str, failure: Outcome) -> None:
        """Wait until the host has imported its modules.

        Raises:
            StageError: The import failed.

        """
        match self.receive(time.monotonic() + START_LIMIT_S):
            case ("ready",):
                self.import_log = self.read_log()
                return
            case ("unready", missing, text):
                outcome = Outcome.UNAVAILABLE if missing else failure
            case ("late",):
                self.end()
                outcome = Outcome.TIMED_OUT
                text = f"still importing after {START_LIMIT_S:g} s"
            case _:
                self.end()
                outcome = Outcome.CRASHED
                text = f"while importing, {_death(self.popen.returncode, 0)}"
        log = self.read_log()
        msg = f"{label}: {text}{last_words(log)}."
        raise StageError(msg, outcome=outcome, log=log)

    def converse(self, timeout_s: float, on_progress: Heard | None) -> _Ending:
        """Read the job's messages until it has ended or its time is up."""
        deadline_s = time.monotonic() + timeout_s
        answer: tuple[Any, ...] | None = None
        while True:
            match self.receive(deadline_s):
                case ("progress", stage, subject, detail):
                    if on_progress is not None:
                        on_progress(stage, subject, detail)
                case ("ended", code, peak):
                    return _Ending(answer=answer, exit_code=code, peak_bytes=peak)
                case ("late",):
                    self.end()
                    return _Ending(host_ended=True)
                case ("gone",):
                    self.end()
                    code = self.popen.returncode
                    return _Ending(answer=answer, exit_code=code, host_ended=True)
                case message:
                    answer = message

    def read_log(self) -> str:
        """Return the output since the last call: its beginning and its end."""
        self._log.read(self._printed)
        text, self._log = self._log.text, KeptLog()
        return text


def _end(
    popen: subprocess.Popen[bytes], channel: connection.Connection, owner: int
) -> None:
    channel.close()
    if os.getpid() != owner:  # a fork of this process must not end the host
        return
    try:
        popen.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    for pid in psutil.pids():  # child processes of a job whose host could not end them
        with suppress(OSError):
            if os.getsid(pid) == popen.pid:
                os.kill(pid, signal.SIGKILL)


def _request(
    function: Callable[..., object] | str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> bytes:
    module = getattr(function, "__module__", None)
    if module == "__main__":
        msg = f"{function!r} is defined in a script; a job needs a module to import."
        raise SpecError(msg)
    try:
        call = pickle.dumps((function, args, kwargs))
    except Exception as error:
        msg = (
            f"{function!r} cannot be sent to a job with its arguments: {error}. Define "
            "it at the top level of a module and pass paths, numbers and text."
        )
        raise SpecError(msg) from error
    folder = ""  # it was deleted, and the job stays where its host is
    with suppress(FileNotFoundError):
        folder = str(Path.cwd())
    store = {k: v for k, v in os.environ.items() if k == _STORE}
    return pickle.dumps((_search_path(), folder, store, call))


def _environment() -> dict[str, str]:
    found = _DEFAULT_ENVIRONMENT | isolated()
    found.pop("PYTEST_CURRENT_TEST", None)  # another one in each test
    found.pop(_STORE, None)  # each job gets its own
    return found


def _search_path() -> list[str]:
    return [str(Path(place).absolute()) for place in sys.path]


def _result(
    ending: _Ending, log: str, *, label: str, timeout_s: float, failure: Outcome
) -> JobResult:
    match ending.answer:
        case ("value", payload, wall_ns, peak_bytes):
            try:
                value = pickle.loads(payload)  # noqa: S301  # from our own child
            except Exception as error:
                msg = f"{label}: its result cannot be read: {error!r}."
                raise StageError(msg, outcome=failure, log=log) from error
            return JobResult(
                value=value, log=log, wall_ns=wall_ns, peak_bytes=peak_bytes
            )
        case ("raised", payload):
            raised = pickle.loads(payload)  # noqa: S301  # tried before it was sent
            if isinstance(raised, StageError):
                raised.log = f"{log}{raised.log}"  # native output, then the error's log
            raise raised
        case ("failed", text):
            msg = f"{label}: {text}"
            raise StageError(msg, outcome=failure, log=log)
    if ending.exit_code is None:
        msg = (
            f"{label}: still running at its limit of {timeout_s:g} s, and was ended"
            f"{last_words(log)}. If it needs longer, raise timeout_s under [limits] "
            "in parity.toml."
        )
        raise StageError(msg, outcome=Outcome.TIMED_OUT, log=log)
    msg = f"{label}: {_death(ending.exit_code, ending.peak_bytes)}{last_words(log)}."
    raise StageError(msg, outcome=Outcome.CRASHED, log=log)


def _death(exit_code: int, peak_bytes: int) -> str:
    if exit_code >= 0:
        return f"the process left with exit code {exit_code} and without an answer"
    name = signal_name(-exit_code)
    text = f"the process died with {name} (signal {-exit_code})"
    if name == "SIGKILL":
        held = f", it held {peak_bytes / 2**30:.1f} GiB" if peak_bytes else ""
        text += f", perhaps because memory ran out{held}"
    return text


def last_words(log: str) -> str:
    """Return the end of a message: the last line of a log, if there is one."""
    # faulthandler's output at a crash is for the log, not for the message; a Python
    # that reads its program line by line prints prompts.
    said = log.partition("Fatal Python error:")[0].splitlines()
    lines = (one.lstrip(" >\t\r").rstrip(" .>\t\r") for one in reversed(said))
    words = next(filter(None, lines), "")
    return f"; last words: {words[:WORDS]}" if words else ""
