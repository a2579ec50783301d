"""`parity nodes`: a case's errors, to be seen on the graph in Model Explorer."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.commands.options import RUNS, no_such
from harness.core.errors import ParityError


@click.command()
@click.argument("run_name", metavar="RUN")
@click.argument("case")
@click.option(
    "--suite",
    type=click.Path(path_type=Path),
    help="The suite to judge by; the run's own when left out.",
)
@RUNS
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where to write it; a file named for the case, in this folder, when left out.",
)
def nodes(
    *, run_name: str, case: str, suite: Path | None, runs: str, out: Path | None
) -> int:
    """Write the errors of a CASE of RUN as node data for Model Explorer.

    Open the exported program, or the ONNX file of the dynamo exporter, in Model
    Explorer, then this file under "view node data".
    """
    from harness.core.record import labels
    from harness.core.settings import Settings, near
    from harness.engine.run_folder import load_report
    from harness.report.model_explorer import node_data
    from harness.report.rejudge import rejudge
    from harness.suite.suite import load_suite

    report = load_report(Path(runs).expanduser(), run_name)
    names = labels(report.records.values())
    keys = [key for key, name in names.items() if case in {name, key[1]}]
    if len(keys) != 1:
        raise ParityError(no_such("case", case, report.id, names.values()))
    moved = load_suite(suite) if suite else None
    verdicts = rejudge(report, Settings(runs=runs), moved).verdicts
    data = node_data([verdict for verdict in verdicts if verdict.key == keys[0]])
    path = out or Path(f"{keys[0][1].replace('/', '+')}.nodes.json")
    try:
        path.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}); give another with --out."
        raise ParityError(msg) from error
    click.echo(near(path))
    return 0
