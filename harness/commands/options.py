"""Code that subcommands share: options, printed lines, and errors about names."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import click
from click.core import ParameterSource

from harness.core.text import Line

_COLOURS = {"good": "green", "bad": "red", "quiet": "bright_black"}
SUITE = click.option(
    "--suite",
    default="parity.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The suite, or the folder that it stands in.",
)
RUNS = click.option(
    "--runs",
    default="reports/runs",
    show_default=True,
    help="Where reports are written and looked for.",
)
STORE = click.option(
    "--store",
    default="",
    help="Where artifacts are kept: a folder, or a URL such as s3://bucket/prefix.",
)
TIER = click.option("--tier", default="", help="Hold every value to this tier.")
SET = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="BOUND=VALUE",
    help="Change a bound of every tolerance, as in sqnr_db=30; repeatable.",
)


def case_ids(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the suite's cases that begin with a word, for the shell's completion."""
    from harness.core.errors import ParityError
    from harness.suite.suite import load_suite

    with suppress(ParityError):  # a message would be written into the user's line
        suite = load_suite(Path(context.params.get("suite") or "parity.toml"))
        return [case.id for case in suite.tested if case.id.startswith(begun)]
    return []


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, in colour where colour is allowed."""
    for line in lines:
        click.echo(styled(line))


def styled(line: Line) -> str:
    """Return a line, with its colour unless the user has turned colours off."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return line.text if plain else click.style(line.text, fg=_COLOURS.get(line.tone))


def given_again(*names: str) -> str:
    """Return the given options and arguments of the command, each after a space."""
    context = click.get_current_context()
    words: list[str] = []
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if one.name not in names or source is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[one.name]
        if isinstance(one, click.Option):
            words.append(one.opts[0])
        if not getattr(one, "is_flag", False):
            words += map(str, value) if one.nargs == -1 else [str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def no_such(kind: str, name: str, run: str, there: Iterable[str]) -> str:
    """Return a sentence about a name that a run lacks, with similar names."""
    there = list(there)
    close = get_close_matches(name, there, n=3, cutoff=0.3) or there[:3]
    nearest = ", ".join(close)
    return f"no {kind} of run {run} is meant by {name!r} alone; the nearest: {nearest}."
