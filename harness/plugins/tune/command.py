"""The options of `parity tune`; `harness.plugins.tune.run` does the work."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from harness.commands.options import (
    MNN_CONVERT,
    STORE,
    HomePath,
    given_again,
    into_folder,
    number,
    on_cluster,
)
from harness.core.errors import SpecError
from harness.core.shown import print_lines


@click.command()
@click.argument("cases", nargs=-1)
@click.option(
    "--suite",
    type=HomePath(path_type=Path),
    help="The suite, or the folder that it stands in; else parity.toml here.",
)
@STORE
@number("--samples", 200, "Independent draws of each family of inputs.")
@number("--layers", 59, "Draws of each whose layers are compared too.", least=0)
@number("--seeds", 20, "Pairs of prompt and seed of each pipeline.")
@click.option("--seed", default=0, show_default=True, help="The seed of all draws.")
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
@MNN_CONVERT
@on_cluster("Tune")
@click.option(
    "--from",
    "earlier",
    default="",
    metavar="TUNING",
    help="Propose from an earlier tuning's run; nothing is run.",
)
@click.option("--write", is_flag=True, help="Write what is shown.")
@click.option(
    "--allow-looser",
    is_flag=True,
    help="Also loosen, where too little headroom is left; needs --why.",
)
@click.option("--why", default="", help="The reason, written beside the bound.")
@click.option(
    "--prune",
    is_flag=True,
    help="Show a diff without what is said of cases that left the suite.",
)
@into_folder("reports/tuning", "Where tunings are recorded.")
def tune(  # one option each
    *,
    cases: tuple[str, ...],
    suite: Path | None,
    store: str,
    samples: int,
    layers: int,
    seeds: int,
    seed: int,
    factor: float,
    decibels: float,
    mnn_convert: str,
    on: str,
    earlier: str,
    write: bool,
    allow_looser: bool,
    why: str,
    prune: bool,
    into: Path,
) -> int:
    """Find the tolerances that a healthy build of CASES needs. Default: all networks.

    CASES are named as in `parity run`: unet, mnn/int8 or "unet/*/fp32". Each case runs
    on many inputs: the suite's own inputs, and independent draws. A pipeline is tuned
    if it is named, on many pairs of prompt and seed. The proposed tolerances are shown
    as a diff.
    """
    from harness.core.settings import Settings
    from harness.plugins.tune import run
    from harness.plugins.tune.headroom import Headroom
    from harness.plugins.tune.many import Effort
    from harness.plugins.tune.prune import prune as prune_files
    from harness.plugins.tune.record import load_tuning
    from harness.suite.suite import load_suite

    if prune:
        if earlier or cases:
            msg = "--prune takes --suite and --write alone; nothing is tuned by it."
            raise SpecError(msg)
        again = f"parity tune --prune --write{given_again('suite')}"
        loaded = load_suite(suite or Path("parity.toml"))
        return prune_files(loaded, write=write, again=again, show=print_lines)
    headroom = Headroom(factor=factor, decibels=decibels)
    if allow_looser and not why.strip():
        msg = 'loosening needs its reason: --why "GroupNorm sums in another order".'
        raise SpecError(msg)
    if earlier:
        tuning = load_tuning(into, earlier)
        loaded = run.suite_of(tuning, suite)
    else:
        loaded = load_suite(suite or Path("parity.toml"))
        effort = Effort(samples=samples, layers=layers, seeds=seeds, seed=seed)
        settings = Settings(store=store, runs=str(into), mnn_convert=mnn_convert, on=on)
        tuning = run.run_tuning(loaded, cases, effort, settings)
    tuning = run.of_suite(tuning, loaded, cases)
    named = tuning.id if earlier in {"", "last"} else earlier
    options = given_again(
        *("cases", "suite", "factor", "decibels", "allow_looser", "why"), "into"
    )
    run.show_tuning(
        loaded,
        tuning,
        headroom,
        why=why,
        allow_looser=allow_looser,
        write=write,
        again=f"parity tune --from {shlex.quote(named)} --write{options}",
    )
    return 2 if tuning.failed and not earlier else 0
