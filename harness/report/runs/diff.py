"""Two runs held against each other, row by row, over the union of what they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.outcome import Outcome
from harness.core.text import count, in_bytes
from harness.report.runs import thresholds
from harness.report.runs.rows import RtolOf, compare_rows, rows_of, together
from harness.report.runs.snapshot import KeptCase, Snapshot
from harness.report.runs.thresholds import Change
from harness.report.runs.times import compare_times

SIZE, MEMORY, SETTINGS, COVERAGE = "size", "memory", "settings", "coverage"

_PASSED = {outcome.value for outcome in Outcome if outcome.passed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one thing of one case.

    Attributes:
        case: Its name in both runs.
        what: A check, ``size``, ``memory``, ``settings``, ``coverage`` or the metric
            of a benchmark.
        change: What became of it.
        words: That in a phrase with numbers; empty for what is the same.
        rows: For a check, how many of its rows went which way.
        factor: How many times the error of its loudest row is another.
        of_machine: Whether it is time or memory, which another machine changes.
        of_case: Whether it says that one run lacks the whole case.

    """

    case: str
    what: str
    change: Change
    words: str = ""
    rows: Mapping[Change, int] | None = None
    factor: float = 1.0
    of_machine: bool = False
    of_case: bool = False

    @property
    def name(self) -> str:
        """The case, and what of it unless all of it is meant."""
        return self.case if self.of_case else f"{self.case}/{self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All that is different between two runs, and how much is not.

    Attributes:
        before: The run held against.
        after: The run that is held.
        findings: One for each check and each measurement of each case, in order.
        files: Files of the suite that differ.
        versions: Tool to its two versions, where they differ.
        machines: Why times cannot be held against each other; empty if they can.

    """

    before: str
    after: str
    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]
    machines: str

    def of(self, *changes: Change) -> list[Finding]:
        """Return the findings that went one of these ways, the loudest first."""
        found = [finding for finding in self.findings if finding.change in changes]
        return sorted(found, key=lambda finding: -finding.factor)

    @property
    def tells(self) -> bool:
        """Whether any check of one run could be held against the other's.

        That nothing came out where something did is an answer, too.
        """
        told = (Change.SAME, Change.WORSE, Change.BETTER, Change.GONE)
        return any(
            finding.rows is not None or finding.change is Change.WORSE
            for finding in self.of(*told)
        )

    @property
    def blocking(self) -> list[Finding]:
        """The findings that speak against the later run.

        That another machine tells nothing of time and memory is said, and is no fault
        of the run.
        """
        return [
            finding
            for finding in self.of(Change.WORSE, Change.GONE, Change.INCOMPARABLE)
            if finding.change is not Change.INCOMPARABLE or not finding.of_machine
        ]


def diff(before: Snapshot, after: Snapshot, rtol_of: RtolOf) -> Diff:
    """Hold a run against an earlier one.

    Args:
        before: The earlier run, or a baseline.
        after: The run to hold against it.
        rtol_of: By which rtol the required atol of a row is compared.

    """
    machines = _machines(before, after)
    names = list(dict.fromkeys((*before.cases, *after.cases)))
    findings: list[Finding] = []
    for name in names:
        one, two = before.cases.get(name), after.cases.get(name)
        findings += _case(name, one, two, rtol_of, machines)
    findings += _benchmarks(before, after, machines)
    versions = {
        tool: (before.versions.get(tool, "none"), after.versions.get(tool, "none"))
        for tool in sorted({**before.versions, **after.versions})
        if before.versions.get(tool) != after.versions.get(tool)
    }
    files = {**before.files, **after.files}
    return Diff(
        before=before.id,
        after=after.id,
        findings=tuple(findings),
        files=tuple(
            name for name in files if before.files.get(name) != after.files.get(name)
        ),
        versions=versions,
        machines=machines,
    )


def _machines(before: Snapshot, after: Snapshot) -> str:
    if before.machine == after.machine:
        return ""
    one, two = (
        f"{run.environment['cpu']}, {count(run.environment['core_count'], 'core')}"
        for run in (before, after)
    )
    return (
        f"another machine: {one} before, {two} now"
        if one != two
        else ("another machine of the same processor")
    )


def _case(
    name: str,
    before: KeptCase | None,
    after: KeptCase | None,
    rtol_of: RtolOf,
    machines: str,
) -> Iterator[Finding]:
    before = _that_ran(before)
    if before is None or after is None or not _that_ran(after):
        yield from _only_one(name, before, after)
        return
    for what in dict.fromkeys((*before.outcomes, *after.outcomes)):
        yield _check(name, what, before, after, rtol_of)
    yield _settings(name, before, after)
    if not before.rows or not after.rows:
        # A stage ended without an answer: nothing was deployed, or nothing ran.
        return
    yield _coverage(name, before, after)
    yield _amount(name, SIZE, before.size_bytes, after.size_bytes, thresholds.of_size)
    if machines:
        yield Finding(
            case=name,
            what=MEMORY,
            change=Change.INCOMPARABLE,
            words=machines,
            of_machine=True,
        )
    else:
        peaks = before.peak_bytes, after.peak_bytes
        found = _amount(name, MEMORY, *peaks, thresholds.of_memory)
        yield replace(found, of_machine=True)


def _only_one(
    name: str, before: KeptCase | None, after: KeptCase | None
) -> Iterator[Finding]:
    """Yield a finding a check of a case that one of two runs lacks."""
    if before is None:
        change, outcomes = Change.NEW, after.outcomes if after else {}
    else:
        change, outcomes = Change.GONE, before.outcomes
    for what in outcomes:
        words = "no such case before" if before is None else "no such case now"
        if before is not None and after is not None:
            words = after.reasons.get(what, words)
        yield Finding(case=name, what=what, change=change, words=words, of_case=True)


def _that_ran(case: KeptCase | None) -> KeptCase | None:
    """Return a case unless its runtime was missing, which is as good as no case."""
    if case is None or Outcome.UNAVAILABLE in case.outcomes.values():
        return None
    return case


def _check(
    name: str, what: str, before: KeptCase, after: KeptCase, rtol_of: RtolOf
) -> Finding:
    was, is_ = before.outcomes.get(what), after.outcomes.get(what)
    if was is None or is_ is None:
        change = Change.NEW if was is None else Change.GONE
        return Finding(case=name, what=what, change=change, words=was or is_ or "")
    if was in _PASSED and is_ not in _PASSED and not rows_of(after, what):
        # A stage ended without an answer, so no row tells more than this.
        words = f"was {was}, {is_}: {after.reasons[what]}"
        return Finding(case=name, what=what, change=Change.WORSE, words=words)
    compared = list(compare_rows(name, what, before, after, rtol_of))
    found = together(what, compared)
    change, words = found.change, found.words
    if was in _PASSED and is_ not in _PASSED:
        change = Change.WORSE
        words = f"was {was}, {is_}; {words or after.reasons[what]}"
    elif change is Change.SAME and was not in _PASSED and is_ in _PASSED:
        change, words = Change.BETTER, f"was {was}, {is_}"
    return Finding(
        case=name,
        what=what,
        change=change,
        words=words,
        rows=Counter(row.change for row in compared),
        factor=found.factor,
    )


def _settings(name: str, before: KeptCase, after: KeptCase) -> Finding:
    asked = {**before.asked, **after.asked}
    changed = [
        f"{key} {_setting(before.asked.get(key))} → {_setting(after.asked.get(key))}"
        for key in asked
        if before.asked.get(key) != after.asked.get(key)
    ]
    change = Change.INCOMPARABLE if changed else Change.SAME
    return Finding(case=name, what=SETTINGS, change=change, words=", ".join(changed))


def _setting(value: object) -> str:
    """Return a device setting in words; hints are pairs of a name and a number."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return str(value)
    return ", ".join(f"{name} = {number}" for name, number in value) or "none"


def _coverage(name: str, before: KeptCase, after: KeptCase) -> Finding:
    one, two = before.coverage or 0.0, after.coverage or 0.0
    change, words = Change.SAME, ""
    if one != two:
        change = Change.WORSE if two < one else Change.BETTER
        words = f"{one:.1%} → {two:.1%} of computing operators compared"
    return Finding(case=name, what=COVERAGE, change=change, words=words)


def _amount(
    name: str,
    what: str,
    before: int,
    after: int,
    rule: Callable[[int, int], Change],
) -> Finding:
    change = rule(before, after)
    words = ""
    if change is not Change.SAME:
        one, two = (in_bytes(value) for value in (before, after))
        words = f"{one} → {two} ({after / before - 1:+.0%})" if before else two
    return Finding(case=name, what=what, change=change, words=words)


def _benchmarks(before: Snapshot, after: Snapshot, machines: str) -> Iterator[Finding]:
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
        elif is_ is None and not machines:
            change = Change.GONE
            words = "measured before and not now; `parity bench` adds it to the run"
        elif is_ is not None and not machines:
            change, words = compare_times(was, is_, same_torch=same_torch)
        yield Finding(
            case=case, what=metric, change=change, words=words, of_machine=True
        )
