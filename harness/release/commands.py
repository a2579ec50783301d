"""`parity diff`, `baseline`, `gate` and `history`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from harness.terminal import BASELINES, JUDGED_BY, RUNS, print_lines


@click.command("diff")
@click.argument("before")
@click.argument("after", default="last")
@RUNS
@BASELINES
@JUDGED_BY
def diff_command(
    *, before: str, after: str, runs: str, baselines: Path, suite: Path | None
) -> int:
    """Hold run AFTER against BEFORE, row by row; each a run or a baseline.

    Exit codes: 0 nothing is worse, 1 something is worse, gone or incomparable.
    """
    from harness.release.baseline import load_either
    from harness.release.diff import diff
    from harness.release.screen import diff_lines
    from harness.release.tiers import judges_of, rtol_by

    folder = Path(runs).expanduser()
    one, two = (
        load_either(n, runs=folder, baselines=baselines) for n in (before, after)
    )
    judges = judges_of(
        (two,) if any(c.suite for c in two.cases.values()) else (one,), suite
    )
    found = diff(one, two, rtol_by(judges, two))
    print_lines(diff_lines(found))
    return 1 if found.blocking else 0


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
    *, run_name: str, runs: str, baselines: Path, name: str, who: str, why: str
) -> int:
    """Make RUN what later runs are held against."""
    from harness.release.baseline import accept, git_user, path_of, save_baseline
    from harness.release.snapshot import load_snapshot
    from harness.report.run_folder import find_run

    kept = load_snapshot(find_run(Path(runs).expanduser(), run_name))
    made = accept(
        kept,
        name=name or kept.name,
        who=who or git_user(),
        why=why,
        when=datetime.now(tz=UTC).date(),
    )
    moved = "moved" if path_of(baselines, made.name).is_file() else "new"
    path = save_baseline(made, baselines)
    click.echo(
        f"{path} ({moved}, {path.stat().st_size / 1024:,.0f} KB) is run {kept.id}, "
        f"accepted by {made.accepted.who}"
    )
    click.echo(f"commit it; next  parity gate RUN --baseline {made.name}")
    return 0


@baseline.command("list")
@BASELINES
def baseline_list(baselines: Path) -> int:
    """List the baselines, who accepted each and why."""
    from harness.release.baseline import baselines_in, load_baseline

    paths = baselines_in(baselines)
    for path in paths:
        kept = load_baseline(path)
        said = kept.accepted
        why = f": {said.why}" if said.why else ""
        click.echo(
            f"{kept.name}  run {kept.snapshot.id}, {said.when} by {said.who}{why}"
        )
    if not paths:
        click.echo(f"none in {baselines}; `parity baseline accept RUN` makes one")
    return 0


COMMANDS = (diff_command, baseline)
