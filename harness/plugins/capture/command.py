"""`parity capture`: record the calls of a script's modules from outside."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from harness.commands.options import HomePath
from harness.core.errors import SpecError
from harness.core.shown import echo

_PLACE = re.compile(r"(?:(?P<name>[a-z0-9][a-z0-9_.-]*)=)?(?P<place>\w+(?:\.\w+)*)")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("script", type=HomePath(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--module",
    "places",
    multiple=True,
    required=True,
    metavar="[NAME=]PLACE",
    help="A module of the script, such as pipe.transformer, or a method, such as "
    "pipe.vae.decode; perhaps with a name for it. May be repeated.",
)
@click.option(
    "--samples",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="Calls of each module that are kept, evenly in time.",
)
@click.option(
    "--into",
    default="captured",
    show_default=True,
    type=HomePath(path_type=Path),
    help="New or empty folder to write to.",
)
def capture(
    *,
    script: Path,
    arguments: tuple[str, ...],
    places: tuple[str, ...],
    samples: int,
    into: Path,
) -> int:
    """Run SCRIPT with its ARGUMENTS, and record what its modules are called with."""
    from harness.plugins.capture.saved import save_calls
    from harness.plugins.capture.scripts import run_recorded

    if not script.is_file():
        msg = f"there is no script {script}; give the path of a Python file."
        raise SpecError(msg)
    wanted: dict[str, str] = {}
    for text in places:
        if not (match := _PLACE.fullmatch(text)):
            msg = f"{text!r} is no name of a script; write it as in pipe.transformer."
            raise click.BadParameter(msg, param_hint="--module")
        name = match["name"] or match["place"].rpartition(".")[2].lower()
        if name in wanted:
            msg = f"{name!r} is named twice; give a name, as in other=pipe.transformer."
            raise click.BadParameter(msg, param_hint="--module")
        wanted[name] = match["place"]
    calls = run_recorded(script, arguments, wanted, samples)
    save_calls(calls, into, {})
    for name, one in calls.items():
        echo(f"wrote {into / name}: {len(one.calls)} of {one.seen} calls")
    echo(f"next  parity init {shlex.quote(str(into))}")
    return 0
