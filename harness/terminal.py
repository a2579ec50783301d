"""What the commands share: how lines are printed, and the options that several have."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from harness.report.text import Line

_COLOURS = {"good": "green", "bad": "red", "quiet": "bright_black"}

RUNS = click.option(
    "--runs",
    default="reports/runs",
    show_default=True,
    help="Where reports are written and looked for.",
)
BASELINES = click.option(
    "--baselines",
    default="",
    help="Where reviewed baselines are kept; baselines/ beside the runs if left out.",
)
JUDGED_BY = click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="The suite to judge by; the run's own when left out.",
)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines, coloured on a terminal."""
    for line in lines:
        click.echo(styled(line))


def styled(line: Line) -> str:
    """Return a line with its colour, on a terminal that has not asked for none."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return line.text if plain else click.style(line.text, fg=_COLOURS.get(line.tone))
