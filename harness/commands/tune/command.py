"""`parity tune`; what it does is in `harness.commands.tune.run`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.options import STORE, given_again, print_lines
from harness.core.errors import SpecError

_FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("components", nargs=-1)
@click.option(
    "--suite",
    type=_FOLDER,
    help="The suite, or the folder that it stands in; else parity.toml here.",
)
@STORE
@click.option(
    "--samples",
    default=200,
    show_default=True,
    type=click.IntRange(min=1),
    help="Independent draws of each family of inputs.",
)
@click.option(
    "--search",
    "searched",
    default=60,
    show_default=True,
    type=click.IntRange(min=0),
    help="Further draws of each, led by the worst found.",
)
@click.option(
    "--layers",
    default=59,
    show_default=True,
    type=click.IntRange(min=0),
    help="Draws of each whose layers are compared too.",
)
@click.option("--seed", default=0, show_default=True, help="Of all draws.")
@click.option(
    "--headroom",
    "factor",
    default=2.0,
    show_default=True,
    help="How many times the worst error a bound leaves room for.",
)
@click.option(
    "--headroom-db",
    "decibels",
    default=3.0,
    show_default=True,
    help="The same for signal to error ratios.",
)
@click.option("--mnn-convert", default="", help="A native MNNConvert to use.")
@click.option(
    "--from",
    "earlier",
    default="",
    metavar="TUNING",
    help="Propose from an earlier tuning's record; nothing is run.",
)
@click.option("--write", is_flag=True, help="Write what is shown.")
@click.option(
    "--allow-looser",
    is_flag=True,
    help="Also loosen, where too little headroom is left; needs --why.",
)
@click.option("--why", default="", help="The reason, written beside the bound.")
@click.option(
    "--check",
    "checked",
    default="",
    metavar="RUN",
    help="Say what in a run, or a tuning, has moved towards its limit; exit 1.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="Show tolerances, gaps and inputs of cases that left the suite taken out.",
)
@click.option(
    "--runs", default="reports/runs", show_default=True, help="Where runs are."
)
@click.option(
    "--into",
    default="reports/tuning",
    show_default=True,
    type=_FOLDER,
    help="Where tunings are recorded.",
)
def tune(  # one option each
    *,
    components: tuple[str, ...],
    suite: Path | None,
    store: str,
    samples: int,
    searched: int,
    layers: int,
    seed: int,
    factor: float,
    decibels: float,
    mnn_convert: str,
    earlier: str,
    write: bool,
    allow_looser: bool,
    why: str,
    checked: str,
    prune: bool,
    runs: str,
    into: Path,
) -> int:
    """Find the tolerances that a healthy build of COMPONENTS needs; all, if none.

    Each case runs over many inputs: the suite's own, independent draws, and a
    search for the worst. What it proposes is shown as a diff.
    """
    from harness.commands.tune import run
    from harness.commands.tune.extent import Headroom
    from harness.commands.tune.plan import Effort
    from harness.commands.tune.prune import prune as prune_files
    from harness.commands.tune.record import load_tuning
    from harness.commands.tune.tune import Asked
    from harness.suite.suite import load_suite

    if prune:
        if checked or earlier or components:
            msg = "--prune takes --suite and --write alone; nothing is tuned by it."
            raise SpecError(msg)
        again = f"parity tune --prune --write{given_again('suite')}"
        loaded = load_suite(suite or Path("parity.toml"))
        return prune_files(loaded, write=write, again=again, show=print_lines)
    headroom = Headroom(factor=factor, decibels=decibels)
    if checked:
        if earlier or write or components:
            msg = "--check takes a run or a tuning alone; nothing is tuned by it."
            raise SpecError(msg)
        return run.check(
            checked,
            Path(runs).expanduser(),
            into,
            moved_to=load_suite(suite) if suite else None,
            headroom=headroom,
            show=print_lines,
        )
    wanted = run.Wanted(
        headroom=headroom,
        allow_looser=allow_looser,
        why=why,
        write=write,
        options=given_again(
            *("components", "suite", "factor", "decibels", "allow_looser", "why"),
            "into",
        ),
    )
    if earlier:
        tuning = load_tuning(into, earlier)
        loaded = load_suite(suite or Path(tuning.suite))
        if components:
            tuning = run.only(tuning, loaded, components)
        return run.show_tuning(loaded, tuning, wanted, print_lines)
    effort = Effort(samples=samples, searched=searched, layers=layers, seed=seed)
    asked = Asked(effort=effort, store=store, mnn_convert=mnn_convert)
    loaded = load_suite(suite or Path("parity.toml"))
    tuning, failed = run.run_tuning(loaded, components, asked, into)
    return run.show_tuning(loaded, tuning, wanted, print_lines, failed)
