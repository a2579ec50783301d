"""Show text: the one way to a terminal, and what every renderer does to a text.

Much of what the harness shows is not its own: names in a model, messages of a library,
logs of a process, the facts of a run that somebody else sent. A renderer does not know
which part of a line that is, so it treats all of it alike. Texts of ours are not
changed by it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from harness.core.private import public, without_secrets
from harness.core.text import (
    LOG,
    MESSAGE,
    NAME,
    Line,
    one_line,
    printable,
    screen,
    shortened,
)

_COLOURS = {"good": "green", "bad": "red", "quiet": "bright_black"}

_LONG_WORD = re.compile(rf"\S{{{NAME + 1},}}")


def shown(text: str, *, lines: bool = False) -> str:
    r"""Return a text for the screen of the user: printable, without secrets, not long.

    Paths stay, because the user's own commands name them. A line break stays only where
    the text has `lines`.

    >>> print(shown("conv\x1b[2J\n ✓ all agree, https://host/x?sig=abc"))
    conv\x1b[2J\n ✓ all agree, https://host/x?…
    """
    return _bounded(without_secrets(text), lines=lines)


def written(text: str, *, lines: bool = True) -> str:
    """Return a text for a file that people read: as `shown`, and `public`.

    >>> written("cannot read /home/ann/x.onnx")
    'cannot read ~/x.onnx'
    """
    return _bounded(public(text), lines=lines)


def all_written(value: Any) -> Any:  # noqa: ANN401  # what JSON holds
    """Return JSON values with each text as `written`; names of fields stay."""
    if isinstance(value, str):
        return written(value)
    if isinstance(value, Mapping):
        return {name: all_written(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [all_written(one) for one in value]
    return value


def _bounded(text: str, *, lines: bool) -> str:
    text = printable(text, sys.maxsize, lines=lines)
    if len(text) > NAME:
        text = _LONG_WORD.sub(lambda word: shortened(word[0], NAME), text)
    return shortened(text, LOG if lines else MESSAGE)


def sentence(where: str, error: BaseException) -> str:
    r"""Return an error of the harness as one line to show.

    >>> sentence("parity", ValueError("it is not so:\n no file"))
    'parity: it is not so: no file'
    """
    return shown(one_line(f"{where}: {error}"))


def echo(
    text: str = "", *, tone: str = "", err: bool = False, lines: bool = False
) -> None:
    """Print a text on the terminal, or on its stream of errors.

    Args:
        text: The text.
        tone: The tone that its colour stands for; see `harness.core.text.Line`.
        err: Whether it goes to the stream of errors.
        lines: Whether it has lines. If not, it is one line.

    Raises:
        OSError: Nobody reads the stream any more.

    """
    click.echo(_coloured(shown(text, lines=lines), tone), err=err)


def print_lines(lines: Iterable[Line]) -> None:
    """Print a screen's lines, in colour where colour is allowed."""
    for line in screen(lines):
        echo(line.text, tone=line.tone)


def styled(line: Line) -> str:
    """Return a line to print, with its colour unless the user has turned them off."""
    return _coloured(shown(line.text), line.tone)


def _coloured(text: str, tone: str) -> str:
    plain = not tone or not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if plain else click.style(text, fg=_COLOURS.get(tone))
