"""A record under a policy: each row's verdict, and what it makes of the case.

Reads records only, so that a run can be judged again at any time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from harness.core.case import ITSELF
from harness.core.outcome import Outcome
from harness.core.pipeline import IMAGE, MIXED
from harness.core.record import (
    ISOLATED,
    LAYERS,
    OUTPUTS,
    CaseRecord,
    Key,
    Row,
    seen_share,
)
from harness.core.text import count, in_floors, operator
from harness.judge import known_gaps
from harness.judge.another import (
    NONE,
    Others,
    another_words,
    as_another,
    other_values,
)
from harness.judge.contract import contract_breach
from harness.judge.foreign import (
    NO_LAYERS,
    ask_for_less,
    covered_of_reach,
    taken_words,
)
from harness.judge.graph_check import graph_finding
from harness.judge.known_gaps import Gap
from harness.judge.pipeline import picture_words
from harness.judge.policy import Policy
from harness.judge.tolerance import Tolerance
from harness.judge.value import Verdict, judge
from harness.measure.metrics import TUNED


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """One comparison and its verdict."""

    row: Row
    verdict: Verdict

    @property
    def floors(self) -> float:
        """Its error in noise floors, infinite where there is no number.

        0 where it stands for another value, whose difference is no error.
        """
        if self.verdict.outcome is Outcome.ANOTHER:
            return 0.0
        return floors_of(self.row, passed=self.verdict.passed)


def floors_of(row: Row, *, passed: bool) -> float:
    """Return an error in noise floors; infinite where numbers could not be compared.

    Never NaN, which `max` keeps or loses by the order of what it is given.
    """
    multiple = row.comparison.floor_multiple
    if multiple is not None and not math.isnan(multiple):
        return multiple
    return 0.0 if passed else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """How one check of one case ended.

    Attributes:
        case: ``component/backend/variant``.
        suite: Path of the suite's file.
        what: ``layers`` or ``outputs``; of a pipeline ``latents`` or ``image``.
        outcome: How it ended, known gaps considered.
        found: How it ended before known gaps were considered.
        reason: One phrase with numbers.
        worst: Row with the largest usage; None where there is no row.
        first: First divergence: the earliest row out of tolerance whose inputs are
            within, or failing that the earliest one out; None if all are within.
        inputs: The rows that the first divergence was made from.
        origins: Operators whose own error, on the reference's inputs, is out of
            tolerance, in order; of one sample, and only where that was measured.
        isolated: Whether it was.
        rows: Every judged row, in order.
        picture: How far a picture is off, and by whom, in words; empty elsewhere.
        gap: The known gap that explains the outcome; None without one.

    """

    case: str
    suite: str
    what: str
    outcome: Outcome
    found: Outcome
    reason: str
    worst: JudgedRow | None
    first: JudgedRow | None
    inputs: tuple[JudgedRow, ...]
    rows: tuple[JudgedRow, ...]
    origins: tuple[JudgedRow, ...] = ()
    isolated: bool = False
    picture: str = ""
    gap: Gap | None = None

    @property
    def id(self) -> str:
        """``component/backend/variant/what``, as a test names it."""
        return f"{self.case}/{self.what}"

    @property
    def key(self) -> Key:
        """Suite and case."""
        return self.suite, self.case

    @property
    def inputs_floors(self) -> float | None:
        """Largest error of the first divergence's inputs, in floors."""
        return max_floors(self.inputs)

    @property
    def sentence(self) -> str:
        """What is wrong, where, how much; one line, as a test fails with it."""
        if self.first is None or self.outcome is Outcome.STALE_GAP:
            return f"{self.id}: {self.outcome}: {self.reason}"
        first = self.first.row
        text = (
            f"{self.id}: parts at {first.module or first.probe} "
            f"({operator(first.op)}), {first.sample}: {self.first.verdict.reason}"
        )
        if self.inputs_floors is not None:
            text += f"; inputs to it agree to {in_floors(self.inputs_floors)}"
        return text

    @property
    def looks(self) -> str:
        """What the first divergence looks like, by itself if that was measured."""
        if self.first is None:
            return ""
        own = [j.row for j in self.origins if j.row.probe == self.first.row.probe]
        return next((row.looks for row in (*own, self.first.row) if row.looks), "")

    @property
    def usage(self) -> float:
        """Largest part of a bound used, 1 at the limit; infinite without a number."""
        return self.worst.verdict.usage if self.worst else math.inf


def max_floors(rows: Iterable[JudgedRow]) -> float | None:
    """Return the largest error in floors; None where no row has a floor."""
    known = (j.floors for j in rows if j.row.comparison.floor_multiple is not None)
    return max(known, default=None)


def judge_case(
    record: CaseRecord,
    what: str,
    policy: Policy,
    gaps: Sequence[Gap],
    *,
    min_coverage: float,
    today: date,
) -> CaseVerdict:
    """Hold one check of a record against the policy and the known gaps."""
    rows = tuple(_judged(record, what, policy))
    others = NONE
    if what == LAYERS:
        outputs = tuple(_judged(record, OUTPUTS, policy))
        others = other_values(record, rows, outputs)
        rows = tuple(_as_another(judged, others) for judged in rows)
    failing = [judged for judged in rows if not judged.verdict.passed]
    worst = max(rows, key=lambda judged: judged.verdict.usage, default=None)
    own = tuple(_judged(record, ISOLATED, policy)) if what == LAYERS else ()
    origins = tuple(judged for judged in own if not judged.verdict.passed)
    blamed, origins = others.without(failing), others.without(origins, read=True)
    first, inputs = first_divergence(rows, blamed, origins)
    found, reason = _found(record, what, rows, min_coverage)
    breach = contract_breach(record) if what == OUTPUTS else None
    if breach and record.failure is None:
        # Said in place of any row: what a file is not told it cannot get right.
        (found, reason), first, inputs = breach, None, ()
    elif what == OUTPUTS and record.failure is None:
        told = graph_finding(record, failing=bool(failing))
        if told is not None:  # however small its effect
            reason = f"{told[1]}; {reason}" if failing else told[1]
            found, first, inputs = told[0], None, ()
    beside = filter(None, (another_words(rows), *taken_words(record, what)))
    reason = "; ".join((reason, *beside))
    applied = known_gaps.apply(gaps, f"{record.case}/{what}", found, today)
    return CaseVerdict(
        case=record.case,
        suite=record.suite,
        what=what,
        outcome=applied.outcome,
        found=found,
        reason=f"{reason}; {applied.reason}" if applied.reason else reason,
        worst=worst,
        first=first,
        inputs=inputs,
        rows=rows,
        origins=tuple(sorted(origins, key=lambda judged: judged.row.position)),
        isolated=bool(own),
        picture=picture_words(record) if what == IMAGE else "",
        gap=applied.gap,
    )


def _judged(record: CaseRecord, what: str, policy: Policy) -> Iterator[JudgedRow]:
    itself = (record.taken or {}).get("by") == ITSELF
    for row in record.rows:
        if row.what != what:
            continue
        rule = policy.for_probe(
            component=record.component,
            backend=record.backend,
            variant=record.variant,
            group=LAYERS if what == ISOLATED else what,
            probe=row.probe,
            module=row.module,
        )
        yield JudgedRow(
            row=row,
            verdict=judge(
                row.comparison,
                _without_floors(rule.tolerance) if itself else rule.tolerance,
                is_output=what == OUTPUTS,
                allow_nonfinite=rule.allow_nonfinite,
                allow_constant=rule.allow_constant,
                allow_misread=rule.allow_misread,
            ),
        )


def _as_another(judged: JudgedRow, others: Others) -> JudgedRow:
    """Return a row that passes where its value stands for another one."""
    words = others.words.get((judged.row.sample, judged.row.probe))
    if not words or not others.agree:
        return judged
    return replace(judged, verdict=as_another(judged.verdict, words))


def _without_floors(tolerance: Tolerance) -> Tolerance:
    """Return a tolerance's other bounds; one of floors alone cannot be met."""
    others = (metric for metric in TUNED if metric.name != "floors")
    if all(tolerance.limit(metric) is None for metric in others):
        return tolerance
    return replace(tolerance, floors=None)


def skipped(verdict: CaseVerdict, required: Collection[str]) -> bool:
    """Whether a check says nothing, as its runtime is missing and may be."""
    backend = verdict.case.split("/")[1]
    # A mixed chain lacks one of several; which one does not matter to who requires.
    may = backend not in required and not (backend == MIXED and required)
    return verdict.found is Outcome.UNAVAILABLE and may


def _found(
    record: CaseRecord,
    what: str,
    rows: Sequence[JudgedRow],
    min_coverage: float,
) -> tuple[Outcome, str]:
    if record.failure is not None:
        return Outcome(record.failure.outcome), record.failure.message
    if not rows:
        if what == LAYERS and (record.taken or {}).get("by") == OUTPUTS:
            return Outcome.COVERAGE, NO_LAYERS
        return Outcome.EMPTY, f"no {what} were compared"
    if failing := [judged for judged in rows if not judged.verdict.passed]:
        loudest = max(failing, key=lambda judged: judged.verdict.usage)
        return loudest.verdict.outcome, (
            f"{len(failing):,} of {count(len(rows), 'value')} out of tolerance; worst "
            f"{_name(loudest.row)}: {loudest.verdict.reason}"
        )
    if what == LAYERS:
        share = seen_share(record)
        if record.taken:  # what a file's names do not reach is no fault of a runtime
            share = covered_of_reach(record)
        if not share >= min_coverage:
            return Outcome.COVERAGE, (
                f"{share:.1%} of computing operators compared, at least "
                f"{min_coverage:.0%} asked; missing {_missing(record)}"
            ) + (f"; {ask_for_less(share)}" if record.taken else "")
    worst = max(rows, key=lambda judged: judged.verdict.usage)
    return Outcome.WITHIN, f"{_name(worst.row)}: {worst.verdict.reason}"


def _missing(record: CaseRecord) -> str:
    names = list((record.coverage or {}).get("missing", ()))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _name(row: Row) -> str:
    return f"{row.module or row.probe} ({row.sample})"


def first_divergence(
    rows: Iterable[JudgedRow],
    failing: Sequence[JudgedRow],
    origins: Sequence[JudgedRow] = (),
) -> tuple[JudgedRow | None, tuple[JudgedRow, ...]]:
    """Return where a run first parts, and the values that was made from.

    Errors are not monotone in depth, so every row is looked at. Where operators also
    ran on the reference's inputs, it is the earliest whose own error is out of
    tolerance; elsewhere the earliest whose inputs are all within. Several samples may
    each have one; the earliest in the program counts, and among equals the largest.
    """
    blamed = {(judged.row.sample, judged.row.probe) for judged in origins}
    by_name = {(judged.row.sample, judged.row.probe): judged for judged in rows}
    ordered = sorted(
        failing, key=lambda judged: (judged.row.position, -judged.verdict.usage)
    )
    for judged in ordered:
        if (judged.row.sample, judged.row.probe) in blamed:
            return judged, _parents(judged, by_name)
    for judged in ordered:
        parents = _parents(judged, by_name)
        if all(parent.verdict.passed for parent in parents):
            return judged, parents
    if not ordered:
        return None, ()
    return ordered[0], _parents(ordered[0], by_name)


def _parents(
    judged: JudgedRow, by_name: dict[tuple[str, str], JudgedRow]
) -> tuple[JudgedRow, ...]:
    sample = judged.row.sample
    there = ((sample, name) for name in judged.row.parents)
    return tuple(by_name[key] for key in there if key in by_name)
