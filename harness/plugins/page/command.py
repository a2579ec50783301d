"""The command `parity report`: the page of a finished run, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.commands.options import (
    OF_FINISHED_RUN,
    loaded_suites,
    of_run,
    out_path,
)
from harness.core.shown import echo, print_lines


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@OF_FINISHED_RUN
@of_run("baseline", "Show what is different in this reviewed baseline, too.")
@out_path("Where to write it; beside the run's report.json when left out.")
def report(  # one option each
    *,
    run_name: str,
    suites: tuple[Path, ...],
    runs: str,
    out: Path | None,
    **words: Any,  # noqa: ANN401  # the settings that are plain text
) -> int:
    """Write the page of RUN again, judged by other tolerances if given."""
    from harness.core.settings import Settings, near
    from harness.core.whole_file import writing
    from harness.engine.finished_run import load_report
    from harness.plugins.page.page import PAGE, write_page
    from harness.report.rejudge import facts_again, rejudge
    from harness.report.suites import as_judged

    found = load_report(Path(runs), run_name)
    settings = as_judged(found, Settings(runs=runs, **words))
    given = loaded_suites(suites)
    again = rejudge(found, settings, given)
    if again.elsewhere:
        print_lines(again.notes)
    facts = facts_again(found, settings, again, given)
    path = out or facts.folder / PAGE
    with writing(path, "give another with --out" if out else "the run is as it was"):
        echo(near(write_page(facts, path)))
    return 0
