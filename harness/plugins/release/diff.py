"""Compare two runs, row by row, over the union of their rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.core.comparison import Comparison
from harness.core.end_to_end import IMAGE, PAIRS
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, CaseRecord, Row, coverage_share
from harness.core.text import count, few, in_bytes, in_floors
from harness.engine.finished_run import (
    CaseReport,
    CheckEnd,
    Report,
    differing,
    matched,
)
from harness.measure.metrics import METRIC, Metric
from harness.plugins.pictures.worst import psnr_db
from harness.plugins.release import thresholds
from harness.plugins.release.causes import same_task, settings_causes, task_causes
from harness.plugins.release.pairs import compare_pairs
from harness.plugins.release.thresholds import Change
from harness.plugins.release.times import compare_times
from harness.suite.judge import Judge

SIZE, MEMORY, SETTINGS, COVERAGE = "size", "memory", "settings", "coverage"

RtolOf = Callable[[str, Row], float]
"""A function from case and row to the rtol of the tier that judges the row."""

LOUDEST_FIRST = (
    Change.WORSE,
    Change.GONE,
    Change.OPEN,
    Change.INCOMPARABLE,
    Change.BETTER,
    Change.NEW,
)

_PASSED = {outcome.value for outcome in Outcome if outcome.passed}


class _Move(NamedTuple):
    """A change with its phrase, and the factor by which the error changed."""

    change: Change
    words: str = ""
    factor: float = 1.0


_Compare = Callable[[str, Row, Row], _Move]
"""A function that compares a row of a case with the same row of an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """The change of one check or measurement of one case between two runs.

    Attributes:
        what: A check, ``size``, ``memory``, ``settings``, ``coverage`` or the metric
            of a benchmark.
        words: A phrase with numbers about the change; empty if there is none.
        rows: For a check, each kind of change to its number of rows.
        factor: Factor by which the error of the loudest row changed.
        of_machine: Whether it is time or memory, which depend on the machine.
        of_case: Whether one run lacks the whole case.
        causes: What changed in the case, if that is why it cannot be compared.

    """

    case: str
    what: str
    change: Change
    words: str = ""
    rows: Mapping[Change, int] | None = None
    factor: float = 1.0
    of_machine: bool = False
    of_case: bool = False
    causes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The case, and its check or measurement unless the whole case is meant."""
        return self.case if self.of_case else f"{self.case}/{self.what}"

    @property
    def blocks(self) -> bool:
        """Whether the change counts against the later run.

        On another machine time and memory cannot be compared. This is reported, but
        does not count against the run.
        """
        if self.change is Change.INCOMPARABLE:
            return not self.of_machine
        return self.change in {Change.WORSE, Change.GONE, Change.OPEN}

    @property
    def elsewhere(self) -> bool:
        """Whether it says only that the machine is a different one."""
        return self.of_machine and self.change is Change.INCOMPARABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All differences between two runs, and the number of results without one.

    Attributes:
        before: Id of the earlier run.
        after: Id of the later run.
        findings: A finding for each check and measurement of each case, in order.
        files: Files of the suite that differ.
        versions: Tool to its two versions, where they differ.
        machines: The reason why times cannot be compared; empty if they can.
        causes: What changed in a case's task and settings, by case.

    """

    before: str
    after: str
    findings: tuple[RunChange, ...]
    files: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]
    machines: str
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, *changes: Change) -> list[RunChange]:
        """Return the findings with one of these changes, the largest first."""
        found = [finding for finding in self.findings if finding.change in changes]
        return sorted(found, key=lambda finding: -finding.factor)

    @property
    def changes(self) -> list[RunChange]:
        """Every change of a result, the worst first."""
        found = (one for change in LOUDEST_FIRST for one in self.of(change))
        return [one for one in found if not one.elsewhere]

    @property
    def tells(self) -> bool:
        """Whether any check of one run could be compared with the other's.

        A check that failed in one run and had a result in the other counts, too.
        """
        told = {Change.SAME, Change.WORSE, Change.BETTER, Change.GONE}
        return any(
            finding.change is Change.WORSE
            # A check with a new sample was compared on the others.
            or (
                finding.rows is not None
                and not told.isdisjoint((finding.change, *finding.rows))
            )
            for finding in self.findings
        )

    @property
    def blocking(self) -> list[RunChange]:
        """The findings that count against the later run."""
        return [one for one in self.of(*Change) if one.blocks]


def diff(before: Report, after: Report, rtol_of: RtolOf) -> Diff:
    """Compare a run with an earlier one, or with a baseline.

    The required atol of a row is compared at the rtol that `rtol_of` returns.
    """
    machines = other_machine(before, after)
    elsewhere = before.cpu != after.cpu

    def compare(name: str, was: Row, is_: Row) -> _Move:
        return _row(was, is_, rtol_of(name, is_), elsewhere=elsewhere)

    findings: list[RunChange] = []
    causes = {}
    for name, was, is_ in matched(before.cases, after.cases):
        if was and is_ and (changed := _causes(was.record, is_.record)):
            causes[name] = changed
        if was and is_ and _ran(was) and _ran(is_):
            findings += _checks(name, was, is_, compare, elsewhere=elsewhere)
            findings += _amounts(name, was.record, is_.record, machines)
        else:
            findings += _of_one_run(name, was if was and _ran(was) else None, is_)
    findings += _benchmarks(before, after, machines)
    return Diff(
        before=before.id,
        after=after.id,
        findings=tuple(findings),
        files=other_files(before, after),
        versions=other_versions(before, after),
        machines=machines,
        causes=causes,
    )


def _causes(before: CaseRecord, after: CaseRecord) -> tuple[str, ...]:
    return *task_causes(before, after), *settings_causes(before, after)


def other_files(before: Report, after: Report) -> tuple[str, ...]:
    """Return the names of the suite's files that differ between two runs."""
    return tuple(differing(before.files, after.files))


def other_versions(before: Report, after: Report) -> dict[str, tuple[str, str]]:
    """Return each tool whose version differs between two runs, to both versions."""
    return {
        tool: (one or "none", two or "none")
        for tool, one, two in sorted(matched(before.versions, after.versions))
        if one != two
    }


def other_machine(before: Report, after: Report) -> str:
    """Return a phrase if two runs were made on two machines; empty if on one."""
    if before.machine == after.machine:
        return ""
    one, two = (
        f"{run.cpu}, {count(run.environment['core_count'], 'core')}"
        for run in (before, after)
    )
    if one == two:
        return "another machine of the same processor"
    return f"another machine: {one} before, {two} now"


def rtol_by(judges: Mapping[str, Judge], after: Report) -> RtolOf:
    """Return the function from case and row to the rtol of the row's tier.

    Where the tier states no rtol, the rtol is 0, and the required atol is the largest
    error. `judges` has each suite's judge by the suite's path; the judge at "", if any,
    judges the cases of all other suites. `after` is the later run.
    """

    def rtol(name: str, row: Row) -> float:
        record = after.cases[name].record
        judge = judges.get(record.suite) or judges.get("")
        if judge is None:
            msg = f"nothing says which suite {name} is of; name it with --suite."
            raise SuiteError(msg)
        rule = judge.policy.for_probe(
            (record.component, record.backend, record.variant),
            group=row.what,
            probe=row.probe,
            module=row.module,
        )
        return rule.tolerance.rtol or 0.0

    return rtol


def _ran(case: CaseReport) -> bool:
    """Whether a case ran; one whose runtime was missing counts as no case."""
    return all(end.outcome != Outcome.UNAVAILABLE for end in case.ends.values())


def _of_one_run(
    name: str, before: CaseReport | None, after: CaseReport | None
) -> Iterator[RunChange]:
    """Yield a finding for each check of a case that one of two runs lacks."""
    now = after.ends if after else {}
    change, words = Change.NEW, "no such case before"
    for what in before.ends if before else now:
        if before:
            end = now.get(what)
            change, words = Change.GONE, end.reason if end else "no such case now"
        yield RunChange(case=name, what=what, change=change, words=words, of_case=True)


def _amounts(
    name: str, before: CaseRecord, after: CaseRecord, machines: str
) -> Iterator[RunChange]:
    """Yield the changes of a case's settings, coverage, size and memory."""
    changed = settings_causes(before, after)
    change = Change.INCOMPARABLE if changed else Change.SAME
    yield RunChange(
        case=name,
        what=SETTINGS,
        change=change,
        words=", ".join(changed),
        causes=changed,
    )
    # Without rows a stage ended without a result: nothing was deployed, or nothing ran.
    if not before.rows or not after.rows:
        return
    memory = Change.INCOMPARABLE, machines
    if not machines:
        memory = _amount(before.peak_bytes, after.peak_bytes, thresholds.of_memory)
    for what, (change, words) in {
        COVERAGE: _coverage(before, after),
        SIZE: _amount(_size(before), _size(after), thresholds.of_size),
        MEMORY: memory,
    }.items():
        yield RunChange(
            case=name, what=what, change=change, words=words, of_machine=what == MEMORY
        )


def _checks(
    name: str,
    before: CaseReport,
    after: CaseReport,
    compare: _Compare,
    *,
    elsewhere: bool,
) -> Iterator[RunChange]:
    """Yield the change of each check of a case that both runs have."""
    for what, was, is_ in matched(before.ends, after.ends):
        rows: Sequence[_Move] | None = None
        one, two = ((each.record.pipeline or {}) for each in (before, after))
        if was is None or is_ is None:
            change = Change.NEW if was is None else Change.GONE
            move = _Move(change, "".join(end.outcome for end in (was, is_) if end))
        elif what == PAIRS and PAIRS in one and PAIRS in two:
            pairs = compare_pairs(one[PAIRS], two[PAIRS], elsewhere=elsewhere)
            move = _Move(*pairs)
            if _fails(was, is_) and move.change is not Change.WORSE:
                move = _Move(Change.WORSE, is_.reason)
        elif _fails(was, is_) and not after.rows[what]:
            # A stage ended without a result, so no row tells more than this.
            words = f"was {was.outcome}, {is_.outcome}: {is_.reason}"
            move = _Move(Change.WORSE, words)
        else:
            rows = list(_compare_rows(name, what, before, after, compare))
            move = _with_ends(was, is_, _together(what, rows, before, after))
        caused = rows is not None and move.change is Change.INCOMPARABLE
        yield RunChange(
            case=name,
            what=what,
            **move._asdict(),
            rows=None if rows is None else Counter(row.change for row in rows),
            causes=task_causes(before.record, after.record) if caused else (),
        )


def _fails(was: CheckEnd, is_: CheckEnd) -> bool:
    return was.outcome in _PASSED and is_.outcome not in _PASSED


def _with_ends(was: CheckEnd, is_: CheckEnd, move: _Move) -> _Move:
    """Return the change of a check's rows as the ends of the check make it."""
    words = f"was {was.outcome}, {is_.outcome}"
    if _fails(was, is_):
        words += f"; {move.words or is_.reason}"
        return move._replace(change=Change.WORSE, words=words)
    if _fails(is_, was) and move.change is Change.SAME:
        return move._replace(change=Change.BETTER, words=words)
    return move


def _coverage(before: CaseRecord, after: CaseRecord) -> tuple[Change, str]:
    one, two = (round(coverage_share(record), 4) for record in (before, after))
    if one == two:
        return Change.SAME, ""
    words = f"{one:.1%} → {two:.1%} of computing operators compared"
    return Change.WORSE if two < one else Change.BETTER, words


def _size(record: CaseRecord) -> int:
    """Return the size of the deployed file, or of the files of all roles."""
    artifacts = record.artifacts or {}
    own = artifacts.get(record.backend)
    entries = [own] if own else artifacts.values()
    return sum(entry["size_bytes"] for entry in entries)


def _amount(
    before: int, after: int, rule: Callable[[int, int], Change]
) -> tuple[Change, str]:
    change = rule(before, after)
    if change is Change.SAME:
        return change, ""
    one, two = in_bytes(before), in_bytes(after)
    return change, f"{one} → {two} ({after / before - 1:+.0%})" if before else two


def _benchmarks(before: Report, after: Report, machines: str) -> Iterator[RunChange]:
    same_torch = before.versions.get("torch") == after.versions.get("torch")
    one, two = (
        {(entry.case, entry.metric): entry for entry in run.benchmarks}
        for run in (before, after)
    )
    for (case, metric), was, is_ in matched(one, two):
        change, words = Change.INCOMPARABLE, machines
        if was is None:
            change, words = Change.NEW, "measured only now"
        elif is_ is None:
            if not machines:
                change = Change.GONE
                words = "measured before and not now; `parity bench` adds it to the run"
        elif (was.machine or before.machine) == (is_.machine or after.machine):
            change, words = compare_times(was, is_, same_torch=same_torch)
        elif not machines:
            words = "timed on another machine of a cluster"
        yield RunChange(
            case=case, what=metric, change=change, words=words, of_machine=True
        )


# The rows of one check


def floors_of(comparison: Comparison) -> float | None:
    """Return an error in noise floors, also for a comparison of a baseline."""
    if comparison.floor is None:
        return None
    if comparison.rms == 0.0:
        return 0.0
    return comparison.rms / comparison.floor if comparison.floor else math.inf


def _compare_rows(
    name: str, what: str, before: CaseReport, after: CaseReport, compare: _Compare
) -> Iterator[_Move]:
    """Compare the rows of one check with another run's, over the union of both."""
    records = before.record, after.record
    otherwise = {
        row.sample for row in after.rows[what] if not same_task(row.sample, *records)
    }
    other_task = "; ".join(task_causes(*records))
    for was, is_ in _paired(before.rows[what], after.rows[what], otherwise):
        row = is_ or was
        place = f"{row.place} ({row.sample})" if row else ""
        if was is None or is_ is None:
            yield _Move(Change.NEW if was is None else Change.GONE, place)
            continue
        other = other_task
        if is_.sample not in otherwise:
            other = _other_reference(was.comparison, is_.comparison)
        move = _Move(Change.INCOMPARABLE, other) if other else compare(name, was, is_)
        if move.change is not Change.SAME:
            move = move._replace(words=f"{place}: {move.words}")
        yield move


def _paired(
    before: Sequence[Row], after: Sequence[Row], otherwise: Collection[str]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield each row with its counterpart, if there is one.

    Another exporter uses different names for layers, or gives a name to another value.
    So rows that the names do not pair are paired by module, shape and magnitude of the
    value. Samples in `otherwise` have different inputs, so only names pair their rows.
    """
    by_name = {(row.sample, row.probe): row for row in after}
    alone = []
    for row in before:
        key = row.sample, row.probe
        named = by_name.get(key)
        must_match = row.what == LAYERS and row.sample not in otherwise
        if named and not (
            must_match and _other_reference(row.comparison, named.comparison)
        ):
            yield row, by_name.pop(key)
        else:
            alone.append(row)
    by_value: dict[tuple[object, ...], list[Row]] = {}
    for row in by_name.values():
        by_value.setdefault(_value(row), []).append(row)
    for row in alone:
        found = by_value.get(_value(row))
        yield row, found.pop(0) if found else None
    yield from ((None, row) for rows in by_value.values() for row in rows)


def _value(row: Row) -> tuple[object, ...]:
    about = row.comparison
    # A baseline keeps six digits; two roundings must not make two values of one.
    magnitude = f"{float(f'{about.expected_rms:.5e}'):.3g}"
    return row.sample, row.place, about.expected_shape, magnitude


def _other_reference(was: Comparison, is_: Comparison) -> str:
    """Return why the errors of two rows cannot be compared; empty if they can."""
    if was.expected_shape != is_.expected_shape:
        shapes = (list(one.expected_shape) for one in (was, is_))
        return "shape {} before, {} now".format(*shapes)
    if was.nonfinite_mismatched or is_.nonfinite_mismatched:
        # The reference's rms covers only the places where both sides are finite.
        return ""
    rounding = max(
        thresholds.SAME_REFERENCE * max(was.expected_rms, is_.expected_rms),
        thresholds.RMS_FLOORS * max(was.floor or 0.0, is_.floor or 0.0),
    )
    if abs(was.expected_rms - is_.expected_rms) > rounding:
        return f"the reference's rms was {was.expected_rms:g}, is {is_.expected_rms:g}"
    return ""


def _row(was: Row, is_: Row, rtol: float, *, elsewhere: bool) -> _Move:
    """Compare two errors of the same value."""
    one, two = was.comparison, is_.comparison
    places = one.nonfinite_mismatched, two.nonfinite_mismatched
    if places[0] != places[1]:
        return _Move(
            Change.WORSE if places[1] > places[0] else Change.BETTER,
            f"not finite at {places[0]:,} → {count(places[1], 'place')}",
            math.inf,
        )
    floor = max(one.floor, two.floor) if one.floor and two.floor else None
    moves = []
    for name in thresholds.MOVES:
        metric = METRIC[name]
        numbers = metric.of(one, rtol), metric.of(two, rtol)
        before, after = (math.nan if each is None else each for each in numbers)
        change = thresholds.of_metric(name, before, after, floor, elsewhere=elsewhere)
        if change is not Change.SAME:
            small, large = sorted((before, after))
            finite = small > 0.0 and math.isfinite(large)
            words = _moved(metric, was, is_, before, after, rtol)
            moves.append(_Move(change, words, large / small if finite else math.inf))
    if not moves:
        return _Move(Change.SAME)
    changes, words_, factors = zip(*moves, strict=True)
    change = Change.WORSE if Change.WORSE in changes else Change.BETTER
    return _Move(change, ", ".join(words_), max(1.0, *factors))


def _moved(  # noqa: PLR0917  # a metric of two rows, and its two numbers
    metric: Metric, was: Row, is_: Row, before: float, after: float, rtol: float
) -> str:
    """Return a phrase about a metric of a row, before and after."""
    at = ""
    if metric.name == "rms" and is_.what == IMAGE:
        # A picture's error is shown as PSNR, as is usual for pictures.
        metric, before, after = METRIC["psnr_db"], psnr_db(before), psnr_db(after)
    elif metric.name == "rms":
        one, two = floors_of(was.comparison), floors_of(is_.comparison)
        if one is not None and two is not None:
            return f"{in_floors(one)} → {in_floors(two)}"
    elif metric.name == "atol":
        at = f" at rtol {rtol:.0e}" if rtol else " at rtol 0"
    return metric.phrase.format(f"{before:{metric.spec}} → {after:{metric.spec}}") + at


def _together(
    what: str, rows: Sequence[_Move], before: CaseReport, after: CaseReport
) -> _Move:
    """Return the change of a check, with the phrase of its loudest row."""
    by_change: defaultdict[Change, list[_Move]] = defaultdict(list)
    for row in rows:
        by_change[row.change].append(row)
    # Layers come and go with the exporter's choice of operators: coverage tells
    # whether fewer are compared. An output or a sample that is gone is different.
    order = [Change.WORSE, Change.INCOMPARABLE, Change.GONE, Change.BETTER, Change.NEW]
    if what == LAYERS and by_change[Change.SAME]:
        order = [Change.WORSE, Change.INCOMPARABLE, Change.BETTER]
    loudest = next((each for each in order if by_change[each]), Change.SAME)
    move = _Move(Change.SAME)
    if loudest is not Change.SAME:
        alike = by_change[loudest]
        move = max(alike, key=lambda each: each.factor)
        number = f"{len(alike):,} of {count(len(rows), 'value')}"
        move = move._replace(words=f"{number}; {move.words}")
    samples, now = ({row.sample for row in one.rows[what]} for one in (before, after))
    # Layers may come and go one by one, and not those of a whole sample.
    if what == LAYERS and samples - now and loudest is not Change.WORSE:
        words = f"no {what} of {few(sorted(samples - now))} now"
        move = move._replace(change=Change.GONE, words=words)
    return move
