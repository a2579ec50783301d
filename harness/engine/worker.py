"""The code in host and job processes: the host's loop, and a job from fork to answer.

This code runs only in processes that `host.Host` starts. Messages to the parent are
pickled tuples: ``ready``; ``unready, missing, text``; then for each job any number
of ``progress, stage, subject, detail``, at most one of ``value, payload, wall_ns,
peak_bytes``, ``raised, payload`` and ``failed, text``, and from a host that forks
``ended, exit_code, peak_bytes``. The host passes a job's messages on unopened.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import pickle  # noqa: TID251  # over a pipe, from and to our parent
import pkgutil
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import Final, NoReturn

from harness.core.errors import ParityError

FORKS = sys.platform == "linux"
_POLL_S = 0.05
_MESSAGE_LIMIT_BYTES = 64 << 20
_PR_SET_PDEATHSIG = 1
_UNBUFFERED = 2

DAMAGED: Final = "damaged"
"""The stage of a notice about an entry that is damaged."""

# The connection of a job to its parent; None in every other process.
_channel: connection.Connection | None = None
_sending = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job, with its time and memory.

    Attributes:
        value: The return value of the function.
        log: The beginning and the end of the job's output, native code included.
        wall_ns: Duration of the call, without the start of the process.
        peak_bytes: The largest resident set of the job, including preloaded modules,
            or of a process that it started.
        import_log: The output of the host's imports, the same for all jobs.

    """

    value: object
    log: str
    wall_ns: int
    peak_bytes: int
    import_log: str = ""


def report_progress(stage: str, subject: str, detail: str) -> None:
    """Send the progress of the job to the parent; outside a job, do nothing.

    `worker_pool.Progress` describes the arguments.
    """
    if _channel is not None:
        _send(_channel, "progress", stage, subject, detail)


def serve(channel: connection.Connection) -> NoReturn:
    """Run a host: import the given modules, then run jobs until the parent ends."""
    faulthandler.enable()  # at a crash, write the Python stack to the log
    # No core files: a crash would write gigabytes to the disk.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    # Python 3.12 and later warn at the fork; idle threads of a library are harmless.
    warnings.filterwarnings("ignore", "This process.*is multi-threaded, use of fork")
    preload, fork = channel.recv()
    gc.disable()  # modules are never freed, so that searching them is lost time
    try:
        name = "harness.engine.keys"
        # Jobs file what they make under keys of the code that is imported here.
        importlib.import_module(name).remember()
        for name in preload:
            importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001  # even SystemExit must be reported here
        traceback.print_exc()
        missing = isinstance(error, ModuleNotFoundError)
        _send(channel, "unready", missing, f"importing {name} failed: {_said(error)}")
        os._exit(0)
    gc.freeze()  # a collection in a job then does not search or copy their pages
    _send(channel, "ready")
    while True:
        try:
            request = channel.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        if not fork:
            threading.Thread(target=_leave_with, args=[channel], daemon=True).start()
            _run(channel, request)
        _supervise(channel, request)


def _supervise(parent: connection.Connection, request: bytes) -> None:
    """Fork a job, pass its messages on, and wait for its end, or end it."""
    libc = ctypes.CDLL(None)
    reader, writer = Pipe(duplex=False)
    host = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != host:  # the host died before the line above
            os._exit(1)
        with suppress(OSError):  # where memory runs out, this process ends first
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        parent.close()
        reader.close()
        _run(writer, request)
    with suppress(OSError):  # host and job both do this
        os.setpgid(pid, pid)
    writer.close()
    open_ends = [parent, reader]
    # The job is not reaped yet, so that no other process can get its id.
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, pid, look) is None:
        pause_s = _POLL_S if reader in open_ends else 0.001
        for end in connection.wait(open_ends, pause_s):
            if end is parent:  # the parent sends nothing now, so it has ended
                _kill_group(pid)
                os.waitpid(pid, 0)
                os._exit(0)
            if not _relay(reader, parent):
                open_ends.remove(reader)
    while reader in open_ends and reader.poll() and _relay(reader, parent):
        pass
    reader.close()
    _kill_group(pid)  # child processes of the job must not outlive it
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    _send(parent, "ended", code, usage.ru_maxrss * 1024)


def _relay(reader: connection.Connection, parent: connection.Connection) -> bool:
    """Pass one message on; return False if there will be no more."""
    try:
        message = reader.recv_bytes(_MESSAGE_LIMIT_BYTES)
    except (EOFError, OSError):  # the end, or a message that is cut off
        return False
    with suppress(OSError):  # the end of file shows that the parent is gone
        parent.send_bytes(message)
    return True


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _leave_with(parent: connection.Connection) -> NoReturn:
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os.killpg(0, signal.SIGKILL)  # this process, and its child processes
    os._exit(1)


def _run(channel: connection.Connection, request: bytes) -> NoReturn:
    """Run a job: call the function, answer, and exit without unwinding."""
    global _channel  # noqa: PLW0603  # a process has one connection
    _channel = channel
    gc.enable()
    _print_at_once()
    answer: tuple[object, ...]
    try:
        paths, folder, store, call = pickle.loads(request)  # noqa: S301  # from our parent
        # The host may have started elsewhere, for another suite.
        sys.path[:] = paths
        importlib.invalidate_caches()
        if folder:
            os.chdir(folder)
        os.environ.update(store)
        function, args, kwargs = pickle.loads(call)  # noqa: S301  # from our parent
        if isinstance(function, str):
            function = pkgutil.resolve_name(function)
        start_ns = time.perf_counter_ns()
        value = function(*args, **kwargs)
        wall_ns = time.perf_counter_ns() - start_ns
        answer = ("value", _payload(value), wall_ns, _peak_bytes())
    except BaseException as error:  # noqa: BLE001  # the parent gets every error
        if not isinstance(error, ParityError):  # its message is enough
            traceback.print_exc()
        answer = _complaint(error)
    _flush()
    _send(channel, *answer)
    os._exit(0)


def _payload(value: object) -> bytes:
    try:
        payload = pickle.dumps(value)
    except Exception as error:
        msg = f"its result cannot be sent back: {error}"
        raise TypeError(msg) from error
    if len(payload) > _MESSAGE_LIMIT_BYTES - 1024:
        msg = (
            f"its result takes {len(payload):,} bytes and at most "
            f"{_MESSAGE_LIMIT_BYTES:,} can be sent back; write it to a file."
        )
        raise ValueError(msg)
    return payload


def _complaint(error: BaseException) -> tuple[object, ...]:
    if isinstance(error, ParityError):
        # Some exceptions can be pickled but not unpickled, so try both here.
        with suppress(Exception):
            payload = pickle.dumps(error)
            pickle.loads(payload)  # noqa: S301  # our own
            return ("raised", payload)
    return ("failed", _said(error))


def _said(error: BaseException) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else repr(error)


def _send(channel: connection.Connection, *message: object) -> None:
    with _sending, suppress(OSError):  # the parent is gone, and this process ends soon
        channel.send_bytes(pickle.dumps(message))


def _print_at_once() -> None:
    """Let native code print without a buffer, so that a crash loses no output."""
    with suppress(OSError, TypeError, ValueError, AttributeError):  # another libc
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
        libc.setvbuf(stdout, None, _UNBUFFERED, 0)


def _flush() -> None:
    with suppress(Exception):  # the function may have closed or replaced them
        sys.stdout.flush()
        sys.stderr.flush()
    with suppress(OSError, TypeError, AttributeError):  # another libc
        ctypes.CDLL(None).fflush(None)


def _peak_bytes() -> int:
    # A converter runs in a separate process.
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(one).ru_maxrss for one in whose)
    return peak if sys.platform == "darwin" else peak * 1024
