"""`parity ranges`: find what float16 would lose, without a float16 run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.options import STORE, SUITE
from harness.core.errors import SuiteError
from harness.core.shown import print_lines
from harness.core.text import Line, count, operator

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.engine.engine import Engine
    from harness.measure.float16 import Loss

_SHOWN = 20


@click.command()
@click.argument("components", nargs=-1)
@SUITE
@STORE
def ranges(*, components: tuple[str, ...], suite: Path, store: str) -> int:
    """Show what float16 would lose in COMPONENTS, and a block list. Default: all.

    The command reads the float32 reference, or runs the file in float32 where the
    reference has modules only. It runs no float16. The exit code is 1 if a value
    overflows.
    """
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
    if not cases:
        msg = (
            f"{' '.join(components)} means pipelines alone; name components, whose "
            "values are looked at."
        )
        raise SuiteError(msg)
    overflows = False
    with Engine(open_store(store), loaded.limits) as engine:
        for name, case in cases.items():
            losses = losses_of(engine, case)
            print_lines(_lines(name, len(case.samples), losses))
            overflows = overflows or any(loss.overflows for loss in losses)
    return int(overflows)


def losses_of(engine: Engine, case: Case) -> list[Loss]:
    """Return each value that float16 would lose once, in order of execution.

    Raises:
        ParityError: A stage ended without an answer.

    """
    from harness.core.probes import load_probes
    from harness.core.runtime import onnx_runtime
    from harness.engine.export_files import MODEL
    from harness.measure.float16 import scan
    from harness.measure.trace import open_trace

    losses: dict[str, Loss] = {}
    for path, readings in engine.references(case):
        probes, file = load_probes(path), path.parent / MODEL
        read = [reading for reading in readings if reading.layers]
        # The reference has the values of modules, and not what is between or in them.
        of_modules = all(probe.is_module for probe in probes)
        if of_modules and file.is_file() and onnx_runtime().is_installed:
            found = engine.losses(case, file, read)
        else:
            found = scan(probes, (open_trace(r.reference.path) for r in read))
        for loss in found:
            losses.setdefault(loss.probe.name, loss)
    return list(losses.values())


def _lines(name: str, samples: int, losses: Sequence[Loss]) -> Iterator[Line]:
    if not losses:
        text = f" ✓ {name}   float16 holds every value of {count(samples, 'sample')}"
        yield Line(text=text)
        return
    bad = [loss for loss in losses if loss.overflows]
    mark = "✗" if bad else "!"
    overflow = "overflows" if len(bad) == 1 else "overflow"
    text = f" {mark} {name}   {count(len(bad), 'value')} {overflow} in float16, "
    text += f"{len(losses) - len(bad)} at risk"
    yield Line(text=text, tone="bad" if bad else "")
    for loss in losses[:_SHOWN]:
        probe = loss.probe
        place = f"{probe.module or probe.name} ({operator(probe.op)})"
        yield Line(text=f"     {place}   {loss.reason}")
    if len(losses) > _SHOWN:
        yield Line(text=f"     and {len(losses) - _SHOWN} more")
    from harness.core.runtime import runtimes
    from harness.core.toml_file import dotted
    from harness.measure.float16 import kept_values

    names = ",".join(kept_values(losses))
    # Only such variants compute in float16 and may keep single values in float32.
    half = [
        (one, kind)
        for one in runtimes().values()
        for kind, built_in in one.variants.items()
        if one.keep and built_in.half
    ]
    for one, kind in half:
        own = dotted(("variant", one.name, f"{kind}-{name}"))
        yield Line(text=f"     parity.toml   [{own}]")
        yield Line(text=f'                   from = "{kind}"')
        yield Line(text=f'                   components = ["{name}"]')
        yield Line(text=f'                   flags = ["{one.keep}{names}"]')
