"""The values of one case: in order of execution, by module, and as node data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from harness.core.outcome import Outcome
from harness.core.plugins import answers, sentences
from harness.core.record import ISOLATED, LAYERS, CaseRecord, coverage_share
from harness.core.table import Column, ReportTable
from harness.core.text import (
    FLOORS,
    Line,
    count,
    curve,
    few,
    height,
    in_floors,
    largest,
    operator,
    wrapped,
)
from harness.judge.case import CaseVerdict
from harness.judge.reference import has_pytorch
from harness.judge.value import JudgedRow, floors_of
from harness.report.tables import error_columns, place_cell, worst_rows

_COLOURS = ((0.5, "#b7e1c0"), (1.0, "#ffe08a"), (math.inf, "#f2a29b"))
"""Shares of the tolerance that a value uses, each with a node's colour up to it."""


def layer_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], *, sample: str = ""
) -> Iterator[Line]:
    """Yield a case's values: of one sample, or the worst of all if none is named."""
    ordered = worst_rows(verdicts, sample)
    if not ordered:
        why = record.failure.message if record.failure else "its record has none"
        yield Line(text=f"{record.case}: no values were compared: {why}", tone="bad")
        return
    out = sum(not judged.verdict.passed for judged in ordered)
    result = f"{out:,} out of tolerance" if out else "all within tolerance"
    if others := sum(bool(judged.another) for judged in ordered):
        result += f" but {count(others, 'other value')}"
    values = f"{count(len(ordered), 'value')} in order of execution"
    tone = "bad" if out else "good"
    yield Line(text=f"{record.case}: {values}, {result}", tone=tone)
    if record.node:
        yield Line(text=f"  ran on {record.node}", tone="quiet")
    for note in case_notes(record, verdicts):
        yield replace(note, lead="  ")
    errors = [judged.floors for judged in ordered]
    top = largest(errors)
    if record.pipeline:
        yield from chain.from_iterable(answers("lines", record))
    else:
        which = f"sample {sample}" if sample else "worst of all samples"
        scale = f", log scale from 1 to {in_floors(top)}"
        yield Line(text=f"  {curve(errors)}")
        scale = scale if has_pytorch(record) else ""  # nothing else has noise floors
        yield Line(text=f"  {which}{scale}", tone="quiet")
    if record.observer_max_abs:
        change = max(record.observer_max_abs.values())
        yield Line(
            text=f"  watching changed the outputs by at most {change:.3e}", tone="quiet"
        )
    for text in sentences("notes", record):
        yield from wrapped(text, indent="  ", tone="quiet")
    marks = [judged.verdict.outcome.value for judged in ordered]
    bars = ["▪" * height(error, top) for error in errors]
    places = [place_cell(judged) for judged in ordered]
    yield from ReportTable(
        columns=(
            *error_columns([(record, judged) for judged in ordered]),
            Column("", marks, "mark"),
            Column("", bars),
            Column("where", places, "place"),
        ),
        tones=["" if judged.verdict.passed else "bad" for judged in ordered],
    ).lines()


def samples_of(verdicts: Sequence[CaseVerdict]) -> tuple[str, ...]:
    """Return every sample that was compared, in order."""
    return tuple(
        dict.fromkeys(j.row.sample for verdict in verdicts for j in verdict.rows)
    )


def case_notes(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> Iterator[Line]:
    """Yield what no row of a value shows: gaps, missing values, own errors, bits."""
    for verdict in verdicts:
        by_rows = verdict.first is not None and verdict.outcome is verdict.found
        if verdict.outcome is not Outcome.WITHIN and not by_rows:
            text = f"{verdict.what}: {verdict.outcome}: {verdict.reason}"
            tone = "quiet" if verdict.outcome.passed else "bad"
            yield from wrapped(text, indent="", tone=tone)
    notes = [f"{verdict.what} {verdict.own}" for verdict in verdicts if verdict.own]
    missing = (record.coverage or {}).get("missing", ())
    if missing and coverage_share(record) < 1.0:
        notes.append(f"not compared: {few(list(missing), 6)}")
    made = (record.artifacts or {}).get(record.backend, {}).get("meta", {})
    if bits := made.get("bits"):
        layers = (f"{count(bits[each], 'layer')} in {each} bits" for each in bits)
        notes.append(f"the deployed file stores the weights of {', '.join(layers)}")
    for text in notes:
        yield from wrapped(text, indent="", tone="quiet")


def node_data(verdicts: Sequence[CaseVerdict]) -> dict[str, Any]:
    """Return each value's error in noise floors as node data for Model Explorer.

    Model Explorer finds a node by its id, or by the name of a tensor that it makes.
    Both are the names of PyTorch's program: they are the ids of an exported program,
    and the dynamo exporter gives them to nearly all of its tensors. Colours go by how
    much of its tolerance a value uses: up to half, up to all of it, more. A value
    without a number is given one above all others.
    """
    rows = worst_rows(verdicts)
    floors = [judged.row.comparison.floor_multiple for judged in rows]
    finite = [value for value in floors if value is not None and math.isfinite(value)]
    beyond = 10.0 * max([1.0, *finite])
    results = {}
    for judged, value in zip(rows, floors, strict=True):
        known = value is not None and math.isfinite(value)
        usage = judged.verdict.usage if judged.verdict.passed else math.inf
        results[judged.row.probe] = {
            "value": value if known else beyond,
            "bgColor": next(colour for most, colour in _COLOURS if usage <= most),
            "textColor": "#1b2027",
        }
    return {"results": results}


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
    """Yield the modules whose paths have up to `depth` parts.

    Where a value is out of tolerance, deeper modules follow.
    """
    whole = rolled_up(record, verdicts)
    values = count(whole.values, "value")
    yield Line(
        text=f"{record.case}: {values} by module, {whole.out:,} out of tolerance"
    )
    yield Line(text=f"  floors: {FLOORS}", tone="quiet")
    shown = list(_branch(whole, 0, depth))
    modules = [module for module, _ in shown]
    yield from ReportTable(
        columns=(
            Column("floors", [one.floors for one in modules], "number"),
            Column(
                "local",
                [None if math.isnan(one.local) else one.local for one in modules],
                "number",
            ),
            Column("out", [one.out for one in modules], "number"),
            Column("values", [one.values for one in modules], "number"),
            Column("module", [place for _, place in shown], "place"),
        ),
        tones=["bad" if one.out else "" for one in modules],
    ).lines()


def _branch(
    module: Module, level: int, depth: int
) -> Iterator[tuple[Module, tuple[str, str]]]:
    """Yield the modules to show, each with its name and the operator of a leaf."""
    if level:
        name = f"{'  ' * (level - 1)}{module.name}"
        yield module, (name, "" if module.parts else module.worst)
    if level < depth or module.out:
        for part in module.parts.values():
            if level < depth or part.out:
                yield from _branch(part, level + 1, depth)
