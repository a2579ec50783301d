"""A case's errors rolled up by module: block, sub-block, operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.core.record import ISOLATED, LAYERS, CaseRecord
from harness.core.text import Line, count, number_of_floors, operator
from harness.judge.case import CaseVerdict, JudgedRow, floors_of


@dataclass(slots=True)
class Module:
    """What lies under one module path.

    Attributes:
        name: Its last part; empty for the whole component.
        values: Compared in it, all of its parts included.
        out: Of these, out of tolerance.
        floors: Largest error as it ran, in noise floors.
        own: Largest error that one of its operators brings by itself; NaN where
            that was not measured.
        worst: The operator with the largest error, or with the largest of its own.
        parts: By name, in order of execution.

    """

    name: str = ""
    values: int = 0
    out: int = 0
    floors: float = 0.0
    own: float = math.nan
    worst: str = ""
    parts: dict[str, Module] = field(default_factory=dict)


def rolled_up(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> Module:
    """Return a component's modules with what their values measured."""
    origins = {judged.row.probe for verdict in verdicts for judged in verdict.origins}
    alone = {
        row.probe: floors_of(row, passed=row.probe not in origins)
        for row in record.rows
        if row.what == ISOLATED
    }
    whole = Module()
    for verdict in verdicts:
        if verdict.what == LAYERS:
            for judged in sorted(verdict.rows, key=lambda j: j.row.position):
                _add(whole, judged, alone.get(judged.row.probe, math.nan))
    return whole


def _add(whole: Module, judged: JudgedRow, own: float) -> None:
    floors = judged.floors
    at, path = whole, judged.row.module.split(".") if judged.row.module else []
    for name in ("", *path):
        if name:
            at = at.parts.setdefault(name, Module(name=name))
        at.values += 1
        at.out += not judged.verdict.passed
        alone = own > at.own or (math.isnan(at.own) and not math.isnan(own))
        if alone or (math.isnan(at.own) and floors >= at.floors):
            at.worst = operator(judged.row.op)
        at.own = own if alone else at.own
        at.floors = max(at.floors, floors)


def module_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], depth: int
) -> Iterator[Line]:
    """Yield the modules down to a depth, and deeper where one parts by itself.

    Args:
        record: Of the case.
        verdicts: Of its checks.
        depth: Parts of a path to go down to everywhere.

    """
    whole = rolled_up(record, verdicts)
    values = count(whole.values, "value")
    yield Line(
        text=f"{record.case}: {values} by module, {whole.out:,} out of tolerance"
    )
    head = f"{'floors':>10} {'own':>10} {'out':>5} {'values':>6}   module"
    yield Line(text=head, tone="quiet")
    yield from _branch(whole, 0, depth)


def _branch(module: Module, level: int, depth: int) -> Iterator[Line]:
    if level:
        own = "-" if math.isnan(module.own) else number_of_floors(module.own)
        name = f"{'  ' * (level - 1)}{module.name}"
        leaf = "" if module.parts else f"  {module.worst}"
        text = f"{number_of_floors(module.floors):>10} {own:>10} {module.out:>5} "
        yield Line(
            text=f"{text}{module.values:>6}   {name}{leaf}",
            tone="bad" if module.out else "",
        )
    if level < depth or module.out:
        for part in module.parts.values():
            if level < depth or part.out:
                yield from _branch(part, level + 1, depth)
