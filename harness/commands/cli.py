"""The `parity` command: the same engine and the same ids as the pytest plugin.

Exit codes: 0 parity, 1 no parity, 2 could not tell (bad input or a failed stage).
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import StringIO, TextIOWrapper
from typing import Any

import click

from harness import __version__
from harness.commands.ranges import ranges
from harness.commands.run import run
from harness.commands.show import nodes, show
from harness.commands.store import store
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.plugins import added
from harness.core.private import public
from harness.core.shown import echo
from harness.core.stopping import stopped_by_signals
from harness.core.text import NAME, one_line, shortened


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def cli() -> None:
    """Compare deployed models with PyTorch, and show where they first diverge.

    Exit codes: 0 parity, 1 no parity, 2 could not tell.
    """


for _command in (run, show, nodes, ranges, store):
    cli.add_command(_command)


def _add_plugins() -> None:
    """Add the commands of plug-ins; what cannot be added is one line on the screen."""
    for one in added("commands"):
        new, refused = one.function, one.words
        if isinstance(new, click.Command):
            if cli.commands.setdefault(new.name or "", new) is new:
                continue
            refused = f"plug-in {one.plugin!r}: there is a command {new.name!r} already"
        elif new is not None:
            refused = f"plug-in {one.plugin!r}: {one.name} is no command of click"
        echo(f"parity: {refused}.", err=True)


_add_plugins()


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; print expected errors as a sentence."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack a tick or an arrow
            stream.reconfigure(errors="replace")
    call: Callable[..., Any] = cli.main
    code, text = CANNOT_TELL, ""
    try:
        with stopped_by_signals():
            code = call(args=argv, prog_name="parity", standalone_mode=False) or 0
    except ParityError as error:
        code, text = error.exit_code, one_line(f"parity: {error}")
    except click.ClickException as error:
        said = StringIO()
        error.show(said)
        text = said.getvalue().removesuffix("\n")
    except (click.Abort, KeyboardInterrupt):
        text = "parity: stopped; what was made so far is in the store."
    except SystemExit as error:
        if error.code != 1:  # click's end where nobody reads: `parity … | head`
            raise
    except Exception as error:  # noqa: BLE001  # a defect is no verdict, and 1 means no parity
        text = _words_of(error)
    if text:
        with suppress(OSError):  # nobody may read this any more
            echo(text, err=True, lines=True)
    return _flushed(int(code))


def _flushed(code: int) -> int:
    """Write what is left of the output, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Nobody reads it. Python would try again at its end, and exit with 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = CANNOT_TELL
    return code


def _words_of(error: Exception) -> str:
    """Return what is said of an error that no command expects."""
    if isinstance(error, OSError) and error.errno == errno.EIO and not error.filename:
        return ""  # the terminal is closed
    if isinstance(error, OSError) and error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
        named = shortened(str(error.filename), NAME)
        return (
            f"parity: {named!r} is no path of a file ({error.strerror}); give another."
        )
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    if lacks and lacks.partition(".")[0] != "harness":
        return (
            f"parity: this needs {lacks}, which is not installed; "
            'pip install "parity-harness[make]"'
        )
    text = "parity: this is an error of the harness; report it with the lines above."
    return f"{public(''.join(traceback.format_exception(error)))}{text}"
