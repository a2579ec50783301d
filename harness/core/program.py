"""Run a program of somebody else's, and say in one sentence how it fails.

A child process that works on data imports nothing that lies where the data lies. This
module has the environment that sees to it.
"""

from __future__ import annotations

import os
import select
import signal
import site
import subprocess  # noqa: TID251  # here a child is isolated
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core import stopping
from harness.core.errors import SpecError
from harness.core.kept_log import KeptLog, unblocked

LIMIT_S: Final = 600
"""Seconds after which a program is stopped."""

WORDS: Final = 200
"""Length of what a sentence repeats of a program's words."""

_LOOK_S: Final = 0.1
"""How often a program is looked at that prints nothing, in seconds."""


def isolated() -> dict[str, str]:
    """Return an environment in which a Python imports only what is installed.

    By default a Python first looks in the current folder, or beside its script, for
    all that it imports. There a model, a card or a downloaded run may have brought a
    `numpy.py`. Python 3.11 and later leave these folders out, and so do the Pythons
    that such a child starts.

    The user's own `PYTHONPATH` stays, without relative folders: each child would look
    for them somewhere else, and an empty entry means the current folder.
    """
    dropped = {"PYTHONPATH", "PYTHONSTARTUP", "PYTHONINSPECT"}
    environment = {k: v for k, v in os.environ.items() if k not in dropped}
    environment["PYTHONSAFEPATH"] = "1"
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if places := [place for place in given if Path(place).is_absolute()]:
        environment["PYTHONPATH"] = os.pathsep.join(places)
    return environment


def alone(*arguments: str) -> list[str]:
    """Return the command of a Python that imports nothing that a user's folders have.

    It is for a child that needs only what is installed: it reads no variable of
    Python's, so a `PYTHONPATH` to the folder of a suite does not reach it either. What
    the user installed for this Python alone is found, where this process finds it.
    """
    flags = ("-E", "-P") if site.ENABLE_USER_SITE else ("-I",)
    return [sys.executable, *flags, *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        code: Its exit code: below 0 for a signal, 2 if it was stopped.
        text: What it printed, without blank space around it; of a long text the
            beginning and the end.

    """

    code: int
    text: str

    @property
    def words(self) -> str:
        """The last line that it printed, cut; the signal of a crash."""
        if self.code < 0:
            return f"crashes by {signal_name(-self.code)}"
        lines = self.text.splitlines()
        last = lines[-1].strip()[:WORDS] if lines else ""
        return last or f"ends with exit code {self.code}"


def ended(
    command: Sequence[str],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    *,
    stdout: bool = True,
    stderr: bool = True,
) -> ProgramEnd:
    """Run a program to its end, isolated from the folder where it runs.

    It is ended early where this process is asked to end, or leaves by an error.

    Args:
        command: The program and its arguments.
        folder: Its working directory; None for that of this process.
        env: Variables that it has beside those of `isolated`.
        limit_s: Seconds after which it is stopped; infinity for no such limit.
        stdout: Whether its standard output is kept.
        stderr: Whether its standard error is kept.

    Raises:
        OSError: The program cannot be started.

    """
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    beside = subprocess.STDOUT if stdout else pipe
    with subprocess.Popen(
        command,
        cwd=folder,
        env=isolated() | dict(env or {}),
        stdin=nothing,
        stdout=pipe if stdout else nothing,
        stderr=beside if stderr else nothing,
        bufsize=0,
    ) as popen:
        try:
            return _followed(popen, limit_s)
        finally:
            _end(popen)


def _followed(popen: subprocess.Popen[bytes], limit_s: float) -> ProgramEnd:
    """Read what a program prints until it ends, or must end."""
    pipe, log = unblocked(popen.stdout or popen.stderr), KeptLog()
    is_open, end_s = True, time.monotonic() + limit_s
    while popen.poll() is None:
        if stopping.is_asked():  # this thread gets no KeyboardInterrupt
            return ProgramEnd(code=2, text="stopped")
        if (rest_s := end_s - time.monotonic()) <= 0:
            return ProgramEnd(code=2, text=f"no end within {limit_s:g} s")
        # A program that this one started may keep the pipe open.
        wait_s = min(_LOOK_S, rest_s)
        if is_open:
            select.select([pipe], [], [], wait_s)
            is_open = log.read(pipe)
        else:
            with suppress(subprocess.TimeoutExpired):
                popen.wait(wait_s)
    log.read(pipe)
    return ProgramEnd(code=popen.returncode, text=log.text.strip())


def _end(popen: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and what it started."""
    if popen.poll() is not None:
        return
    import psutil  # `--help` and the pages need none of it

    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(popen.pid).children(recursive=True)
        popen.kill()
        for one in started:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    popen.wait()


def run_program(command: Sequence[str], why: str, folder: Path | None = None) -> str:
    """Run a program, and return what it prints.

    Raises:
        SpecError: It fails; the message has its last line.

    """
    try:
        done = ended(command, folder)
    except OSError as error:
        msg = f"{why}: {error}"
        raise SpecError(msg) from None
    if done.code:
        msg = f"{why}: {done.words}"
        raise SpecError(msg)
    return done.text


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGSEGV``, or ``signal 36`` if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
