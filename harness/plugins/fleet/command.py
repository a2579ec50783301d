"""`parity merge`: make one run of shards, which several machines ran."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import click

from harness.commands.options import JUDGED_BY, RUNS, loaded_suites, of_run
from harness.core.shown import print_lines


@click.command()
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@JUDGED_BY
@RUNS
@of_run("baseline", "Compare the merged run with this reviewed baseline too.")
def merge(
    *, names: tuple[str, ...], suites: tuple[Path, ...], runs: str, baseline: str
) -> int:
    """Make one run of all shards of a run: one report, one page, one exit code.

    RUN is the id or the folder of a shard's run.
    """
    from harness.core.settings import Settings
    from harness.engine.finished_run import load_report
    from harness.engine.run_folder import RunFolder
    from harness.plugins.fleet import merge as shards
    from harness.report.finish import baseline_of

    home = Path(runs)
    if baseline:
        baseline_of(baseline, home)
    lines, code = shards.merge(
        [load_report(home, name) for name in names],
        Settings(runs=runs, baseline=baseline),
        lambda: RunFolder.create(home.absolute(), datetime.now().astimezone()),
        ["parity", *sys.argv[1:]],
        loaded_suites(suites),
    )
    print_lines(lines)
    return code
