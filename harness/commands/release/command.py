"""The commands `parity diff`, `baseline`, `gate` and `history`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from harness.commands.options import RUNS, print_lines
from harness.core.errors import ParityError
from harness.core.text import count

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
PAGE = "gate.md"
"""The gate's page, in the run's folder."""


@click.command()
@click.argument("before")
@click.argument("after", required=False)
@RUNS
@BASELINES
@JUDGED_BY
def diff(
    *, before: str, after: str | None, runs: str, baselines: str, suite: Path | None
) -> int:
    """Hold run AFTER against BEFORE, row by row; each a run or a baseline.

    AFTER is the last run where it is left out; `parity diff last` compares that with
    the run before it of the same suite.

    Exit codes: 0 nothing is worse, 1 something is worse, gone or incomparable, 2 no
    check of one could be held against the other's.
    """
    from harness.report.run_diff import diff_lines
    from harness.report.runs.baseline import load_two
    from harness.report.runs.diff import diff as held
    from harness.report.runs.tiers import judges_of, rtol_by

    folder, kept = _folders(runs, baselines)
    one, two = load_two(before, after, runs=folder, baselines=kept)
    # A baseline does not know where its suite is.
    known = next((run for run in (two, one) if run.name), two)
    found = held(one, two, rtol_by(judges_of([known], suite), two))
    print_lines(diff_lines(found))
    if not found.tells:
        return 2
    return 1 if found.blocking else 0


def _folders(runs: str, baselines: str) -> tuple[Path, Path]:
    """Return the folder of runs, and that of baselines."""
    from harness.report.runs.held import baselines_beside

    folder = Path(runs).expanduser()
    return folder, Path(baselines) if baselines else baselines_beside(folder)


@click.group()
def baseline() -> None:
    """Keep reviewed runs that later ones are held against."""


@baseline.command("accept")
@click.argument("run_name", metavar="[RUN]", default="last")
@RUNS
@BASELINES
@click.option("--name", default="", help="Its name; the suite's folder when left out.")
@click.option("--who", default="", help="Who accepts it; git's user when left out.")
@click.option("--why", default="", help="The reason; needed where checks fail.")
def baseline_accept(  # one option each
    *, run_name: str, runs: str, baselines: str, name: str, who: str, why: str
) -> int:
    """Make RUN what later runs are held against."""
    from harness.engine.run_folder import find_run
    from harness.report.runs.baseline import (
        accept,
        git_user,
        path_of,
        replaced,
        save_baseline,
    )
    from harness.report.runs.snapshot import load_snapshot

    folder, beside = _folders(runs, baselines)
    run = load_snapshot(find_run(folder, run_name))
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
    click.echo(
        f"{path} ({moved}, {path.stat().st_size / 1024:,.0f} KB) is run {run.id}, "
        f"accepted by {made.accepted.who}"
    )
    click.echo(f"commit it; next  parity gate RUN --baseline {made.name}")
    return 0


@baseline.command("list")
@RUNS
@BASELINES
def baseline_list(*, runs: str, baselines: str) -> int:
    """List the baselines, who accepted each and why."""
    from harness.report.runs.baseline import baselines_in, load_baseline

    _, folder = _folders(runs, baselines)
    paths = baselines_in(folder)
    for path in paths:
        kept = load_baseline(path)
        said = kept.accepted
        why = f": {said.why}" if said.why else ""
        click.echo(
            f"{kept.name}  run {kept.snapshot.id}, {said.when} by {said.who}{why}"
        )
    if not paths:
        click.echo(f"none in {folder}; `parity baseline accept RUN` makes one")
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
@BASELINES
@JUDGED_BY
def gate(
    *, run_name: str, against: str, runs: str, baselines: str, suite: Path | None
) -> int:
    """Say on one page whether RUN may ship, and each reason why not.

    The run's own page then shows what changed since the baseline, too.

    Exit codes: 0 ship, 1 do not, 2 cannot say.
    """
    from harness.commands.release.gate import decide
    from harness.commands.release.gate_page import gate_lines, gate_markdown
    from harness.core.record import labels
    from harness.core.settings import Settings
    from harness.engine.run_folder import find_run, load_report
    from harness.report.finish import tell_ci
    from harness.report.rejudge import page_again, rejudge
    from harness.report.runs.baseline import baselines_in, find_baseline, load_baseline
    from harness.report.runs.diff import diff as held
    from harness.report.runs.snapshot import load_snapshot
    from harness.report.runs.tiers import judges_of, rtol_by
    from harness.suite.suite import load_suite

    folder, beside = _folders(runs, baselines)
    path = find_run(folder, run_name)
    kept = load_snapshot(path)
    there = baselines_in(beside)
    only = str(there[0]) if len(there) == 1 else kept.name
    named = find_baseline(beside, against or only)
    reviewed = load_baseline(named)
    judges = judges_of([kept], suite)
    report = load_report(folder, str(path))
    again = rejudge(report, Settings(), load_suite(suite) if suite else None)
    decision = decide(
        reviewed,
        held(reviewed.snapshot, kept, rtol_by(judges, kept)),
        again.verdicts,
        names=labels(report.records.values()),
        gaps=dict.fromkeys(gap for judge in judges.values() for gap in judge.gaps),
        stale=again.stale,
        required=report.required,
    )
    text = gate_markdown(decision)
    print_lines(gate_lines(decision))
    print_lines([*again.notes, *tell_ci(text)])
    page = path.with_name(PAGE)
    try:
        page.write_text(text, encoding="utf-8")
        page_again(report, Settings(baseline=str(named)), again=again)
    except OSError as error:
        # What was decided stands without its pages.
        click.echo(f"parity: {page} cannot be written ({error.strerror}).", err=True)
    except ParityError as error:
        click.echo(f"parity: {error}", err=True)
    return decision.code


@click.command()
@click.argument("case")
@RUNS
@JUDGED_BY
@click.option("--newest", default=30, show_default=True, help="Of this many runs.")
def history(*, case: str, runs: str, suite: Path | None, newest: int) -> int:
    """Plot a CASE's error and time over the kept runs, and mark where they moved."""
    from harness.commands.release.history import kept_runs, steps
    from harness.commands.release.history_page import history_lines
    from harness.report.runs.tiers import judges_of, rtol_by

    found, unreadable = kept_runs(Path(runs).expanduser(), case, newest)
    last = found[-1]
    rtol_of = rtol_by(judges_of([last], suite), last)
    print_lines(history_lines(case, list(steps(case, found, rtol_of))))
    if unreadable:
        click.echo(f"  {count(unreadable, 'run')} of another version left out")
    return 0
