"""`parity show` and `nodes`: judge existing runs, and show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import (
    JUDGED_BY,
    OF_FINISHED_RUN,
    RUNS,
    loaded_suites,
    no_such,
    number,
    out_path,
)
from harness.core.errors import ParityError
from harness.core.shown import echo, print_lines
from harness.core.whole_file import writing

if TYPE_CHECKING:
    from harness.core.record import Key
    from harness.engine.finished_run import Report


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.argument("case", required=False)
@OF_FINISHED_RUN
@click.option(
    "--sample", default="", help="Values of this sample, not the worst of all."
)
@click.option("--modules", is_flag=True, help="Roll values up by module.")
@number("--depth", 2, "Of --modules; what is out of tolerance is shown to the end.")
def show(  # one option each
    *,
    run_name: str,
    case: str | None,
    suites: tuple[Path, ...],
    runs: str,
    tier: str,
    changes: tuple[str, ...],
    sample: str,
    modules: bool,
    depth: int,
) -> int:
    """Judge RUN again, with other tolerances if given. No case is run.

    With a CASE, list its values in order of execution.
    """
    from harness.core.settings import Settings
    from harness.engine.finished_run import load_report
    from harness.judge.run import exit_code
    from harness.report.layers import layer_lines, module_lines, samples_of
    from harness.report.rejudge import facts_of, next_steps, rejudge
    from harness.report.summary import summary

    report = load_report(Path(runs), run_name)
    settings = Settings(runs=runs, tier=tier, changes=changes)
    given = loaded_suites(suites)
    again = rejudge(report, settings, given)
    if case is None:
        echo(f"run {report.id}")
        print_lines(again.notes)
        steps = next_steps(report, settings, again, given)
        print_lines(summary(facts_of(report, again, steps)))
        return again.code
    key = _key_of(report, case)
    own = [verdict for verdict in again.verdicts if verdict.key == key]
    if sample and sample not in samples_of(own):
        raise ParityError(no_such("sample", sample, report.id, samples_of(own)))
    print_lines(again.notes)
    record = report.records[key]
    print_lines(
        module_lines(record, own, depth)
        if modules
        else layer_lines(record, own, sample=sample)
    )
    return exit_code(own, required=report.required)


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("case")
@JUDGED_BY
@RUNS
@out_path(
    "Where to write it; a file named for the case, in this folder, when left out."
)
def nodes(
    *, run_name: str, case: str, suites: tuple[Path, ...], runs: str, out: Path | None
) -> int:
    """Write the errors of a CASE of RUN as node data for Model Explorer.

    In Model Explorer, open the exported program or the ONNX file of the dynamo
    exporter. Then open this file under "view node data".
    """
    from harness.core.settings import Settings, near
    from harness.engine.finished_run import load_report
    from harness.report.layers import node_data
    from harness.report.rejudge import rejudge

    found = load_report(Path(runs), run_name)
    key = _key_of(found, case)
    again = rejudge(found, Settings(runs=runs), loaded_suites(suites))
    data = node_data([verdict for verdict in again.verdicts if verdict.key == key])
    path = out or Path(f"{key[1].replace('/', '+')}.nodes.json")
    with writing(path, "give another with --out"):
        path.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")
    if again.elsewhere:
        print_lines(again.notes)
    echo(near(path))
    return 0


def _key_of(found: Report, case: str) -> Key:
    """Return the one case of a run that a name means, or refuse the name."""
    from harness.core.record import labels

    names = labels(found.records.values())
    keys = [key for key, name in names.items() if case in {name, key[1]}]
    if len(keys) != 1:
        meant = [names[key] for key in keys] or names.values()
        raise ParityError(no_such("case", case, found.id, meant))
    return keys[0]
