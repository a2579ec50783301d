"""`parity explain` and `parity repro`: find why a case diverges, and show it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import OF_CASE, RUNS, judged_case, new_folder, out_path
from harness.commands.progress import step_line
from harness.core.errors import OnlyInGraphError, ParityError
from harness.core.shown import echo, print_lines
from harness.core.text import one_line

if TYPE_CHECKING:
    from harness.report.explained import Explained
    from harness.suite.suite import Suite


@click.command()
@OF_CASE
@RUNS
def explain(
    *,
    case: str,
    suite: Path,
    runs: str,
    store: str,
    tier: str,
    changes: tuple[str, ...],
) -> int:
    """Find where and why CASE diverges. Try each setting to find one that fixes it.

    If the newest run of CASE measured the same, its page then shows the result.
    """
    from harness.core.settings import Settings
    from harness.core.text import wrapped
    from harness.engine.engine import Engine
    from harness.engine.run import open_store, path_of
    from harness.plugins.explain.explain import explain as find
    from harness.plugins.explain.screen import explained, explanation_lines
    from harness.plugins.explain.setting_changes import finished_file

    loaded, one, judge = judged_case(case, suite, tier, changes)
    say = step_line(f"{one.id}: ")

    def report(reason: str) -> None:
        say("")
        print_lines(wrapped(f"{one.id}: {reason}.", indent="", tone="bad"))

    if text := finished_file(one):
        echo(text)
    try:
        with Engine(open_store(store), loaded.limits) as engine:
            found = find(engine, judge, one, say, report)
    except OnlyInGraphError:
        echo("No layer is out of tolerance, so no setting is tried.")
        return 0
    say("")
    print_lines(explanation_lines(found))
    path = path_of(loaded)
    again = Settings(store=store, runs=runs, tier=tier, changes=changes).next_steps("")
    command = again.explain(one.id, path)
    try:
        if page := _onto_page(explained(found, path, command), runs, loaded):
            echo()
            echo(f"  page          {page} shows this now")
    except (OSError, ParityError) as error:
        # The explanation is valid even if no page can show it.
        echo(one_line(f"parity: the page of the run is as it was: {error}"), err=True)
    return 0


@click.command()
@OF_CASE
@click.option(
    "--probe", default="", help="Cut at this value, not at the first divergence."
)
@click.option(
    "--post",
    is_flag=True,
    help="Draw all weights and inputs, make the model small, and write issue.md.",
)
@out_path("Folder to write; repro-CASE here when left out.")
def repro(  # one option each
    *,
    case: str,
    suite: Path,
    store: str,
    tier: str,
    changes: tuple[str, ...],
    probe: str,
    post: bool,
    out: Path | None,
) -> int:
    """Write a folder that shows CASE's divergence with numpy and one runtime.

    With --post nothing of your checkpoint, prompts or names is in it.
    """
    from harness.core.text import FLOORS, count
    from harness.engine.engine import Engine
    from harness.engine.run import open_store
    from harness.plugins.explain.excerpts import (
        cut_out,
        error_in_floors,
        error_words,
    )
    from harness.plugins.explain.repro import about_pytorch, fill
    from harness.suite.places import script_of

    loaded, one, judge = judged_case(case, suite, tier, changes)
    into = out or Path(f"repro-{one.id.replace('/', '-')}")
    say = step_line(f"{one.id}: ")
    with new_folder(into) as folder, Engine(open_store(store), loaded.limits) as engine:
        around = cut_out(engine, judge, one, probe, say)
        if post:
            from harness.plugins.explain.post import write_post

            around = write_post(loaded.limits, judge, around, folder, say)
        else:
            say("writing")
            fill(folder, engine, around, about_pytorch(around))
    say("")
    layer = around.layer
    error = error_words(error_in_floors(layer), one)
    unit = f" ({FLOORS})" if error.endswith("floors") else ""
    nodes = count(int(str(around.excerpt.entry.meta["nodes"])), "operator")
    echo(f"{nodes} around {layer.place}: {error}{unit}")
    if not around.shows:
        echo("within tolerance there: the error needs more of the graph")
    size = sum(file.stat().st_size for file in into.iterdir()) / 1000
    echo(f"wrote {into} ({size:,.0f} KB)")
    own = script_of(one.device)
    command = own.command if own else "python repro.py"
    echo(f"next  cd {shlex.quote(str(into))} && {command}")
    if post:
        echo(f"      {into / 'issue.md'} is the text to post")
    return 0


def _onto_page(found: Explained, runs: str, suite: Suite) -> str:
    """Show a result on the page of the newest run of its case; return the page's path.

    The path is empty where no run measured the same and fails in the same place.

    Raises:
        OSError: The result cannot be kept.
        ParityError: The run cannot be read, or its page cannot be written.

    """
    from harness.core.settings import Settings, near
    from harness.engine.finished_run import load_report, newest_with
    from harness.report.rejudge import rejudge, reports_again
    from harness.report.suites import as_judged

    key = found.suite, found.case
    path = newest_with(Path(runs), key)
    if path is None:
        return ""
    report = load_report(path.parent, str(path))
    settings = as_judged(report, Settings(runs=runs))
    again = rejudge(report, settings, [suite])
    checks = [verdict for verdict in again.verdicts if verdict.key == key]
    if not found.explains(report.records[key], checks):
        return ""
    found.save(path.parent)
    return ", ".join(map(near, reports_again(report, settings, again)))
