"""Where a case first diverges, or why that is not known; for every kind of report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from harness.core.end_to_end import LATENTS, app_causes
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, WHATS, CaseRecord, Row
from harness.core.text import INDENT, WIDTH, count, cut, few, in_floors, operator
from harness.judge.case import CaseVerdict
from harness.judge.value import JudgedRow
from harness.measure.patterns import RIGHT
from harness.report.run_facts import BAD, RunFacts

ON_THE_WAY = (LAYERS, LATENTS)
"""Checks that find where a case first diverges; others only find that it diverges."""

_LOG_LINES = 3


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where a case first diverges, or why that is not known.

    Attributes:
        also: Names of other cases that failed with the same message.
        outcome: How the case ended, where no place is known.
        place: Module or value of the first divergence; empty where none is known.
        op: Operator there; empty for an output of the component.
        lead: How the place is introduced: ``at``, or ``between q, k, v (agree) and``.
        facts: Groups of short facts, the most important first.
        log: Last lines that a library wrote before a failure.

    """

    record: CaseRecord
    checks: Sequence[CaseVerdict]
    case: str
    also: Sequence[str] = ()
    outcome: str = ""
    place: str = ""
    op: str = ""
    lead: str = "at"
    source: str = ""
    facts: Sequence[Sequence[str]]
    log: Sequence[str] = ()

    @property
    def can_be_explained(self) -> bool:
        """Whether `parity explain` takes this case, and may find more than it says."""
        is_told = any(check.found is Outcome.NO_EFFECT for check in self.checks)
        failing = {one.found for one in self.checks if not one.outcome.passed}
        is_told |= failing == {Outcome.CHECK} or self.record.is_traced
        return self.checks[0].what in WHATS and not is_told


def divergences(facts: RunFacts) -> list[Divergence]:
    """Return a run's failures, the clearest first; equal messages are joined."""
    bad = [record for record in facts.requested if facts.state(record) == BAD]
    together: dict[str, Divergence] = {}
    for record in sorted(bad, key=lambda one: _clearness(one, facts.checks[one.key])):
        case = facts.names[record.key]
        message = record.failure.message if record.failure else ""
        same = message.replace(record.case, "") or case
        if first := together.get(same):
            together[same] = replace(first, also=(*first.also, case))
        else:
            together[same] = _divergence(record, facts.checks[record.key], case)
    return list(together.values())


def _clearness(
    record: CaseRecord, checks: Sequence[CaseVerdict]
) -> tuple[bool, bool, bool, float]:
    """Return a sort key: measured, located, full precision, then large errors first."""
    shown = _located_by(checks)
    usage = shown.first.verdict.usage if shown and shown.first else 0.0
    return (
        not all(check.found.measured for check in checks),
        shown is None or shown.what not in ON_THE_WAY,
        record.variant != "fp32",
        -usage,
    )


def _located_by(checks: Iterable[CaseVerdict]) -> CaseVerdict | None:
    """Return the failed check that locates the divergence, preferably by layers."""
    failed = [c for c in checks if c.first is not None and not c.outcome.passed]
    return min(failed, key=lambda check: check.what not in ON_THE_WAY, default=None)


def _divergence(
    record: CaseRecord, checks: Sequence[CaseVerdict], case: str
) -> Divergence:
    found = partial(Divergence, record=record, checks=checks, case=case)
    failure, shown = record.failure, _located_by(checks)
    # Reasons that no row gives: too little compared, nothing compared, a stale gap.
    rest = [
        check
        for check in checks
        if check.outcome is Outcome.STALE_GAP
        or not (check.outcome.passed or failure or check.first)
    ]
    graph = [check.reason for check in checks if check.outcome.of_graph and shown]
    reasons = [
        (f"{check.what}: {check.reason}",)
        for check in rest
        if not (shown and check.outcome.of_graph)
    ]
    if failure is not None:
        # If something was measured, a library's log does not give the reason.
        log = "" if Outcome(failure.outcome).measured else failure.log
        return found(
            outcome=failure.outcome,
            facts=((failure.message,), *reasons),
            log=_last_lines(log, failure.message),
        )
    if shown is None or shown.first is None:
        outcome = ", ".join(f"{check.what}: {check.outcome}" for check in rest)
        return found(outcome=outcome, facts=reasons)
    first = shown.first
    row = first.row
    pictures = [(check.picture,) for check in checks]
    # A setting of the app explains every number that follows it.
    of_app = pictures if app_causes(record) else []
    groups: list[Sequence[str]] = [
        *of_app,
        *((reason,) for reason in graph),
        tuple(filter(None, _error_facts(shown, first, checks))),
        tuple(_own_facts(first, checks)),
        tuple(_input_facts(first, shown.inputs)),
        tuple(_origin_facts(shown)),
        (shown.looks,),
        tuple(filter(None, (shown.sizes, *_where_facts(first)))),
        *([] if of_app else pictures),
        *reasons,
    ]
    return found(
        place=row.place,
        op="" if row.op == "output" else operator(row.op),
        lead=shown.lead,
        source=row.source,
        facts=[group for group in groups if any(group)],
    )


def place_of(row: Row) -> str:
    """Return where a value is computed, and by which operator."""
    return f"{row.place} ({operator(row.op)})"


def other_origins(verdict: CaseVerdict) -> list[str]:
    """Return the places of local errors other than the first divergence."""
    first = verdict.first.row.probe if verdict.first else ""
    rows = [judged.row for judged in verdict.origins if judged.row.probe != first]
    return [f"before {place_of(r)}" if r.between else place_of(r) for r in rows]


def _error_facts(
    shown: CaseVerdict, first: JudgedRow, checks: Iterable[CaseVerdict]
) -> Iterator[str]:
    """Yield the size of the error here, in the inputs and in the output."""
    reason = first.verdict.reason
    outcome = first.verdict.outcome
    yield reason if outcome is Outcome.EXCEEDS else f"{outcome}: {reason}"
    if "floors" not in reason and _DECIBELS not in reason:
        yield _floors(first)
    if shown.inputs:
        floors = shown.inputs_floors
        if not all(judged.verdict.passed for judged in shown.inputs):
            yield "its inputs are already out of tolerance"
        elif any(_floors(judged).startswith(_DECIBELS) for judged in shown.inputs):
            least = min(judged.row.comparison.sqnr_db for judged in shown.inputs)
            yield f"its inputs agree to {least:.1f} dB"
        elif floors is not None:
            yield f"{inputs_agree(shown)} to {in_floors(floors)}"
    yield local_error(shown, first)
    for check in checks:
        if check is shown or check.worst is None:
            continue
        if check.what == OUTPUTS:
            error = _floors(check.worst)
            off = error if error.startswith(_DECIBELS) else f"off by {error}"
            yield f"output {off}" if error else ""
        elif check.what == LAYERS and check.outcome is Outcome.WITHIN:
            yield f"every layer within tolerance ({len(check.rows):,} compared)"


def inputs_agree(shown: CaseVerdict) -> str:
    """Return ``its inputs agree``, or which values before a module do."""
    if not shown.between:
        return "its inputs agree"
    return f"{shown.read} {'agree' if shown.inputs[1:] else 'agrees'}"


def local_error(shown: CaseVerdict, first: JudgedRow) -> str:
    """Return the operator's error on PyTorch's own inputs; empty if not measured.

    A module has none if what it reads was not compared.
    """
    if shown.between:
        own = f"what {first.row.place} itself reads was not compared"
        return f"{own}, so operators before it may be the cause"
    if not shown.isolated:
        return ""
    for judged in shown.origins:
        if judged.row.probe == first.row.probe:
            local = _floors(judged)
            if not local:
                return "local error: the reference's own inputs give the same"
            if local == _floors(first):
                return "all of it is local error"
            return f"local error {local}"
    return _not_local(shown, first)


def _not_local(shown: CaseVerdict, first: JudgedRow) -> str:
    """Return what is known of an error that the operator alone does not make."""
    own = [judged for judged in shown.alone if judged.row.probe == first.row.probe]
    if own and shown.inputs and all(j.verdict.passed for j in (*own, *shown.inputs)):
        # What else is in the file may be the cause, and need not be an error before it.
        return "it is right alone, on the reference's inputs"
    return "propagated error" if shown.origins else _largest_local(shown)


def _largest_local(shown: CaseVerdict) -> str:
    """Return the largest local error of a case in which no operator fails alone.

    A bound in decibels may pass an operator whose error in floors is large.
    """
    floors = {
        judged.row.comparison.floor_multiple or 0.0: judged for judged in shown.alone
    }
    if (most := max(floors, default=0.0)) <= RIGHT:
        return "propagated error: no operator causes it alone"
    worst = floors[most]
    return f"largest local error {in_floors(most)}, at {place_of(worst.row)}"


def _own_facts(first: JudgedRow, checks: Iterable[CaseVerdict]) -> Iterator[str]:
    """Yield each check's error beside PyTorch's own, unless the place's bound is it."""
    for check in checks:
        if check.own.removeprefix("off by ") not in first.verdict.reason:
            yield f"{check.what} {check.own}"


def _origin_facts(shown: CaseVerdict) -> Iterator[str]:
    if others := other_origins(shown):
        has = "has" if len(others) == 1 else "have"
        number = count(len(others), "other operator")
        yield f"{number} {has} a local error: {few(others)}"


_DECIBELS = "SQNR "


def _floors(judged: JudgedRow) -> str:
    """Return an error in floors; empty where it has none, or values are not finite.

    A file of few bits is millions of floors off, which says nothing. Its bound is in
    decibels, and so is its error here.
    """
    if judged.verdict.outcome is Outcome.NONFINITE:
        return ""  # floors measure only the finite values, which all agree
    found, bound = judged.row.comparison, judged.verdict.tolerance
    if bound.floors is None and bound.sqnr_db is not None:
        return f"{_DECIBELS}{found.sqnr_db:.1f} dB" if found.max_abs else ""
    multiple = found.floor_multiple
    if multiple is None or math.isnan(multiple):
        return ""
    return in_floors(multiple)


def _input_facts(first: JudgedRow, inputs: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield the values that the diverging one was computed from."""
    for judged in inputs:
        row = judged.row
        shape = list(row.comparison.expected_shape)
        size = f"{shape} {_floors(judged)}".rstrip()
        op, room = operator(row.op), WIDTH - len(INDENT) - len(size) - 12
        place = cut(row.place, room - len(op))
        yield f"from {place} ({op}) {size}"
    # At the borders of modules a value's origins are not known.
    if not inputs and first.row.op.startswith("aten."):
        missing = few(first.row.parents)
        yield (
            f"computed from {missing} (not compared)"
            if missing
            else "from the component's inputs alone"
        )


def _where_facts(first: JudgedRow) -> Iterator[str]:
    """Yield the sample, and the worst element in it."""
    c = first.row.comparison
    yield f"on {first.row.sample}"
    if c.worst_index is not None and c.expected_shape == c.actual_shape:
        yield f"worst at {list(c.worst_index)} of {list(c.expected_shape)}"
        if c.worst_actual is not None and c.worst_expected is not None:
            yield f"{c.worst_actual:.6g}, expected {c.worst_expected:.6g}"
    yield _batch_item(first)


def _batch_item(judged: JudgedRow) -> str:
    """Return a sentence where one batch item has all of the error."""
    c, few_items, all_but_rounding = judged.row.comparison, 2, 0.99
    items = c.expected_shape[0] if c.expected_shape else 1
    if items < few_items or c.worst_item is None or not c.rms:
        return ""
    if not c.worst_item_rms**2 / (items * c.rms**2) >= all_but_rounding:
        return ""
    agree = "the other agrees" if items == few_items else "the others agree"
    return f"batch item {c.worst_item} has all of the error, {agree}"


def _last_lines(log: str, message: str) -> list[str]:
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    return [line for line in lines[-_LOG_LINES:] if line.strip() not in message]
