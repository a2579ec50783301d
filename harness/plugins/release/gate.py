"""The release gate: whether a run may ship, the reasons, and the accepted failures.

    parity gate RUN --baseline digits

A run may ship if every check passes today, nothing is worse than in the baseline,
nothing of the baseline is missing, and everything could be compared.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from harness.core.end_to_end import PAIRS
from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY, Outcome
from harness.core.record import Key
from harness.core.text import INDENT, Line, count, few, wrapped
from harness.judge.case import CaseVerdict, skipped
from harness.judge.run import gate_code
from harness.plugins.release.baseline import Baseline
from harness.plugins.release.diff import Diff, RunChange
from harness.plugins.release.screen import SHOWN, also, and_more, listed, notes, totals
from harness.plugins.release.thresholds import Change
from harness.report.markdown import block, word

SHIP, DO_NOT_SHIP, CANNOT_SAY = PARITY, NO_PARITY, CANNOT_TELL
"""The exit codes of a run, under their names for a release."""

_WORDS = ("SHIP", "DO NOT SHIP", "CANNOT SAY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason not to ship.

    Attributes:
        name: The case, and its check or measurement.
        kind: ``worse``, ``gone``, ``inconclusive``, ``incomparable``, ``stale``,
            ``partial``, or how a check ended.
        words: The reason in a phrase with numbers.
        causes: What changed in the case since the baseline. It is why the result is
            ``incomparable``; beside another kind it is only what may matter.

    """

    name: str
    kind: str
    words: str
    causes: tuple[str, ...] = ()

    @property
    def is_caused(self) -> bool:
        """Whether nothing is wrong but that something else was compared."""
        return self.kind == Change.INCOMPARABLE and bool(self.causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Excused:
    """Failures that do not stop a release, because somebody has accepted them.

    Attributes:
        name: Shell pattern of a known gap, or the id of a check.
        outcome: How the checks fail.
        checks: Number of checks of the run that fail in this way.
        who: The person who accepted it; empty if no person is named.
        until: The last day on which it is accepted; None for no limit.

    """

    name: str
    outcome: str
    checks: int
    who: str
    until: date | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The gate's decision on a run; it may ship if there are no reasons."""

    baseline: Baseline
    reasons: tuple[Reason, ...]
    excused: tuple[Excused, ...]
    diff: Diff

    @property
    def code(self) -> int:
        """The decision as an exit code: may ship, may not ship, or could not tell."""
        return gate_code(compared=self.diff.tells, reasons=bool(self.reasons))


def decide(
    baseline: Baseline,
    found: Diff,
    verdicts: Sequence[CaseVerdict],
    *,
    names: Mapping[Key, str],
    stale: Iterable[str] = (),
    required: Collection[str] = (),
    whole: bool = True,
) -> Decision:
    """Return whether a run may ship.

    `verdicts` are the run's checks as judged today, and `stale` has errors in the files
    that describe the run. Backends in `required` must not be skipped. A run that was
    not `whole` lacks cases of its suite.
    """
    by_name = {
        f"{names[verdict.key]}/{verdict.what}": verdict
        for verdict in verdicts
        if not skipped(verdict, required)
    }
    told = dict(sorted(by_name.items()))
    # A run of some cases has the others in no other run: that is one reason.
    left_out = {
        one.case for one in found.of(Change.GONE) if one.case not in names.values()
    }
    left_out = set() if whole else left_out
    worse = {
        f"{finding.case}/{finding.what}": finding
        for finding in found.blocking
        if finding.case not in left_out
    }
    failing = {name: v for name, v in told.items() if not v.outcome.passed}
    reasons: list[Reason] = []
    kept: list[str] = []
    for name, verdict in failing.items():
        accepted, unseen = _accepted_before(baseline, name, verdict)
        if accepted and name not in worse:
            kept.append(name)
            continue
        reasons.append(
            Reason(
                name=name,
                kind=verdict.outcome.value,
                words=_why(verdict, worse.get(name), unseen),
                causes=found.causes.get(name.rpartition("/")[0], ()),
            )
        )
    reasons += [
        Reason(
            # A missing case is one reason, however many checks it had.
            name=finding.name,
            kind=finding.change.value,
            words=_with_picture(finding.words, told.get(name)),
            causes=finding.causes or found.causes.get(finding.case, ()),
        )
        for name, finding in worse.items()
        if name not in failing
    ]
    # A new case is in no baseline, so only the suite tells that the run lacks it.
    if left_out or (not whole and baseline.report.about["whole"]):
        lacks = "some of its checks"
        if left_out:
            lacks = f"{count(len(left_out), 'case')} of the baseline"
        text = (
            f"the run is a part of its suite and lacks {lacks}; run all of it with "
            "`parity run`, or `parity merge` its shards"
        )
        reasons.append(Reason(name="the run", kind="partial", words=text))
    reasons += [
        Reason(name="the suite", kind="stale", words=complaint) for complaint in stale
    ]
    return Decision(
        baseline=baseline,
        reasons=tuple(dict.fromkeys(reasons)),
        excused=(*_known(told.values()), *_accepted(baseline, kept, failing)),
        diff=found,
    )


def _accepted_before(
    baseline: Baseline, name: str, verdict: CaseVerdict
) -> tuple[bool, list[str]]:
    """Return whether somebody accepted this failure, and no other one of the check.

    The list has the samples that fail now and of which the accepted run has no value.
    """
    was = baseline.report.checks.get(name)
    if was is None or name not in baseline.accepted.failing:
        return False, []
    rows = baseline.report.cases[name.rpartition("/")[0]].rows[verdict.what]
    failing = dict.fromkeys(j.row.sample for j in verdict.rows if not j.verdict.passed)
    there = {row.sample for row in rows}
    unseen = [sample for sample in failing if sample not in there]
    same = was.outcome == verdict.outcome and verdict.outcome is not Outcome.STALE_GAP
    return same and not unseen, unseen


def _why(
    verdict: CaseVerdict, finding: RunChange | None, unseen: Collection[str]
) -> str:
    """Return why a check fails, where it first fails, and its earlier result."""
    words = verdict.reason
    if verdict.first is not None and verdict.outcome is not Outcome.STALE_GAP:
        words += f"; first at {verdict.first.row.place}"
    if unseen:
        words += f"; the accepted run did not have {few(list(unseen))}"
    # A check that passed in the baseline may give its reason as the change too.
    if finding and not finding.causes and finding.words not in words:
        words += f"; {finding.words}"
    return _with_picture(words, verdict)


def _with_picture(words: str, verdict: CaseVerdict | None) -> str:
    """Add the error of the picture and its cause, or the verdict on the pairs."""
    if verdict is None or verdict.picture in {"", *words.split("; ")}:
        return words
    if verdict.what == PAIRS:
        # The words are about the accepted build, and this verdict is about the margin.
        return f"{words}; by its own margin: {verdict.picture}"
    return f"{words}; {verdict.picture}"


def _known(verdicts: Iterable[CaseVerdict]) -> Iterator[Excused]:
    covered = Counter(
        verdict.gap for verdict in verdicts if verdict.outcome is Outcome.GAP
    )
    for gap, number in covered.items():
        if gap is None:
            continue
        yield Excused(
            name=gap.case,
            outcome=gap.outcome.value,
            checks=number,
            who=gap.who,
            until=gap.until,
            why=gap.why + (f" (issue {gap.issue})" if gap.issue else ""),
        )


def _accepted(
    baseline: Baseline, kept: Iterable[str], failing: Mapping[str, CaseVerdict]
) -> Iterator[Excused]:
    for name in kept:
        yield Excused(
            name=name,
            outcome=failing[name].outcome.value,
            checks=1,
            who=baseline.accepted.who,
            until=None,
            why=f"{baseline.accepted.why} (with the baseline)",
        )


# The page


def gate_lines(decision: Decision, *, every: bool = False) -> Iterator[Line]:
    """Yield the page. Unless `every`, it merges similar reasons and shows the first."""
    code = decision.code
    tone = "good" if code == SHIP else "bad"
    kept, accepted = decision.baseline, decision.baseline.accepted
    yield Line(text=f"{_WORDS[code]}   {decision.diff.after}", tone=tone)
    yield Line(
        text=f" compared with {kept.name}, run {decision.diff.before}, accepted "
        f"{accepted.when} by {accepted.who}"
    )
    if code == CANNOT_SAY:
        text = "no check of the run could be compared with the baseline's"
        yield from wrapped(text, indent=" ")
    causes = _by_cause(decision.reasons)
    yield from _causes(causes, decision, every=every)
    rest = [reason for reason in decision.reasons if not reason.is_caused]
    yield from _reasons(rest, list(causes), every=every)
    yield from _excused(decision.excused)
    yield from listed(decision.diff.of(Change.NEW), tone="quiet")
    better = decision.diff.of(Change.BETTER)
    yield from listed(better[:SHOWN], tone="good")
    yield from totals(decision.diff)
    yield from notes(decision.diff)


def _by_cause(reasons: Sequence[Reason]) -> dict[str, list[str]]:
    """Return each cause to the results that cannot be compared because of it."""
    causes: dict[str, list[str]] = {}
    for reason in reasons:
        for cause in reason.causes if reason.is_caused else ():
            causes.setdefault(cause, []).append(reason.name)
    return causes


def _causes(
    causes: Mapping[str, Sequence[str]], decision: Decision, *, every: bool
) -> Iterator[Line]:
    """Yield what changed, what cannot be compared therefore, and what to do."""
    for number, (cause, names) in enumerate(causes.items(), 1):
        yield Line(text=f" {number:>2}  {cause}", tone="bad")
        listed = ", ".join(names) if every else few(names)
        results = count(len(names), "result")
        yield from wrapped(f"{results} cannot be compared: {listed}", tone="quiet")
    if causes:
        run = f"{decision.diff.after} --name {shlex.quote(decision.baseline.name)}"
        fails = any(reason.kind in _FAILING for reason in decision.reasons)
        why = " --why REASON" if fails else ""
        yield from wrapped(
            f"if that is meant, `parity baseline accept {run}{why}`; if not, undo it"
        )


_FAILING = {outcome.value for outcome in Outcome if not outcome.passed}


def _reasons(
    reasons: Sequence[Reason], causes: Sequence[str], *, every: bool
) -> Iterator[Line]:
    together: dict[tuple[str, ...], list[Reason]] = {}
    for reason in reasons:
        alike = (reason.kind, reason.words, *([reason.name] if every else []))
        together.setdefault(alike, []).append(reason)
    for number, ((kind, words, *_), some) in enumerate(together.items(), 1):
        if number > SHOWN and not every:
            more = count(len(together) - SHOWN, "more reason")
            yield Line(text=f"     and {more}, in gate.md", tone="bad")
            return
        names = [reason.name for reason in some]
        text = f" {number + len(causes):>2}  {names[0]}{and_more(names)}   {kind}"
        yield Line(text=text, tone="bad")
        yield from wrapped(words)
        numbers = [
            str(at)
            for at, cause in enumerate(causes, 1)
            if any(cause in reason.causes for reason in some)
        ]
        if numbers:
            of = " and ".join(numbers)
            yield from wrapped(f"in this case {of} changed too", tone="quiet")
        yield from also(names, INDENT)


def _excused(excused: Sequence[Excused]) -> Iterator[Line]:
    if excused:
        yield Line(text=f" {count(len(excused), 'accepted failure')}")
    for one in excused:
        who = f"accepted by {one.who}" if one.who else "nobody says who accepted it"
        until = f"until {one.until}" if one.until else "with no last day"
        text = f"{one.outcome}, {count(one.checks, 'check')}; {who}, {until}"
        yield Line(text=f"   {one.name}   {text}")
        yield from wrapped(one.why, tone="quiet")


def gate_markdown(decision: Decision) -> str:
    """Return the page for a pull request, with every reason."""
    head, *lines = gate_lines(decision, every=True)
    return f"## {word(head.text)}\n\n{block(lines)}\n"
