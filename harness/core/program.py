"""Run a program of somebody else's, and say in one sentence how it fails.

A child process that works on data imports nothing that lies where the data lies. This
module has the environment that sees to it.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.errors import SpecError

LIMIT_S: Final = 600
"""Seconds after which a program is stopped."""


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
        text: What it printed, without blank space around it.

    """

    code: int
    text: str

    @property
    def words(self) -> str:
        """The last line that it printed; the signal of a crash."""
        if self.code < 0:
            return f"crashes by {signal_name(-self.code)}"
        lines = self.text.splitlines()
        return lines[-1].strip() if lines else f"ends with exit code {self.code}"


def ended(
    command: Sequence[str],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: int = LIMIT_S,
) -> ProgramEnd:
    """Run a program to its end, isolated from the folder where it runs.

    Args:
        command: The program and its arguments.
        folder: Its working directory; None for that of this process.
        env: Variables that it has beside those of `isolated`.
        limit_s: Seconds after which it is stopped.

    Raises:
        OSError: The program cannot be started.

    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=isolated() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ProgramEnd(code=2, text=f"no end within {limit_s} s")
    return ProgramEnd(code=done.returncode, text=done.stdout.strip())


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
