"""The commands `parity card` and `parity verify`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.commands.options import (
    JUDGED_BY,
    RUNS,
    STORE,
    HomePath,
    loaded_suites,
    new_folder,
)
from harness.commands.progress import step_line
from harness.core.errors import SuiteError
from harness.core.shown import echo
from harness.core.text import count


@click.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.option(
    "--out",
    type=HomePath(path_type=Path),
    default=Path("card"),
    show_default=True,
    help="Folder to write.",
)
@RUNS
@JUDGED_BY
@STORE
def card(
    *, run_name: str, out: Path, runs: str, suites: tuple[Path, ...], store: str
) -> int:
    """Write a card of RUN: what was compared, the numbers, and how to check them."""
    from harness.core.settings import Settings
    from harness.engine.engine import Engine
    from harness.engine.finished_run import load_report
    from harness.engine.run import open_store
    from harness.plugins.card.make import must_not_ship, write_card
    from harness.report.rejudge import facts_of, rejudge
    from harness.report.suites import all_suites_for, as_judged

    report = load_report(Path(runs), run_name)
    if len(report.suites) != 1:
        msg = f"run {report.id} is of {len(report.suites)} suites; a card is of one."
        raise SuiteError(msg)
    (suite,) = all_suites_for(report, loaded_suites(suites))
    say = step_line()
    with new_folder(out) as folder, Engine(open_store(store), suite.limits) as engine:
        again = rejudge(report, as_judged(report, Settings(runs=runs)), [suite])
        made, _ = write_card(facts_of(report, again), suite, engine, folder, say)
    say("")
    size = sum(file.stat().st_size for file in out.iterdir()) / 1e6
    checkable = sum(bool(case.files) for case in made.cases)
    echo(
        f"wrote {out} ({size:.1f} MB): {len(made.cases)} cases, {checkable} of them "
        "can be checked elsewhere"
    )
    if bad := must_not_ship(made):
        echo(f"      {bad} The card says so at its top.")
    quoted = shlex.quote(str(out))
    echo(f"next  put {out / 'card.md'} into the model card")
    echo(f"      parity verify {quoted} FOLDER   checks the files of a folder")
    return 0


@click.command()
@click.argument("card_path", metavar="CARD", type=HomePath(path_type=Path))
@click.argument("folder", type=HomePath(path_type=Path))
@click.argument("cases", metavar="[CASE]...", nargs=-1)
def verify(*, card_path: Path, folder: Path, cases: tuple[str, ...]) -> int:
    """Check CARD with the deployed files in FOLDER: same files, outputs within bounds.

    CASE is an id, or its beginning: unet/mnn. Without one, FOLDER must have the files
    of every case.

    Exit codes: 0 yes, 1 no, 2 could not tell, such as where no runtime is installed.
    """
    from harness.plugins.card import verify as check
    from harness.plugins.card.form import load_card

    card, arrays = load_card(card_path)
    chosen = check.chosen(card, cases)
    width = max((len(case.case) for case in chosen), default=0)
    answers = dict.fromkeys((check.YES, check.NO, check.SKIPPED, check.LISTED), 0)
    say = step_line()
    for one in check.verify(chosen, arrays, folder, say):
        say("")
        answers[one.answer] += 1
        if one.answer != check.LISTED:
            echo(f"  {one.answer:<7} {one.case:<{width}}  {one.words}")
    checked = answers[check.YES] + answers[check.NO]
    if listed := answers[check.LISTED]:
        echo(f"the card alone speaks for {count(listed, 'other case')}: see card.md")
    if answers[check.NO]:
        echo(f"no: {answers[check.NO]} of {checked} are not as the card says")
        return 1
    if not checked:
        echo("cannot say: no case was checked")
        return 2
    skipped = answers[check.SKIPPED]
    rest = f"; {count(skipped, 'case')} did not run here" if skipped else ""
    echo(
        f"yes: {count(checked, 'case')} with the files of the card and outputs within "
        f"its bounds{rest}"
    )
    return 0
