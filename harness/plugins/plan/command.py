"""The command `parity plan`: bits for each layer, within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import STORE, SUITE, given_again, into_folder, number
from harness.commands.progress import shown_engine
from harness.core.errors import SpecError, SuiteError
from harness.core.shown import echo, print_lines

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.engine.engine import Engine
    from harness.judge.tolerance import Tolerance
    from harness.plugins.bench.rounds import Bench
    from harness.suite.suite import Suite

_WORDS = ("outputs", "latents", "image")


@click.command()
@click.argument("component")
@click.option(
    "--within",
    metavar="BOUND",
    help="The bound: outputs, latents or image, as the suite states it for the variant "
    "that the plan starts from; or sqnr_db=45 for outputs, psnr_db=35,ssim=0.97 for "
    "pictures.",
)
@click.option(
    "--objective",
    type=click.Choice(["size", "time"]),
    default="size",
    show_default=True,
    help="What to make small: the file, or the time of a run on this machine.",
)
@click.option(
    "--backend", default="", help="The runtime; else that with the most precisions."
)
@click.option("--pipeline", default="", help="The pipeline of latents and image.")
@click.option(
    "--name", default="planned", show_default=True, help="The variant to write."
)
@number(
    "--unseen",
    8,
    "Inputs that are drawn for the last check, beside the rest of the suite's.",
)
@click.option("--explain", "layer", default="", help="Say why LAYER has its bits.")
@into_folder("reports/plans", "Where plans are recorded.")
@SUITE
@STORE
def plan(
    *,
    component: str,
    within: str | None,
    objective: str,
    backend: str,
    pipeline: str,
    name: str,
    unseen: int,
    layer: str,
    into: Path,
    suite: Path,
    store: str,
) -> int:
    """Give each layer of COMPONENT as few bits as a bound allows, and write a variant.

    Each layer is rounded alone in PyTorch, as the runtime would round it. An integer
    program chooses the bits; the file is converted, run, and tightened until it holds,
    also on inputs that the search never saw. The variant is written into parity.toml.
    """
    from harness.plugins.plan.keep import (
        layer_of,
        load_record,
        record_of,
        save_record,
        write,
    )
    from harness.plugins.plan.place import place_of
    from harness.plugins.plan.run import Planner
    from harness.plugins.plan.screen import layer_lines, plan_lines, written_lines
    from harness.suite.suite import load_suite

    if layer:
        known = load_record(into, f"{component}-{name}", backend)
        print_lines(layer_lines(known, layer_of(known, layer)))
        return 0
    if not within:
        msg = f"give a bound: parity plan {component} --within outputs."
        raise SpecError(msg)
    loaded = load_suite(suite)
    what, bound = bound_of(within)
    backend = _runtime(loaded, component, backend)
    _refuse_taken(loaded, component, backend, name)
    file = f"{component}-{name}.json"
    record = into / backend / file
    bench: Bench | None = None
    with shown_engine(loaded, store) as engine:
        place = place_of(
            loaded,
            engine,
            component,
            backend,
            what=what,
            pipeline=pipeline,
            bound=bound,
        )
        if objective == "time":
            bench = _bench(engine, loaded, place.case)
        found = Planner(place, _say, bench).plan(name, file, unseen)
    plan = record_of(found, within)
    print_lines(plan_lines(plan, found.times))
    paths = write(loaded, found, file)
    records = save_record(plan, record)
    again = f"parity run {component}/{backend}/{name}{given_again('suite', 'store')}"
    print_lines(written_lines((*paths, *records), again))
    return 0


def bound_of(text: str) -> tuple[str, Tolerance | None]:
    """Return the check that a bound is for, and the bound if it is not the suite's.

    >>> bound_of("latents")
    ('latents', None)
    >>> bound_of("sqnr_db=45")[0], bound_of("psnr_db=35")[0]
    ('outputs', 'image')

    Raises:
        SpecError: It is no such word, and no bound of outputs or of pictures.

    """
    from harness.judge.tolerance import OF_PICTURES, Tolerance, parse_changes

    if text in _WORDS:
        return text, None
    if "=" not in text:
        msg = (
            f"--within takes {', '.join(_WORDS)} or bounds such as sqnr_db=45 of "
            f"outputs and psnr_db=35,ssim=0.97 of pictures, got {text!r}."
        )
        raise SpecError(msg)
    stated = parse_changes(text.split(","))
    others = [one for one in stated if one not in OF_PICTURES]
    if others and len(others) < len(stated):
        msg = (
            f"{' and '.join(OF_PICTURES)} bound pictures, and {others[0]} bounds "
            "outputs; --within takes one of the two."
        )
        raise SpecError(msg)
    return "outputs" if others else "image", Tolerance(**stated)


def _say(step: str) -> None:
    echo(f"  {step}", err=True)


def _bench(engine: Engine, suite: Suite, case: Case) -> Bench:
    """Return what times files; say that a target is not timed."""
    from harness.core.text import few
    from harness.plugins.bench.rounds import Bench

    if case.device.device != "cpu":
        msg = (
            f"{case.id} runs on {case.device.device}, and times of single operators "
            "are measured on a processor alone; take --objective size."
        )
        raise SuiteError(msg)
    others = dict.fromkeys(
        target
        for one in suite.cases
        if (one.subject, one.backend) == (case.subject, case.backend)
        for target in one.targets
    )
    if others:
        _say(f"timed on this machine alone, and not on {few([*others])}")
    return Bench(engine.artifacts)


def _runtime(suite: Suite, component: str, backend: str) -> str:
    """Return the runtime of a plan: one that gives layers different precisions."""
    from harness.core.runtime import runtime
    from harness.core.toml_file import did_you_mean

    own = [case for case in suite.cases if case.subject == component]
    if not own:
        names = [one.name for one in suite.components]
        hint = did_you_mean(component, names)
        msg = f"{suite.path} has no component {component!r}; {hint}"
        raise SuiteError(msg)
    there = dict.fromkeys(case.backend for case in own)
    widths = {one: mixed.bits for one in there if (mixed := runtime(one).mixed)}
    able = sorted(widths, key=lambda one: -len(widths[one]))
    if backend and backend not in there:
        msg = f"{component} does not run in {backend!r}; {did_you_mean(backend, there)}"
        raise SuiteError(msg)
    wanted = backend or (able[0] if able else next(iter(there)))
    if wanted not in able:
        title = runtime(wanted).title
        hint = f"; take --backend {able[0]}" if able else ""
        msg = (
            f"{title} gives every layer of a file the same precision here, so there is "
            f"nothing to choose{hint}."
        )
        raise SuiteError(msg)
    return wanted


def _refuse_taken(suite: Suite, component: str, backend: str, name: str) -> None:
    """Refuse the name of a built-in variant, or of a variant of other components."""
    from harness.core.case import check_name
    from harness.core.runtime import runtime

    check_name("variant", name)

    others = {
        case.subject
        for case in suite.cases
        if case.backend == backend and case.variant.name == name
    } - {component}
    if name in runtime(backend).variants or others:
        whose = f"of {min(others)}" if others else "built in"
        msg = f"the variant {backend}/{name} is {whose}; give the plan another --name."
        raise SuiteError(msg)
