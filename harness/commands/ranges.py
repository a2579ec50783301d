"""`parity ranges`: what float16 would lose, before it is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import STORE, SUITE, print_lines
from harness.core.text import Line, count, operator

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.measure.float16 import Loss

_SHOWN = 20


@click.command()
@click.argument("components", nargs=-1)
@SUITE
@STORE
def ranges(*, components: tuple[str, ...], suite: Path, store: str) -> int:
    """Say what float16 would lose of COMPONENTS, all when left out, and a block list.

    Reads the float32 reference; no float16 is run. Exit code 1 if anything overflows.
    """
    from harness.commands.explain.losses import losses_of
    from harness.core.case import Case
    from harness.engine.engine import Engine
    from harness.engine.run import open_store
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    cases: dict[str, Case] = {}
    for case in loaded.select(components):
        if isinstance(case, Case):
            most = cases.setdefault(case.subject, case)
            if len(case.samples) > len(most.samples):
                cases[case.subject] = case
    overflows = False
    with Engine(open_store(store), loaded.limits) as engine:
        for name, case in cases.items():
            losses = losses_of(engine, case)
            print_lines(_lines(name, len(case.samples), losses))
            overflows = overflows or any(loss.overflows for loss in losses)
    return int(overflows)


def _lines(name: str, samples: int, losses: Sequence[Loss]) -> Iterator[Line]:
    if not losses:
        text = f" ✓ {name}   float16 holds every value of {count(samples, 'sample')}"
        yield Line(text=text)
        return
    bad = [loss for loss in losses if loss.overflows]
    mark = "✗" if bad else "!"
    text = f" {mark} {name}   {count(len(bad), 'value')} overflow in float16, "
    text += f"{len(losses) - len(bad)} at risk"
    yield Line(text=text, tone="bad" if bad else "")
    for loss in losses[:_SHOWN]:
        probe = loss.probe
        place = f"{probe.module or probe.name} ({operator(probe.op)})"
        yield Line(text=f"     {place}   {loss.reason}")
    if len(losses) > _SHOWN:
        yield Line(text=f"     and {len(losses) - _SHOWN} more")
    from harness.measure.float16 import kept_values

    names = ",".join(kept_values(losses))
    yield Line(text="     parity.toml   [variant.onnxruntime.fp16-mended]")
    yield Line(text='                   from = "fp16"')
    yield Line(text=f'                   flags = ["--keep={names}"]')
