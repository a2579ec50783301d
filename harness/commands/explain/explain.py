"""From "they differ" to the knob that mends it: turn each, and measure.

A knob is first tried on an excerpt, the operators around the divergence with the
reference's values fed to them, and what moves it there is confirmed on the whole
component. It never guesses: what it says was run, and where no knob helps it says so.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.commands.explain.around import smallest_excerpt
from harness.commands.explain.knobs import (
    Knob,
    again,
    in_float16,
    knobs_of,
    pairs_of,
    plain_variant,
)
from harness.commands.explain.losses import losses_of
from harness.core.case import Case
from harness.core.errors import OnlyInGraphError, ParityError, SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Row
from harness.core.runtime import runtime, runtimes
from harness.core.text import in_floors
from harness.engine.engine import Engine
from harness.engine.excerpt import Excerpt, Spot
from harness.judge.case import CaseVerdict, JudgedRow
from harness.measure.float16 import kept_values
from harness.suite.judge import Judge

MOVED = 0.02
"""A knob that changes an error by less than this share did nothing."""

HELPS = 0.1
"""Two knobs are turned together if each removes at least this share of the error;
another exporter and another attention always are."""

TIMED_RUNS = 3
"""Runs of either side that a knob's cost in time is read from, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a case measures with one knob turned.

    Attributes:
        knob: Which; None as it was.
        floors: Error at the divergence; NaN where the value is not there any more.
        output_floors: Largest error of an output.
        passed: Whether every layer and output is within tolerance.
        mended: Whether the value at the divergence is; where it is not there any more,
            whether all else is.
        whole: Whether the whole component ran, or the excerpt alone.
        size_bytes: Of the deployed file.
        peak_bytes: Memory of the process that ran it.
        failure: Why it could not be measured; empty if it was.

    """

    knob: Knob | None
    floors: float = math.nan
    output_floors: float = math.nan
    passed: bool = False
    mended: bool = False
    whole: bool = True
    size_bytes: int = 0
    peak_bytes: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What was found out about a case.

    Attributes:
        case: As it was.
        verdict: Of its layers, or of its outputs where every layer agrees.
        first: The first divergence.
        signature: What the error looks like; empty if like nothing known.
        leg: Where it comes in, in words.
        chance: That the converter's luck decides, in words; empty if it does not.
        before: As it was, whole.
        excerpt: As it was, around the divergence alone; None if nothing was cut.
        trials: In order of trying; a knob that the excerpt cleared has no second one.
        spared: Knobs that were not tried, since another mended all.
        slower: Time of the best mending knob over that of before; NaN if none mends.
        took_s: All in all.

    """

    case: Case
    verdict: CaseVerdict
    first: JudgedRow
    signature: str
    leg: str
    chance: str
    before: Trial
    excerpt: Trial | None
    trials: tuple[Trial, ...]
    spared: tuple[Knob, ...]
    slower: float
    took_s: float

    @property
    def mending(self) -> tuple[Trial, ...]:
        """Trials that mend it, those that mend all of it first, finer ones before."""
        return _mending(self.trials)

    @property
    def own(self) -> float | None:
        """Error that the operator brings by itself, in floors, if that was measured."""
        for judged in self.verdict.origins:
            if judged.row.probe == self.first.row.probe:
                return judged.row.comparison.floor_multiple
        return None


def explain(
    engine: Engine,
    judge: Judge,
    case: Case,
    say: Callable[[str], None],
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Find the divergence of a case, and try every knob that it has.

    Args:
        engine: Runs cases.
        judge: Says what is out of tolerance.
        case: To explain.
        say: Told what is tried next.
        tell: Told what the graph itself shows, before anything is tried.

    Raises:
        OnlyInGraphError: No value is out of tolerance, and the graph is not PyTorch's.
        SuiteError: There is nothing to explain: it agrees, or was never compared.

    """
    start = time.monotonic()
    say("as it is")
    record = engine.run(case)
    verdict = _parting(judge, record, case, tell)
    sample = next(s for s in case.samples if s.id == _first(verdict).row.sample)
    if verdict.what == LAYERS:
        rows = engine.isolate(case, sample)
        record = replace(record, rows=(*record.rows, *rows))
        verdict = _parting(judge, record, case, lambda _: None)
    first = _first(verdict)
    tries = _Tries(engine, judge, replace(case, samples=(sample,)), first.row, say)
    blamed = [judged.row.probe for judged in verdict.origins] or [first.row.probe]
    tries.cut(record, blamed[0] if first.row.probe not in blamed else first.row.probe)
    lost = kept_values(losses_of(engine, case)) if in_float16(case) else ()
    tries.all_of(knobs_of(case, blamed, lost))
    mending = _mending(tries.made)
    say("the other runtime")
    return Explanation(
        case=case,
        verdict=verdict,
        first=first,
        signature=verdict.looks,
        leg=tries.leg(),
        chance=tries.chance,
        before=tries.before,
        excerpt=tries.around,
        trials=tuple(tries.made),
        spared=tuple(tries.spared),
        slower=tries.slower(mending[0].knob) if mending else math.nan,
        took_s=time.monotonic() - start,
    )


class _Tries:
    """Trials of one case, and what they are held against."""

    def __init__(
        self,
        engine: Engine,
        judge: Judge,
        case: Case,
        at: Row,
        say: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._judge = judge
        self._case = case
        self._at = at
        self._say = say
        self._excerpt: Excerpt | None = None
        self.around: Trial | None = None
        self.before = self._whole(None, case)
        self.made: list[Trial] = []
        self.spared: list[Knob] = []
        self.chance = ""

    def cut(self, record: CaseRecord, probe: str) -> None:
        """Make the excerpt, and keep it if the divergence shows there."""
        sample = self._case.samples[0]
        shown = {
            row.probe
            for row in record.rows
            if row.what == LAYERS and row.sample == sample.id
        }
        if probe not in shown:
            return
        spot = Spot(probe=probe, shown=tuple(sorted(shown)))
        try:
            around = smallest_excerpt(
                self._engine, self._judge, self._case, sample, spot
            )
        except ParityError:
            return  # the whole component serves, only slower
        case, record = around.excerpt.case, around.record
        self.around = self._measured(None, case, record, whole=False)
        if around.shows:
            self._excerpt = around.excerpt

    def all_of(self, knobs: Iterable[Knob]) -> None:
        """Try knobs one at a time, finer ones where a coarse one helps, then pairs.

        Another export is another graph and another reference, minutes of work at full
        size, and another variant is not what was asked for: the last to be tried.
        """
        for knob in knobs:
            spare = knob.exports or knob.gives_up
            if spare and any(trial.passed for trial in self.made):
                self.spared.append(knob)
                continue
            if knob.converts and self.chance:
                continue
            trial = self._try(knob)
            if trial.mended and knob.converts and self._by_chance():
                self.made.remove(trial)
            elif trial.mended:
                for finer in knob.finer:
                    self._try(finer)
        if any(trial.mended for trial in self.made):
            return
        enough = (1 - HELPS) * self.before.floors
        helping = [
            trial.knob
            for trial in self.made
            if trial.knob and trial.whole and trial.floors <= enough
        ]
        for pair in pairs_of(self._case, helping):
            self._try(pair)

    def leg(self) -> str:
        """Run the exported graph in the other runtime, in full precision."""
        case = self._case
        taken = case.component.taken
        if taken and taken.converted and not taken.onnx:
            return "not known: nobody gave the ONNX file that it was converted from"
        others = (one for one in runtimes().values() if one.name != case.backend)
        other = next(one.name for one in others if one.is_installed)
        bare = replace(case.device, hints=())
        twin = replace(case, variant=plain_variant(case, other), device=bare)
        trial = self._whole(None, twin)
        if trial.failure:
            return f"not known: {other} could not run the same graph: {trial.failure}"
        if math.isnan(trial.floors):
            return f"not known: {other} does not show that value"
        words = f"{other} runs the same graph at {in_floors(trial.floors)}"
        if not trial.mended:
            return f"export, or both runtimes alike: {words}"
        own = runtime(case.backend).as_exported
        side = "runtime" if own else "converter or runtime"
        return f"{side}: {words}"

    def slower(self, knob: Knob | None) -> float:
        """Return a knob's time over the time without it, from runs in turn."""
        if knob is None:
            return math.nan
        bare = tuple(replace(s, layers=False) for s in self._case.samples)
        without = replace(self._case, samples=bare)
        took: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(TIMED_RUNS):
            for turned in (False, True):
                case = knob.turn(without) if turned else without
                self._say(f"timing {knob.name if turned else 'without it'}")
                record = self._engine.run(case)
                took[turned].append((record.took_s or {}).get("candidate", math.nan))
        return statistics.median(took[True]) / statistics.median(took[False])

    def _try(self, knob: Knob) -> Trial:
        self._say(knob.name)
        if self._excerpt is not None and not (knob.exports or knob.wide):
            trial = self._on(self._excerpt, knob)
            was = self.around.floors if self.around else math.nan
            if not trial.failure and not moved(trial.floors, was):
                self.made.append(trial)
                return trial
        trial = self._whole(knob, knob.turn(self._case))
        self.made.append(trial)
        return trial

    def _by_chance(self) -> bool:
        """Whether the file comes out otherwise when nothing but luck has changed."""
        cases = list(again(self._case))
        self._say(f"converting again, {len(cases)} times")
        right = [self._whole(None, case).mended for case in cases].count(True)
        if right:
            self.chance = (
                f"of {len(cases)} files converted again with the same flags {right} "
                "are right: MNN's converter works by chance here, so none of its flags "
                "is a way out"
            )
        return bool(right)

    def _on(self, excerpt: Excerpt, knob: Knob | None) -> Trial:
        turned = knob.turn(excerpt.case) if knob else excerpt.case
        record = self._engine.run_excerpt(replace(excerpt, case=turned))
        return self._measured(knob, turned, record, whole=False)

    def _whole(self, knob: Knob | None, case: Case) -> Trial:
        return self._measured(knob, case, self._engine.run(case), whole=True)

    def _measured(
        self, knob: Knob | None, case: Case, record: CaseRecord, *, whole: bool
    ) -> Trial:
        at = self._at
        if record.failure is not None:
            return Trial(knob=knob, whole=whole, failure=record.failure.message)
        try:
            verdicts = {what: self._judge.check(record, what) for what in case.whats}
        except ParityError as error:
            return Trial(knob=knob, whole=whole, failure=str(error))
        there = [row for row in verdicts[at.what].rows if _same_value(row.row, at)]
        passed = agree(verdicts.values())
        # Another exporter may have no value of that name and place.
        mended = all(row.verdict.passed for row in there) if there else whole and passed
        return Trial(
            knob=knob,
            floors=max((_floors(judged.row) for judged in there), default=math.nan),
            output_floors=max(
                _floors(row) for row in record.rows if row.what == OUTPUTS
            ),
            passed=passed,
            mended=mended,
            whole=whole,
            size_bytes=(record.artifacts or {})[case.backend]["size_bytes"],
            peak_bytes=record.peak_bytes or 0,
        )


def agree(verdicts: Iterable[CaseVerdict]) -> bool:
    """Whether every value that was compared is within tolerance.

    That another graph shows fewer values than the suite asks for is no error of it.
    """
    return all(
        verdict.found.passed or verdict.found is Outcome.COVERAGE
        for verdict in verdicts
    )


def moved(floors: float, was: float) -> bool:
    """Whether an error is another than it was; one that is gone is."""
    return not abs(floors - was) <= MOVED * abs(was)


def _mending(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    found = [trial for trial in trials if trial.mended and trial.whole]
    coarse = {id(t) for t in found if t.knob and t.knob.finer}
    return tuple(sorted(found, key=lambda t: (not t.passed, id(t) in coarse)))


def _parting(
    judge: Judge, record: CaseRecord, case: Case, tell: Callable[[str], None]
) -> CaseVerdict:
    """Return the verdict on the layers of a case that parts, or on its outputs.

    Raises:
        SuiteError: It does not.

    """
    if record.failure is not None:
        raise SuiteError(record.failure.message)
    verdicts = [judge.check(record, what) for what in case.whats]
    in_graph = [verdict.reason for verdict in verdicts if verdict.found.of_graph]
    for words in in_graph:
        tell(words)
    if first := next((v for v in verdicts if v.first is not None), None):
        return first
    if in_graph:
        raise OnlyInGraphError
    msg = (
        f"{record.case} agrees in all that was compared ({verdicts[0].reason}), so "
        "there is nothing to explain; a tighter --tier or --set finds what is nearest."
    )
    raise SuiteError(msg)


def _first(verdict: CaseVerdict) -> JudgedRow:
    if verdict.first is None:
        msg = f"{verdict.id} has no first divergence."
        raise SuiteError(msg)
    return verdict.first


def _same_value(row: Row, at: Row) -> bool:
    """Whether two rows are of one value, under another exporter's name perhaps."""
    same_place = (at.module, at.op) == (row.module, row.op) and bool(at.module)
    return row.probe == at.probe or same_place


def _floors(row: Row) -> float:
    multiple = row.comparison.floor_multiple
    return math.nan if multiple is None else multiple
