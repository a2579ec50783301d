"""What `parity run --forecast` prints: the memory of each stage, before any starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.makers import Makers
    from harness.spec import Case
    from harness.suite import Suite, Tested


def print_forecast(suite: Suite, chosen: Sequence[Tested], store: str) -> None:
    """Print what each stage of each case takes if the store has nothing yet."""
    from harness.makers import Makers
    from harness.room import GIB, available_bytes
    from harness.runner import open_store
    from harness.spec import Case
    from harness.workshop import Workshop

    workshop = Workshop(suite.limits.timeout_s)
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
                click.echo(_line(case, list(_needs(makers, case)), there))
            else:
                click.echo(f"{case.id:<42} no forecast: it lets networks go as it must")
    finally:
        workshop.close()


def _needs(makers: Makers, case: Case) -> Iterator[int]:
    for host in ("torch", f"convert-{case.backend}", case.backend):
        need = makers.need(case, host, case.samples)
        yield need.size_bytes if need else 0


def _line(case: Case, needs: Sequence[int], there: int) -> str:
    from harness.room import GIB

    if not all(needs):
        return f"{case.id:<42} not known: the recipe's weights cannot be counted ahead"
    listed = " ".join(f"{need / GIB:6.1f}" for need in needs)
    return f"{case.id:<42}{listed}{'' if max(needs) <= there else '   does not fit'}"
