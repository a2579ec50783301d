"""The commands `parity baseline` and `parity gate`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from harness.commands.options import JUDGED_BY, RUNS, loaded_suites
from harness.core.errors import ParityError
from harness.core.shown import echo, print_lines
from harness.core.text import one_line
from harness.core.whole_file import writing

PAGE = "gate.md"
"""The gate's page, in the run's folder."""


@click.group()
def baseline() -> None:
    """Keep reviewed runs; later runs are compared with them."""


@baseline.command("accept")
@click.argument("run_name", metavar="[RUN]", default="last")
@RUNS
@click.option("--name", default="", help="Its name; the suite's folder when left out.")
@click.option("--who", default="", help="Who accepts it; git's user when left out.")
@click.option("--why", default="", help="The reason; needed where checks fail.")
def baseline_accept(*, run_name: str, runs: str, name: str, who: str, why: str) -> int:
    """Make RUN a baseline; later runs are compared with it."""
    from harness.engine.finished_run import load_report
    from harness.plugins.release.baseline import (
        accept,
        git_user,
        path_of,
        replaced,
        save_baseline,
    )
    from harness.plugins.release.selection import baselines_beside

    beside = baselines_beside(Path(runs))
    run = load_report(Path(runs), run_name)
    there = path_of(beside, name or run.name)
    moved = "moved" if there.is_file() else "new"
    made = accept(
        run,
        name=name or run.name,
        who=who or git_user(),
        why=why,
        when=datetime.now(tz=UTC).date(),
        there=replaced(there),
    )
    path = save_baseline(made, beside)
    echo(
        f"{path} ({moved}, {path.stat().st_size / 1024:,.0f} KB) is run {run.id}, "
        f"accepted by {made.accepted.who}"
    )
    echo(f"commit it; next  parity gate last --baseline {made.name}")
    return 0


@baseline.command("list")
@RUNS
def baseline_list(*, runs: str) -> int:
    """List the baselines, and for each one who accepted it and why."""
    from harness.plugins.release.baseline import baselines_in, load_baseline
    from harness.plugins.release.selection import baselines_beside

    folder = baselines_beside(Path(runs))
    paths = baselines_in(folder)
    for path in paths:
        kept = load_baseline(path)
        said = kept.accepted
        why = f": {said.why}" if said.why else ""
        echo(f"{kept.name}  run {kept.report.id}, {said.when} by {said.who}{why}")
    if not paths:
        echo(f"none in {folder}; `parity baseline accept RUN` makes one")
    return 0


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.option(
    "--baseline",
    "against",
    default="",
    metavar="NAME",
    help="Its name or path; when left out the only one, or that of the suite's folder.",
)
@RUNS
@JUDGED_BY
def gate(*, run_name: str, against: str, runs: str, suites: tuple[Path, ...]) -> int:
    """Show on one page whether RUN may ship, and each reason why not.

    The run's own page then also shows the changes since the baseline.

    Exit codes: 0 may ship, 1 may not ship, 2 could not tell.
    """
    from harness.core.settings import Settings, near
    from harness.engine.finished_run import load_report
    from harness.plugins.release.baseline import (
        baselines_in,
        find_baseline,
        load_baseline,
    )
    from harness.plugins.release.diff import diff, rtol_by
    from harness.plugins.release.gate import decide, gate_lines, gate_markdown
    from harness.plugins.release.selection import baselines_beside, with_verdicts
    from harness.report.finish import tell_ci
    from harness.report.rejudge import rejudge, reports_again

    beside = baselines_beside(Path(runs))
    report = load_report(Path(runs), run_name)
    there = baselines_in(beside)
    only = str(there[0]) if len(there) == 1 else report.name
    named = find_baseline(beside, against or only)
    reviewed = load_baseline(named)
    given = loaded_suites(suites)
    again = rejudge(report, Settings(), given)
    decision = decide(
        reviewed,
        diff(
            reviewed.report,
            with_verdicts(report, again.verdicts),
            rtol_by(again.judges, report),
        ),
        again.verdicts,
        names=report.names,
        stale=again.stale,
        required=report.required,
        whole=again.whole,
    )
    text = gate_markdown(decision)
    print_lines(gate_lines(decision))
    print_lines([*again.notes, *tell_ci(text)])
    page = report.path.with_name(PAGE)
    try:
        with writing(page, "the decision is valid without it"):
            page.write_text(text, encoding="utf-8")
        echo(f" page        {near(page)}")
        decided = replace(again, code=decision.code)
        reports_again(report, Settings(baseline=str(named)), decided, given)
    except ParityError as error:
        echo(f"parity: {one_line(str(error))}", err=True)
    return decision.code
