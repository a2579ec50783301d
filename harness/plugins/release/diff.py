"""Compare two runs, row by row, over the union of their rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.core.comparison import Comparison
from harness.core.end_to_end import IMAGE, PAIRS
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, CaseRecord, Row, coverage_share
from harness.core.text import count, few, in_bytes, in_floors
from harness.engine.finished_run import CaseReport, Report, differing
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowChange:
    """The change of one row, and the factor by which its error changed."""

    change: Change
    words: str = ""
    factor: float = 1.0


_Compare = Callable[[str, Row, Row], _RowChange]
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
            one.change is Change.WORSE
            # A check with a new sample was compared on the others.
            or (one.rows is not None and not told.isdisjoint((one.change, *one.rows)))
            for one in self.findings
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

    def compare(name: str, was: Row, is_: Row) -> _RowChange:
        return _row(was, is_, rtol_of(name, is_), elsewhere=elsewhere)

    one, two = before.cases, after.cases
    findings: list[RunChange] = []
    for name in dict.fromkeys((*one, *two)):
        findings += _case(
            name, one.get(name), two.get(name), compare, machines, elsewhere=elsewhere
        )
    findings += _benchmarks(before, after, machines)
    return Diff(
        before=before.id,
        after=after.id,
        findings=tuple(findings),
        files=other_files(before, after),
        versions=other_versions(before, after),
        machines=machines,
        causes={
            name: causes
            for name in one.keys() & two.keys()
            if (causes := _causes(one[name].record, two[name].record))
        },
    )


def _causes(before: CaseRecord, after: CaseRecord) -> tuple[str, ...]:
    return *task_causes(before, after), *settings_causes(before, after)


def other_files(before: Report, after: Report) -> tuple[str, ...]:
    """Return the names of the suite's files that differ between two runs."""
    return tuple(differing(before.files, after.files))


def other_versions(before: Report, after: Report) -> dict[str, tuple[str, str]]:
    """Return each tool whose version differs between two runs, to both versions."""
    one, two = before.versions, after.versions
    return {
        tool: (one.get(tool, "none"), two.get(tool, "none"))
        for tool in sorted(differing(one, two))
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
    records = {name: case.record for name, case in after.cases.items()}

    def rtol(name: str, row: Row) -> float:
        record = records[name]
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


def _case(
    name: str,
    before: CaseReport | None,
    after: CaseReport | None,
    compare: _Compare,
    machines: str,
    *,
    elsewhere: bool,
) -> Iterator[RunChange]:
    before = _that_ran(before)
    if before is None or after is None or not _that_ran(after):
        yield from _only_one(name, before, after)
        return
    for what in dict.fromkeys((*before.ends, *after.ends)):
        yield _check(name, what, before, after, compare, elsewhere=elsewhere)
    one, two = before.record, after.record
    changed = settings_causes(one, two)
    told = {
        SETTINGS: (Change.INCOMPARABLE if changed else Change.SAME, ", ".join(changed))
    }
    # Without rows a stage ended without a result: nothing was deployed, or nothing ran.
    if one.rows and two.rows:
        told[COVERAGE] = _coverage(one, two)
        told[SIZE] = _amount(_size(one), _size(two), thresholds.of_size)
        told[MEMORY] = Change.INCOMPARABLE, machines
        if not machines:
            peaks = one.peak_bytes, two.peak_bytes
            told[MEMORY] = _amount(*peaks, thresholds.of_memory)
    for what, (change, words) in told.items():
        machine = what == MEMORY
        yield RunChange(
            case=name,
            what=what,
            change=change,
            words=words,
            of_machine=machine,
            causes=changed if what == SETTINGS else (),
        )


def _only_one(
    name: str, before: CaseReport | None, after: CaseReport | None
) -> Iterator[RunChange]:
    """Yield a finding for each check of a case that one of two runs lacks."""
    then, now = (case.ends if case else {} for case in (before, after))
    if before is None:
        change, words, ends = Change.NEW, "no such case before", now
    else:
        change, words, ends = Change.GONE, "no such case now", then
    for what in ends:
        if before and what in now:
            words = now[what].reason
        yield RunChange(case=name, what=what, change=change, words=words, of_case=True)


def _that_ran(case: CaseReport | None) -> CaseReport | None:
    """Return a case; None if its runtime was missing, which counts as no case."""
    ends = case.ends.values() if case else ()
    return None if Outcome.UNAVAILABLE in {end.outcome for end in ends} else case


def _check(
    name: str,
    what: str,
    before: CaseReport,
    after: CaseReport,
    compare: _Compare,
    *,
    elsewhere: bool,
) -> RunChange:
    was, is_ = before.ends.get(what), after.ends.get(what)
    if was is None or is_ is None:
        change = Change.NEW if was is None else Change.GONE
        outcome = "".join(end.outcome for end in (was, is_) if end)
        return RunChange(case=name, what=what, change=change, words=outcome)
    fails = was.outcome in _PASSED and is_.outcome not in _PASSED
    if what == PAIRS:
        both = (before.record.pipeline or {}), (after.record.pipeline or {})
        if all(PAIRS in each for each in both):
            one, two = (each[PAIRS] for each in both)
            change, words = compare_pairs(one, two, elsewhere=elsewhere)
            if fails and change is not Change.WORSE:
                change, words = Change.WORSE, is_.reason
            return RunChange(case=name, what=what, change=change, words=words)
    if fails and not rows_of(after.record, what):
        # A stage ended without a result, so no row tells more than this.
        words = f"was {was.outcome}, {is_.outcome}: {is_.reason}"
        return RunChange(case=name, what=what, change=Change.WORSE, words=words)
    causes = task_causes(before.record, after.record)
    compared = list(_compare_rows(name, what, before.record, after.record, compare))
    found = _together(what, compared)
    change, words = found.change, found.words
    samples, now = (
        {row.sample for row in rows_of(case.record, what)} for case in (before, after)
    )
    # Layers may come and go one by one, and not those of a whole sample.
    if what == LAYERS and samples - now and change is not Change.WORSE:
        change, words = Change.GONE, f"no {what} of {few(sorted(samples - now))} now"
    if fails:
        change = Change.WORSE
        words = f"was {was.outcome}, {is_.outcome}; {words or is_.reason}"
    passes = was.outcome not in _PASSED and is_.outcome in _PASSED
    if passes and change is Change.SAME:
        change, words = Change.BETTER, f"was {was.outcome}, {is_.outcome}"
    return RunChange(
        case=name,
        what=what,
        change=change,
        words=words,
        rows=Counter(row.change for row in compared),
        factor=found.factor,
        causes=causes if change is Change.INCOMPARABLE else (),
    )


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
    for case, metric in dict.fromkeys((*one, *two)):
        was, is_ = one.get((case, metric)), two.get((case, metric))
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


def rows_of(record: CaseRecord, what: str) -> list[Row]:
    """Return the rows of one check."""
    return [row for row in record.rows if row.what == what]


def floors_of(comparison: Comparison) -> float | None:
    """Return an error in noise floors, also for a comparison of a baseline."""
    if comparison.floor is None:
        return None
    if comparison.rms == 0.0:
        return 0.0
    return comparison.rms / comparison.floor if comparison.floor else math.inf


def _compare_rows(
    name: str, what: str, before: CaseRecord, after: CaseRecord, compare: _Compare
) -> Iterator[_RowChange]:
    """Compare the rows of one check with another run's, over the union of both."""
    one, two = rows_of(before, what), rows_of(after, what)
    otherwise = {row.sample for row in two if not same_task(row.sample, before, after)}
    other_task = "; ".join(task_causes(before, after))
    for was, is_ in _paired(one, two, otherwise):
        row = is_ or was
        place = f"{row.place} ({row.sample})" if row else ""
        if was is None or is_ is None:
            change = Change.NEW if was is None else Change.GONE
            yield _RowChange(change=change, words=place)
            continue
        other = other_task
        if is_.sample not in otherwise:
            other = _other_reference(was.comparison, is_.comparison)
        if other:
            yield _RowChange(change=Change.INCOMPARABLE, words=f"{place}: {other}")
            continue
        found = compare(name, was, is_)
        if found.change is Change.SAME:
            yield found
        else:
            yield replace(found, words=f"{place}: {found.words}")


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


def _row(was: Row, is_: Row, rtol: float, *, elsewhere: bool) -> _RowChange:
    """Compare two errors of the same value."""
    one, two = was.comparison, is_.comparison
    places = one.nonfinite_mismatched, two.nonfinite_mismatched
    if places[0] != places[1]:
        return _RowChange(
            change=Change.WORSE if places[1] > places[0] else Change.BETTER,
            words=f"not finite at {places[0]:,} → {count(places[1], 'place')}",
            factor=math.inf,
        )
    floor = max(one.floor, two.floor) if one.floor and two.floor else None
    changes, words, factors = [], [], [1.0]
    for name in thresholds.MOVES:
        metric = METRIC[name]
        errors = _number(metric, one, rtol), _number(metric, two, rtol)
        change = thresholds.of_metric(name, *errors, floor, elsewhere=elsewhere)
        if change is not Change.SAME:
            changes.append(change)
            words.append(_moved(metric, was, is_, rtol))
            small, large = sorted(errors)
            finite = small > 0.0 and math.isfinite(large)
            factors.append(large / small if finite else math.inf)
    if not changes:
        return _RowChange(change=Change.SAME)
    return _RowChange(
        change=Change.WORSE if Change.WORSE in changes else Change.BETTER,
        words=", ".join(words),
        factor=max(factors),
    )


def _number(metric: Metric, comparison: Comparison, rtol: float) -> float:
    number = metric.of(comparison, rtol)
    return math.nan if number is None else number


def _moved(metric: Metric, was: Row, is_: Row, rtol: float) -> str:
    """Return a phrase about a metric of a row, before and after."""
    one, two = (_number(metric, row.comparison, rtol) for row in (was, is_))
    floors = floors_of(was.comparison), floors_of(is_.comparison)
    after = ""
    if metric.name == "rms" and is_.what == IMAGE:
        # A picture's error is shown as PSNR, as is usual for pictures.
        metric, one, two = METRIC["psnr_db"], psnr_db(one), psnr_db(two)
    elif metric.name == "rms" and floors[0] is not None and floors[1] is not None:
        return f"{in_floors(floors[0])} → {in_floors(floors[1])}"
    elif metric.name == "atol":
        after = f" at rtol {rtol:.0e}" if rtol else " at rtol 0"
    return metric.phrase.format(f"{one:{metric.spec}} → {two:{metric.spec}}") + after


def _together(what: str, rows: Sequence[_RowChange]) -> _RowChange:
    """Return the change of a check, with the phrase of its loudest row."""
    by_change: dict[Change, list[_RowChange]] = {}
    for row in rows:
        by_change.setdefault(row.change, []).append(row)
    # Layers come and go with the exporter's choice of operators: coverage tells
    # whether fewer are compared. An output or a sample that is gone is different.
    order = [Change.WORSE, Change.INCOMPARABLE, Change.GONE, Change.BETTER, Change.NEW]
    if what == LAYERS and by_change.get(Change.SAME):
        order = [Change.WORSE, Change.INCOMPARABLE, Change.BETTER]
    for change in order:
        if found := by_change.get(change):
            loudest = max(found, key=lambda row: row.factor)
            number = f"{len(found):,} of {count(len(rows), 'value')}"
            return replace(loudest, words=f"{number}; {loudest.words}")
    return _RowChange(change=Change.SAME)
