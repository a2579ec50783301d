"""Judge a record by a policy: a verdict for each row, and one for the case.

This module reads only records, so a run can be judged again at any time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import takewhile

from msgspec import structs

from harness.core.end_to_end import MIXED, PAIRS
from harness.core.errors import first_line
from harness.core.outcome import CheckFinding, Outcome, Precedence
from harness.core.plugins import added, answers, sentences
from harness.core.record import (
    ISOLATED,
    LAYERS,
    OUTPUTS,
    READ,
    WHATS,
    CaseRecord,
    Key,
    Row,
    coverage_share,
)
from harness.core.text import count, cut, few, in_floors, one_line, operator
from harness.judge import known_gaps
from harness.judge.known_gaps import Gap
from harness.judge.policy import JUDGED_WITHIN, Policy
from harness.judge.reference import (
    NO_LAYERS,
    has_pytorch,
    itself_words,
    of_reference,
)
from harness.judge.self_error import Own, own_errors, own_words, refusals
from harness.judge.sizes import only_at
from harness.judge.stored_bits import stored_words, without_effect
from harness.judge.tolerance import FULL_PRECISION, Tolerance, first_tier, first_tiers
from harness.judge.unread import read_by_padding, unread_message
from harness.judge.value import UNPAIRED, JudgedRow, judge, max_floors
from harness.measure.metrics import TUNED
from harness.measure.patterns import how_general

_FIGURES = re.compile(r"[-+]?\d[\d.,e+-]*")
"""What differs between two messages of one kind."""

_NAME = 32
"""Largest number of columns of a value's name in a list of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """The verdict on one check of one case.

    Attributes:
        case: Id of the case, ``component/backend/variant``.
        suite: Path of the suite's file.
        what: Check: ``layers`` or ``outputs``; in a pipeline ``latents`` or ``image``.
        outcome: Outcome after known gaps were applied.
        found: Outcome before known gaps were applied.
        reason: Phrase with numbers.
        worst: Row with the largest usage; None if there is no row.
        first: First divergence: the earliest row out of tolerance whose inputs are
            within tolerance. If there is none, the earliest row out of tolerance. None
            if all rows are within tolerance.
        inputs: Rows of the values from which the first divergence was computed.
        origins: Operators whose local error, on the reference's inputs, is out of
            tolerance, in order. They are of one sample, and empty if this was not
            measured.
        alone: The operators as they ran on the reference's inputs; empty if they did
            not.
        rows: Every judged row, in order.
        picture: Message about the error of a picture and the role that causes most of
            it; empty for other values.
        own: Message about the error as a multiple of PyTorch's own error in fewer bits;
            empty if that was not asked for.
        stored: How many layers of the file are stored in the bits of the variant's
            name; empty if it names none. It is with the outputs alone.
        sizes: At which sizes alone the outputs fail; empty if sizes do not tell.
        itself: Words that say that a file was compared with itself; empty otherwise.
        gap: Known gap that explains the outcome; None if there is none.

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
    alone: tuple[JudgedRow, ...] = ()
    picture: str = ""
    own: str = ""
    stored: str = ""
    sizes: str = ""
    itself: str = ""
    gap: Gap | None = None

    @property
    def id(self) -> str:
        """``component/backend/variant/what``, the name of its test."""
        return f"{self.case}/{self.what}"

    @property
    def key(self) -> Key:
        """Suite and case."""
        return self.suite, self.case

    @property
    def isolated(self) -> bool:
        """Whether operators ran on the reference's inputs."""
        return bool(self.alone)

    @property
    def inputs_floors(self) -> float | None:
        """Largest error among the first divergence's inputs, in floors."""
        return max_floors(self.inputs)

    @property
    def between(self) -> bool:
        """Whether what the module of the first divergence reads was not compared."""
        return self.first is not None and self.first.row.between

    @property
    def lead(self) -> str:
        """How the place of the first divergence is introduced: ``at``.

        If what a module reads was not compared, the operators before it may be the
        cause: ``between q, k, v (agree) and``.
        """
        if not self.between or self.first is None:
            return "at"
        if self.inputs and all(judged.verdict.passed for judged in self.inputs):
            return f"between {self.read} (agree) and"
        if self.first.row.parents:
            return "at or before"
        return "between the component's inputs and"

    @property
    def read(self) -> str:
        """Names of the compared values from which the first divergence was computed.

        They leave out the modules that all of them, and the first divergence, are in.
        """
        places = [judged.row.place for judged in self.inputs]
        here = self.first.row.place if self.first else ""
        parts = [place.split(".")[:-1] for place in (here, *places)]
        levels = (len(set(level)) == 1 for level in zip(*parts, strict=False))
        shared = len(list(takewhile(bool, levels)))
        while any(p.split(".")[shared].isdigit() for p in places) and shared:
            shared -= 1  # a number alone names nothing
        short = [".".join(place.split(".")[shared:]) for place in places]
        return few([cut(name, _NAME) for name in short], 3)

    @property
    def sentence(self) -> str:
        """One-line message of a failing test: what is wrong, where, how much."""
        if self.first is None or self.outcome is Outcome.STALE_GAP:
            return f"{self.id}: {self.outcome}: {self.reason}"
        first = self.first.row
        text = (
            f"{self.id}: first diverges {self.lead} {first.place} "
            f"({operator(first.op)}), {first.sample}: {self.first.verdict.reason}"
        )
        if self.inputs_floors is not None and not self.between:
            text += f"; inputs to it agree to {in_floors(self.inputs_floors)}"
        return f"{text}; {self.sizes}" if self.sizes else text

    @property
    def looks(self) -> str:
        """Error pattern of the first divergence, of its local error if measured.

        A pattern of the layer that is another one in another sample that is off is not
        said. A specific pattern of the layer is better than a general one of the
        operator.
        """
        if self.first is None:
            return ""
        own = [j.row for j in self.origins if j.row.probe == self.first.row.probe]
        found = [row.looks for row in own if row.looks]
        layer = self.first.row.looks
        kinds = {
            _FIGURES.sub("", judged.row.looks)
            for judged in self.rows
            if judged.row.probe == self.first.row.probe and judged.row.looks
            if not judged.verdict.passed
        }
        # Outputs of one item and of several may look different by one cause.
        if layer and (self.what == OUTPUTS or kinds <= {_FIGURES.sub("", layer)}):
            found.append(layer)
        return min(found, key=how_general, default="")

    @property
    def usage(self) -> float:
        """Largest used share of a bound, 1 at the limit; infinite without a number."""
        if self.what == PAIRS and self.outcome is Outcome.WITHIN:
            return 0.0  # its claims are tests, and no share of a bound is used
        if self.worst is None and self.outcome is Outcome.WITHIN:
            return 0.0  # nothing computes, so no value has an error
        return self.worst.verdict.usage if self.worst else math.inf


def judge_case(
    record: CaseRecord,
    what: str,
    policy: Policy,
    gaps: Sequence[Gap],
    *,
    min_coverage: float,
    today: date,
) -> CaseVerdict:
    """Judge one check of a record by the policy and the known gaps.

    Args:
        record: Record of the case.
        what: Check to judge: ``layers`` or ``outputs``; in a pipeline ``latents``,
            ``image`` or ``pairs``.
        policy: Tolerances.
        gaps: Known gaps of the suite.
        min_coverage: Smallest share of computing operators that must be compared in
            ``layers``, from 0 to 1.
        today: Date on which known gaps may end.

    Raises:
        SuiteError: No table of the policy states a tolerance for a value.

    """
    of_pytorch = own_errors(record)
    rows = tuple(_judged(record, what, policy, of_pytorch))
    outputs, told = rows, ""
    if what == LAYERS:
        rows = read_by_padding(rows)
        outputs = tuple(_judged(record, OUTPUTS, policy, of_pytorch))
        rows, told = _with_others(record, rows, outputs)
    failing = [judged for judged in rows if not judged.verdict.passed]
    worst = max(rows, key=lambda judged: judged.verdict.usage, default=None)
    alone = _judged(record, ISOLATED, policy, of_pytorch)
    own = tuple(alone) if what == LAYERS else ()
    origins = tuple(judged for judged in own if not judged.verdict.passed)
    # A value that stands for another one is the cause only if nothing else differs.
    blamed = [judged for judged in failing if not judged.other] or failing
    # An operator that reads such a value had other inputs in the file. One that is
    # right in the file is no cause of the file's error, also where it is wrong alone.
    aside = {
        _place(judged)
        for judged in rows
        if judged.verdict.passed or judged.other or judged.reads_other
    }
    origins = tuple(judged for judged in origins if _place(judged) not in aside)
    # The worst rows of many inputs are of one sample each.
    by_sample = not record.tried
    first, inputs = first_divergence(rows, blamed, origins, by_sample=by_sample)
    found, reason = _found(record, what, rows, min_coverage)
    also = () if record.failure else _ways(failing)
    if record.failure is None:
        if finding := _finding(record, what, failing=bool(failing)):
            outcome, text, place = finding
            if place is Precedence.INSTEAD:
                reason, also = text, ()
            else:
                parts = (text, reason) if place is Precedence.BEFORE else (reason, text)
                reason = "; ".join(parts) if failing else text
            if place is not Precedence.AFTER or not failing:
                found, first, inputs = outcome, None, ()
        elif what == OUTPUTS and (checked := dict(_by_plugins(record))):
            reason = "; ".join([reason, *checked] if failing else checked)
            ends = sorted(checked.values(), key=lambda end: end.measured)
            found = found if failing else ends[0]
    words = [*own_words([judged.row for judged in rows], of_pytorch)]
    unsaid = [text for text in words if text.removeprefix("off by ") not in reason]
    refused = refusals(record) if what in JUDGED_WITHIN else ()
    beside = sentences("beside", record, what, rows)
    more = (told, unread_message(rows), *beside, *unsaid, *refused)
    reason = "; ".join((reason, *filter(None, more)))
    applied = known_gaps.apply(gaps, f"{record.case}/{what}", found, today, also)
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
        alone=own,
        picture=next(sentences("gists", record, what), ""),
        own="; ".join(words),
        sizes=only_at(record, outputs) if what in WHATS and by_sample else "",
        stored=stored_words(record) if what == OUTPUTS and not record.failure else "",
        itself=itself_words(record) if what == OUTPUTS else "",
        gap=applied.gap,
    )


def _with_others(
    record: CaseRecord, rows: tuple[JudgedRow, ...], outputs: Sequence[JudgedRow]
) -> tuple[tuple[JudgedRow, ...], str]:
    """Return rows as plug-ins judge them again, or the message of one that fails."""
    try:
        for again in answers("others", record, rows, outputs):
            rows = tuple(again)
    except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
        return rows, first_line(error)
    return rows, ""


def _place(judged: JudgedRow) -> tuple[str, str]:
    return judged.row.sample, judged.row.probe


def _judged(
    record: CaseRecord, what: str, policy: Policy, of_pytorch: Own
) -> Iterator[JudgedRow]:
    alone = not has_pytorch(record)
    read = {
        (row.sample, row.probe): replace(row, what=what)
        for row in record.rows
        if row.what == READ.get(what)
    }
    for measured in record.rows:
        if measured.what != what:
            continue
        row = _without_pytorch(measured) if alone else measured
        rule = policy.for_probe(
            (record.component, record.backend, record.variant),
            group=LAYERS if what == ISOLATED else what,
            probe=row.probe,
            module=row.module,
        )
        own = of_pytorch.get((rule.tolerance.within or "", row.sample, row.probe))
        by_rule = partial(
            judge,
            tolerance=_without_floors(rule.tolerance) if alone else rule.tolerance,
            is_output=what == OUTPUTS,
            own=own,
            allow_nonfinite=rule.allow_nonfinite,
            allow_constant=rule.allow_constant,
            allow_misread=rule.allow_misread,
        )
        whole = by_rule(row.comparison)
        part = read.get((row.sample, row.probe))
        part = _without_pytorch(part) if part and alone else part
        if part is None or whole.passed:
            yield JudgedRow(row=row, own=own, verdict=whole)
            continue
        verdict = by_rule(part.comparison)
        unread = whole.reason if verdict.passed else ""
        yield JudgedRow(row=part, own=own, verdict=verdict, unread=unread)


def _without_pytorch(row: Row) -> Row:
    """Return a row whose words name no PyTorch, for a case that has none."""
    return replace(row, looks=of_reference(row.looks)) if row.looks else row


def _without_floors(tolerance: Tolerance) -> Tolerance:
    """Return a tolerance without floors; unchanged if it has no other bound."""
    others = (metric for metric in TUNED if metric.name != "floors")
    if all(tolerance.limit(metric) is None for metric in others):
        return tolerance
    return structs.replace(tolerance, floors=None)


def skipped(verdict: CaseVerdict, required: Collection[str]) -> bool:
    """Whether a check has no result because a runtime is missing and optional."""
    backend = verdict.case.split("/")[1]
    # A mixed pipeline lacks one of several runtimes. It may be a required one.
    may = backend not in required and not (backend == MIXED and required)
    return verdict.found is Outcome.UNAVAILABLE and may


def is_loss(checks: Collection[CaseVerdict]) -> bool:
    """Whether a failing case only lost more precision than its bounds allow.

    It must lose precision by design: a runtime declares that of its variants. A variant
    of the suite's own is declared nowhere; the tolerances of full precision bound
    floors. Any other end of a case (a crash, a wrong shape, a graph that differs) is a
    defect.
    """
    failing = {check.found for check in checks if not check.outcome.passed}
    if not failing <= {Outcome.EXCEEDS, Outcome.MISREAD, Outcome.WORSE}:
        return False
    declared = {".".join(check.case.split("/")[1:]) for check in checks}
    if declared <= first_tiers().keys():
        return first_tier(declared) != FULL_PRECISION
    bounds = [judged.verdict.tolerance for check in checks for judged in check.rows]
    return bool(bounds) and all(bound.floors is None for bound in bounds)


def _found(
    record: CaseRecord, what: str, rows: Sequence[JudgedRow], min_coverage: float
) -> tuple[Outcome, str]:
    if record.failure is not None:
        return Outcome(record.failure.outcome), record.failure.message
    if not rows:
        return _without_rows(record, what)
    if failing := [judged for judged in rows if not judged.verdict.passed]:
        blamed = [judged for judged in failing if not judged.other] or failing
        loudest = max(blamed, key=lambda judged: judged.verdict.usage)
        return loudest.verdict.outcome, (
            f"{len(failing):,} of {count(len(rows), 'value')} out of tolerance; worst "
            f"{_name(loudest.row)}: {loudest.verdict.reason}"
        )
    if what == LAYERS:
        share = coverage_share(record)
        if not share >= min_coverage:
            missing = list((record.coverage or {}).get("missing", ()))
            named = f"; missing {few(missing, 3)}" if missing else ""
            least = math.floor(100 * share) / 100
            return Outcome.COVERAGE, (
                f"{share:.1%} of computing operators compared, at least "
                f"{min_coverage:.0%} asked{named}; `coverage = {least}` under [limits] "
                "asks for what this file shows"
            )
    worst = max(rows, key=lambda judged: judged.verdict.usage)
    return Outcome.WITHIN, f"{_name(worst.row)}: {worst.verdict.reason}"


def _finding(record: CaseRecord, what: str, *, failing: bool) -> CheckFinding | None:
    """Return what counts first of all that a check shows beside its values."""
    try:
        found = filter(None, answers("findings", record, what, failing=failing))
        every = [CheckFinding(*each) for each in found]
    except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
        every = [CheckFinding(Outcome.RUN, first_line(error))]
    if what == OUTPUTS and (own := without_effect(record)):
        every.append(own)
    return min(every, key=lambda finding: finding.place, default=None)


def _by_plugins(record: CaseRecord) -> Iterator[tuple[str, Outcome]]:
    """Yield what the checks of plug-ins find wrong; one that cannot run is said too."""
    for check in added("checks"):
        outcome, text = Outcome.CHECK, None
        try:
            text = check.called(record)
        except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
            outcome, text = Outcome.RUN, first_line(error)
        if text:
            yield f"{one_line(str(text))} (plug-in {check.plugin!r})", outcome


def _without_rows(record: CaseRecord, what: str) -> tuple[Outcome, str]:
    if what == LAYERS and (record.foreign or {}).get("by") == OUTPUTS:
        return Outcome.COVERAGE, NO_LAYERS
    nothing_computes = (record.coverage or {}).get("computing", 1) == 0
    if what == LAYERS and nothing_computes and coverage_share(record) == 1.0:
        return Outcome.WITHIN, NOTHING_COMPUTES
    return Outcome.EMPTY, f"no {what} were compared"


def _ways(failing: Iterable[JudgedRow]) -> tuple[Outcome, ...]:
    """Return how samples fail, each by its loudest value.

    A NaN explains what exceeds in its own sample, and nothing of another sample.
    """
    loudest: dict[str, JudgedRow] = {}
    for judged in sorted(failing, key=lambda one: -one.verdict.usage):
        loudest.setdefault(judged.row.sample, judged)
    ways = dict.fromkeys(judged.verdict.outcome for judged in loudest.values())
    if Outcome.MISREAD in ways:
        # One error changes what is read of some samples, and only numbers of others.
        ways.pop(Outcome.EXCEEDS, None)
    return tuple(ways)


NOTHING_COMPUTES = "no operator computes anything, so only outputs are compared"


def _name(row: Row) -> str:
    return f"{row.place} ({row.sample})"


def first_divergence(
    rows: Iterable[JudgedRow],
    failing: Sequence[JudgedRow],
    origins: Sequence[JudgedRow] = (),
    *,
    by_sample: bool = True,
) -> tuple[JudgedRow | None, tuple[JudgedRow, ...]]:
    """Return the first divergence, and the values it was computed from.

    A value of another shape, or of another kind of number, has no numbers to compare.
    It may stand for another value. So an operator with wrong numbers comes first if
    values from which it was computed were compared and agree.

    Errors do not always grow with depth, so every row is considered. If operators also
    ran on the reference's inputs, it is the earliest operator whose local error is out
    of tolerance. Otherwise it is the earliest one whose inputs are all within
    tolerance. Several samples may each have one. Then the earliest in the program
    counts, and among equals the largest. `origins` are the operators whose local error
    is out of tolerance. A value's inputs are those of its own sample, if `by_sample`.
    """
    if not failing:
        return None, ()

    def sample(judged: JudgedRow) -> str:
        return judged.row.sample if by_sample else ""

    blamed = {(judged.row.sample, judged.row.probe) for judged in origins}
    by_name = {(sample(judged), judged.row.probe): judged for judged in rows}

    def inputs(judged: JudgedRow) -> tuple[JudgedRow, ...]:
        there = ((sample(judged), name) for name in judged.row.parents)
        return tuple(by_name[key] for key in there if key in by_name)

    in_numbers = any(
        judged.verdict.outcome not in UNPAIRED and read and _agree(read)
        for judged in failing
        for read in [inputs(judged)]
    )

    def order(judged: JudgedRow) -> tuple[int, int, float]:
        rank = 1 if _agree(inputs(judged)) else 3
        if rank == 1 and in_numbers and judged.verdict.outcome in UNPAIRED:
            rank = 2
        if (judged.row.sample, judged.row.probe) in blamed:
            rank = 0
        return rank, judged.row.position, -judged.verdict.usage

    first = min(failing, key=order)
    return first, inputs(first)


def _agree(rows: Iterable[JudgedRow]) -> bool:
    return all(judged.verdict.passed for judged in rows)
