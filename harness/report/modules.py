"""A case's errors summed up by module: block, sub-block, operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.core.record import ISOLATED, LAYERS, CaseRecord
from harness.core.text import FLOORS, Line, count, number_of_floors, operator
from harness.judge.case import CaseVerdict
from harness.judge.value import JudgedRow, floors_of


@dataclass(slots=True)
class Module:
    """The errors under one module path.

    Attributes:
        name: Last part of the path; empty for the whole component.
        values: Number of values compared in the module and in its parts.
        out: Number of these values that are out of tolerance.
        floors: Largest error as the file ran, in noise floors.
        local: Largest error of an operator on PyTorch's own inputs, in noise floors;
            NaN where that was not measured.
        worst: The operator with the largest local error, or if none was measured, with
            the largest error.
        parts: The module's parts by name, in order of execution.

    """

    name: str = ""
    values: int = 0
    out: int = 0
    floors: float = 0.0
    local: float = math.nan
    worst: str = ""
    parts: dict[str, Module] = field(default_factory=dict)


def rolled_up(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> Module:
    """Return a component's modules with the errors of their values."""
    origins = {judged.row.probe for verdict in verdicts for judged in verdict.origins}
    local = {
        row.probe: floors_of(row, passed=row.probe not in origins)
        for row in record.rows
        if row.what == ISOLATED
    }
    whole = Module()
    for verdict in verdicts:
        if verdict.what == LAYERS:
            for judged in sorted(verdict.rows, key=lambda j: j.row.position):
                _add(whole, judged, local.get(judged.row.probe, math.nan))
    return whole


def _add(whole: Module, judged: JudgedRow, local: float) -> None:
    floors = judged.floors
    at, path = whole, judged.row.module.split(".") if judged.row.module else []
    for name in ("", *path):
        if name:
            at = at.parts.setdefault(name, Module(name=name))
        at.values += 1
        at.out += not judged.verdict.passed
        larger = local > at.local or (math.isnan(at.local) and not math.isnan(local))
        if larger or (math.isnan(at.local) and floors >= at.floors):
            at.worst = operator(judged.row.op)
        at.local = local if larger else at.local
        at.floors = max(at.floors, floors)


def module_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], depth: int
) -> Iterator[Line]:
    """Yield the modules down to a depth, and deeper where a value is out of tolerance.

    Args:
        record: The case.
        verdicts: Verdicts of its checks.
        depth: Number of parts of a path down to which every module is shown.

    """
    whole = rolled_up(record, verdicts)
    values = count(whole.values, "value")
    yield Line(
        text=f"{record.case}: {values} by module, {whole.out:,} out of tolerance"
    )
    yield Line(text=f"  floors: {FLOORS}", tone="quiet")
    head = f"{'floors':>10} {'local':>10} {'out':>5} {'values':>6}   module"
    yield Line(text=head, tone="quiet")
    yield from _branch(whole, 0, depth)


def _branch(module: Module, level: int, depth: int) -> Iterator[Line]:
    if level:
        local = "-" if math.isnan(module.local) else number_of_floors(module.local)
        name = f"{'  ' * (level - 1)}{module.name}"
        leaf = "" if module.parts else f"  {module.worst}"
        text = f"{number_of_floors(module.floors):>10} {local:>10} {module.out:>5} "
        yield Line(
            text=f"{text}{module.values:>6}   {name}{leaf}",
            tone="bad" if module.out else "",
        )
    if level < depth or module.out:
        for part in module.parts.values():
            if level < depth or part.out:
                yield from _branch(part, level + 1, depth)
