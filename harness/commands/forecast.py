"""What `parity run --forecast` prints: the memory of each stage, before any starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.makers import Makers
    from harness.spec import Case
    from harness.suite import Suite, Tested

_STAGES = 3


def print_forecast(suite: Suite, chosen: Sequence[Tested], store: str) -> None:
    """Print what each stage of each case takes if the store has nothing yet."""
    from harness.makers import Makers
    from harness.room import GIB, available_bytes
    from harness.runner import open_store
    from harness.spec import Case
    from harness.workshop import Workshop

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
            if isinstance(case, Case):
                click.echo(_line(case, _needs(makers, case), there))
            else:
                click.echo(f"{case.id:<42} no forecast: it lets networks go as it must")
    finally:
        workshop.close()


def _needs(makers: Makers, case: Case) -> Iterator[int | None]:
    """Yield bytes of each stage: 0 for one that there is not, None where unknown."""
    from harness.makers import is_made

    yield _bytes(makers, case, "torch")
    yield _bytes(makers, case, f"convert-{case.backend}") if is_made(case) else 0
    yield _bytes(makers, case, case.backend)


def _bytes(makers: Makers, case: Case, host: str) -> int | None:
    need = makers.need(case, host, case.samples)
    return need.size_bytes if need else None


def _line(case: Case, needs: Iterable[int | None], there: int) -> str:
    from harness.room import GIB

    known = [need for need in needs if need is not None]
    if len(known) < _STAGES:
        return f"{case.id:<42} not known: the recipe's weights cannot be counted ahead"
    listed = " ".join(f"{need / GIB:6.1f}" if need else f"{'-':>6}" for need in known)
    return f"{case.id:<42}{listed}{'' if max(known) <= there else '   does not fit'}"
