"""`parity show`: a run that is there, judged again."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.options import RUNS, SET, TIER, no_such, print_lines
from harness.core.errors import ParityError


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.argument("case", required=False)
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="The suite to judge by; the run's own when left out.",
)
@RUNS
@TIER
@SET
@click.option(
    "--sample", default="", help="Values of this sample, not the worst of all."
)
@click.option("--modules", is_flag=True, help="Roll values up by module.")
@click.option(
    "--depth",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of --modules; what is out of tolerance is shown to the end.",
)
def show(  # one option each
    *,
    run_name: str,
    case: str | None,
    suite: Path | None,
    runs: str,
    tier: str,
    changes: tuple[str, ...],
    sample: str,
    modules: bool,
    depth: int,
) -> int:
    """Judge RUN again, under other tolerances if asked; nothing is run.

    With a CASE, list its values in order of execution.
    """
    from harness.core.record import labels
    from harness.core.settings import Settings
    from harness.engine.run_folder import load_report
    from harness.judge.run import exit_code
    from harness.report.layers import layer_lines, samples_of
    from harness.report.modules import module_lines
    from harness.report.rejudge import rejudge
    from harness.report.summary import summary
    from harness.suite.suite import load_suite

    report = load_report(Path(runs).expanduser(), run_name)
    settings = Settings(runs=runs, tier=tier, changes=changes)
    moved = load_suite(suite) if suite else None
    again = rejudge(report, settings, moved)
    names = labels(report.records.values())
    if case is None:
        click.echo(f"run {report.id}")
        print_lines(again.notes)
        print_lines(
            summary(
                list(report.records.values()),
                again.verdicts,
                stale=again.stale,
                required=report.required,
                next_steps=settings.next_steps(report.id, suite),
            )
        )
        return again.code
    keys = [key for key, name in names.items() if case in {name, key[1]}]
    if len(keys) != 1:
        meant = [names[key] for key in keys] or names.values()
        raise ParityError(no_such("case", case, report.id, meant))
    own = [verdict for verdict in again.verdicts if verdict.key == keys[0]]
    if sample and sample not in samples_of(own):
        raise ParityError(no_such("sample", sample, report.id, samples_of(own)))
    print_lines(again.notes)
    record = report.records[keys[0]]
    print_lines(
        module_lines(record, own, depth)
        if modules
        else layer_lines(record, own, sample=sample)
    )
    return exit_code(own, required=report.required)
