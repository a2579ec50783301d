"""`parity report`: the page of a run that is there, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands.options import RUNS, SET, TIER


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="The suite to judge by; the run's own when left out.",
)
@RUNS
@TIER
@SET
@click.option(
    "--baseline",
    default="",
    metavar="NAME",
    help="Show what is otherwise in this reviewed baseline, too.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where to write it; beside the run's report.json when left out.",
)
def report(  # one option each
    *,
    run_name: str,
    suite: Path | None,
    runs: str,
    out: Path | None,
    **words: Any,  # noqa: ANN401  # the settings that are plain text
) -> int:
    """Write the page of RUN again, judged by other tolerances if asked to."""
    from harness.core.settings import Settings, near
    from harness.engine.run_folder import load_report
    from harness.report.rejudge import page_again
    from harness.suite.suite import load_suite

    told = load_report(Path(runs).expanduser(), run_name)
    moved = load_suite(suite) if suite else None
    click.echo(near(page_again(told, Settings(runs=runs, **words), moved, out)))
    return 0
