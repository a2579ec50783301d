"""What `parity run --forecast` prints: the memory of each stage, before any starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.core.memory import Need
    from harness.engine.artifacts import Makers
    from harness.suite.suite import Suite, Tested


def print_forecast(suite: Suite, chosen: Sequence[Tested], store: str) -> None:
    """Print what each stage of each case takes if the store has nothing yet."""
    from harness.core.memory import GIB, available_bytes
    from harness.engine.artifacts import Makers
    from harness.engine.run import open_store
    from harness.engine.worker_pool import Workshop

    workshop = Workshop.of(suite.limits)
    makers = Makers(open_store(store), workshop, None)
    limit = suite.limits.memory_gib
    there = available_bytes() if limit is None else int(limit * GIB)
    click.echo(
        f"{there / GIB:.1f} GiB {'available' if limit is None else 'allowed'}; GiB "
        f"forecast: export and reference, conversion, run"
    )
    try:
        for case in chosen:
            click.echo(_line(case, _stages(makers, case), there))
    finally:
        workshop.close()


def _stages(makers: Makers, case: Tested) -> list[list[Need | None]]:
    """Return what each stage needs: nothing where there is none, None where unknown."""
    from harness.core.pipeline import Chain
    from harness.engine.artifacts import is_made, reference_host
    from harness.engine.needs import chain_need, drawing_need

    if isinstance(case, Chain):
        cases = [seated for _, seated in case.seats if seated is not None]
        drawing = [drawing_need(case.pipeline, makers.weights)]
        run = chain_need(case, makers.weights)
    else:
        cases, drawing = [case], []
        run = makers.need(case, case.backend, case.samples)
    return [
        [*(makers.need(c, reference_host(c), c.samples) for c in cases), *drawing],
        [
            makers.need(c, f"convert-{c.backend}", c.samples)
            for c in cases
            if is_made(c)
        ],
        [run],
    ]


def _line(case: Tested, stages: Iterable[Sequence[Need | None]], there: int) -> str:
    from harness.core.memory import GIB

    largest, most = [], 0
    for needs in stages:
        known = [need for need in needs if need is not None]
        if len(known) < len(needs):
            return (
                f"{case.id:<42} not known: the recipe's weights cannot be counted ahead"
            )
        largest.append(max((need.size_bytes for need in known), default=0))
        most = max([most, *(need.most_bytes for need in known)])
    listed = " ".join(f"{need / GIB:6.1f}" if need else f"{'-':>6}" for need in largest)
    if max(largest) > there:
        return f"{case.id:<42}{listed}   does not fit"
    rest = f"{most / GIB:.1f}"
    if most < max(largest) or rest == f"{max(largest) / GIB:.1f}":
        return f"{case.id:<42}{listed}"
    return f"{case.id:<42}{listed}   up to {rest} where there is room"
