"""From a divergence to the setting that fixes it: change each setting, and measure.

A setting is first tried on an excerpt: the operators around the divergence, with the
reference's values as inputs. A setting that changes the error there is then tried on
the whole component. All reported errors were measured. If no setting helps, that is
reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from harness.commands.ranges import losses_of
from harness.core.case import GIVEN, Case, Sample
from harness.core.errors import OnlyInGraphError, ParityError, SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Row, as_read
from harness.core.runtime import runtime, runtimes
from harness.engine.engine import Engine
from harness.judge.case import CaseVerdict
from harness.judge.value import JudgedRow
from harness.measure.float16 import kept_values
from harness.plugins.explain.excerpt import Excerpt, evaluated, run_excerpt
from harness.plugins.explain.excerpts import (
    blamed,
    blamed_nodes,
    error_in_floors,
    error_words,
    narrowed,
    smallest_excerpt,
    with_local_errors,
)
from harness.plugins.explain.setting_changes import (
    EXPORT,
    SettingChange,
    changes_of,
    converted_again,
    in_float16,
    plain_variant,
)
from harness.suite.judge import Judge

_ALIKE = 8.0
"""An error must be so many times smaller before it counts as gone."""

MOVED = 0.02
"""A change of an error by a smaller share than this counts as no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A case's errors with one setting changed.

    Attributes:
        change: The changed setting; None for the case as it was.
        floors: Error at the divergence; NaN if the value no longer exists.
        output_floors: Largest error of an output.
        passed: Whether every layer and output is within tolerance.
        agrees: Whether the value at the divergence is within tolerance on the sample
            that failed. If the value no longer exists, whether all other values are.
        fixes: Whether it agrees, and did not before the change.
        whole: Whether the whole component ran, or only the excerpt.
        size_bytes: Size of the deployed file.
        peak_bytes: Memory of the process that ran it.
        failure: The reason why nothing was measured; empty if something was.

    """

    change: SettingChange | None
    floors: float = math.nan
    output_floors: float = math.nan
    passed: bool = False
    agrees: bool = False
    fixes: bool = False
    whole: bool = True
    size_bytes: int = 0
    peak_bytes: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The result of explaining a case.

    Attributes:
        verdict: The verdict on its layers, or on its outputs if every layer agrees.
        stage: A sentence about the stage that causes the error; empty if the case did
            not fail again.
        conversion: A sentence that says that conversion is nondeterministic; empty if
            it is not.
        before: Errors of the whole component as it was, measured again.
        excerpt: Errors of the excerpt as it was; None if nothing was cut.
        trials: Trials in order. A change without effect on the excerpt has no second
            trial on the whole component.
        skipped: Changes that were not tried, because another one fixed everything.

    """

    case: Case
    record: CaseRecord
    verdict: CaseVerdict
    first: JudgedRow
    stage: str
    conversion: str
    before: Trial
    excerpt: Trial | None
    trials: tuple[Trial, ...]
    skipped: tuple[SettingChange, ...]
    took_s: float

    @property
    def fails(self) -> bool:
        """Whether the case, measured again as it was, still fails at the divergence.

        If it does not, no setting can be shown to fix it, and none is tried.
        """
        return not (self.before.failure or self.before.agrees)

    @property
    def fixing(self) -> tuple[Trial, ...]:
        """Trials that fix the divergence; complete fixes first, then finer changes."""
        found = [trial for trial in self.trials if trial.fixes and trial.whole]
        coarse = {id(t) for t in found if t.change and t.change.finer}
        return tuple(sorted(found, key=lambda t: (not t.passed, id(t) in coarse)))

    @property
    def local_floors(self) -> float | None:
        """The operator's local error in floors; None if it was not measured."""
        for judged in self.verdict.origins:
            if judged.row.probe == self.first.row.probe:
                return error_in_floors(judged.row)
        return None


def explain(
    engine: Engine,
    judge: Judge,
    case: Case,
    say: Callable[[str], None],
    report: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Find the divergence of a case, and try each of its settings.

    `say` receives the name of the next step. `report` receives what the graph itself
    shows, before any setting is tried.

    Raises:
        OnlyInGraphError: No value is out of tolerance, and the graph is not PyTorch's.
        SuiteError: There is nothing to explain: the case agrees, or was not compared.

    """
    start = time.monotonic()
    say("as it is")
    record = engine.run(case)
    verdict, first = _diverging(judge, record, case, report)
    sample = next(s for s in case.samples if s.id == first.row.sample)
    if verdict.what == LAYERS:
        record, verdict = with_local_errors(engine, judge, case, record, sample)
        first = verdict.first or first
    trials = _Trials(engine, judge, narrowed(case, sample), sample, first.row, say)
    stage = ""
    if not (trials.before.failure or trials.before.agrees):
        to_blame = blamed(verdict)
        trials.cut(record, to_blame[0])
        lost = kept_values(losses_of(engine, case)) if in_float16(case) else ()
        on_target = case.device.target is not None
        nodes = blamed_nodes(engine, case, sample, to_blame) if on_target else ()
        trials.try_all(changes_of(case, to_blame, lost, nodes))
        say("the other runtime")
        stage = trials.stage()
    return Explanation(
        case=case,
        record=record,
        verdict=verdict,
        first=first,
        stage=stage,
        conversion=trials.conversion,
        before=trials.before,
        excerpt=trials.around,
        trials=tuple(trials.made),
        skipped=tuple(trials.skipped),
        took_s=time.monotonic() - start,
    )


@dataclass
class _Trials:
    """Trials of one case, and the case's errors to compare with."""

    engine: Engine
    judge: Judge
    case: Case
    sample: Sample
    at: Row
    say: Callable[[str], None]
    around: Trial | None = None
    made: list[Trial] = field(default_factory=list)
    skipped: list[SettingChange] = field(default_factory=list)
    conversion: str = ""
    _excerpt: Excerpt | None = None

    def __post_init__(self) -> None:
        self.before = self._whole(None, self.case)

    def cut(self, record: CaseRecord, probe: str) -> None:
        """Make the excerpt, and keep it if it shows the divergence."""
        value = (LAYERS, self.sample.id, probe)
        if value not in {(row.what, row.sample, row.probe) for row in record.rows}:
            return
        try:
            around = smallest_excerpt(
                self.engine, self.judge, self.case, self.sample, record, probe
            )
        except ParityError:
            return  # trials run the whole component, which is only slower
        case = around.excerpt.case
        self.around = self._measured(None, case, around.record, whole=False)
        if around.shows:
            self._excerpt = around.excerpt

    def try_all(self, changes: Iterable[SettingChange]) -> None:
        """Try changes one at a time; after a coarse one that helps, try finer ones."""
        for change in changes:
            # Another export takes minutes at full size, and another variant is not the
            # requested one. So both are skipped once everything is fixed.
            last = change.part == EXPORT or change.gives_up
            if last and any(trial.passed for trial in self.made):
                self.skipped.append(change)
                continue
            if change.converts and self.conversion:
                continue
            trial = self._try(change)
            if trial.fixes and change.converts and self._is_nondeterministic():
                self.made.remove(trial)
            elif trial.fixes:
                for finer in change.finer:
                    self._try(finer)

    def stage(self) -> str:
        """Return the stage that causes the error, and the measurement that shows it."""
        foreign = self.case.component.foreign
        said = self._of_file() if foreign and foreign.onnx else ""
        return said or self._by_other_runtime()

    def _by_other_runtime(self) -> str:
        """Run the exported graph in the other runtime, in full precision."""
        case = self.case
        foreign = case.component.foreign
        if foreign and foreign.converted and not foreign.onnx:
            return "not known: the ONNX file that it was converted from is not given"
        others = (one for one in runtimes().values() if one.name != case.backend)
        other = next((one.name for one in others if one.is_installed), "")
        if not other:
            return "not known: no other runtime is installed to run the same graph"
        bare = replace(
            case.device,
            device=runtime(other).devices[0],
            hints=(),
            target=None,  # another environment has the one runtime alone
            provider_options=(),
            cpu_nodes=0.0,
        )
        twin = replace(case, variant=plain_variant(case, other), device=bare)
        trial = self._whole(None, twin)
        if trial.failure:
            return f"not known: {other} could not run the same graph: {trial.failure}"
        if math.isnan(trial.floors):
            return f"not known: {other} does not show that value"
        result = (
            f"{other} runs the same graph at {error_words(trial.floors, self.case)}"
        )
        if not trial.agrees:
            return f"export, or both runtimes alike: {result}"
        as_exported = runtime(case.backend).as_exported
        return f"{'runtime' if as_exported else 'converter or runtime'}: {result}"

    def _of_file(self) -> str:
        """Return whether a file of others is wrong or its runtime; empty if unknown.

        ONNX's reference evaluator runs the operators around the divergence. If it gives
        the reference's values, the runtime is wrong. If it gives the same error, the
        file is. The harness's own export of the module, in the same runtime, is asked
        where the evaluator cannot tell.
        """
        told = self._by_evaluator()
        own = "" if told.startswith("runtime") else self._by_own_export()
        if own and not told:
            return f"export: {own}"
        return "; ".join(filter(None, (told, own)))

    def _by_evaluator(self) -> str:
        if self._excerpt is None or self.around is None:
            return ""
        try:
            found = evaluated(self.engine, self._excerpt)
        except ParityError:
            return ""
        error = error_in_floors(replace(self.at, comparison=found))
        told = error_words(error, self.case)
        same = f"ONNX's reference evaluator runs these operators at {told}"
        if not moved(error, self.around.floors):
            return f"export: {same} too, so the file itself differs"
        if _ALIKE * error <= self.around.floors:
            return f"runtime: {same}, so the file is right there"
        return ""

    def _by_own_export(self) -> str:
        """Return how the harness's own export does; empty where it is no better."""
        case = self.case
        if case.component.recipe == GIVEN:  # no module can be exported
            return ""
        own = replace(
            case,
            component=replace(case.component, foreign=None),
            variant=plain_variant(case, case.backend),
        )
        self.say("the harness's own export")
        record = self.engine.run(own)
        rows = as_read(record.rows)
        errors = [error_in_floors(row) for row in rows if row.what == OUTPUTS]
        if record.failure is not None or not errors:
            return ""
        error, was = max(errors), self.before.output_floors
        if error == math.inf or not _ALIKE * error <= was:
            return ""
        now, before = (error_words(one, self.case) for one in (error, was))
        return (
            "the harness's own export of this module has outputs at "
            f"{now} in the same runtime, the file {before}"
        )

    def _try(self, change: SettingChange) -> Trial:
        self.say(change.name)
        if self._excerpt is not None and not (change.part == EXPORT or change.wide):
            case = change.apply(self._excerpt.case)
            record = run_excerpt(self.engine, replace(self._excerpt, case=case))
            trial = self._measured(change, case, record, whole=False)
            was = self.around.floors if self.around else math.nan
            if not trial.failure and not moved(trial.floors, was):
                self.made.append(trial)
                return trial
        trial = self._whole(change, change.apply(self.case))
        self.made.append(trial)
        return trial

    def _moves(self, floors: float) -> bool:
        """Whether the case failed before, and its error is another one now."""
        return not self.before.agrees and moved(floors, self.before.floors)

    def _is_nondeterministic(self) -> bool:
        """Whether another conversion with the same flags makes a correct file."""
        cases = list(converted_again(self.case))
        self.say(f"converting again, {len(cases)} times")
        right = [self._whole(None, case).agrees for case in cases].count(True)
        if right:
            self.conversion = (
                f"of {len(cases)} files converted again with the same flags {right} "
                "are right: the converter is nondeterministic here, so none of its "
                "flags fixes it"
            )
        return bool(right)

    def _judged(self, record: CaseRecord, what: str) -> CaseVerdict:
        """Judge a trial; one that the suite does not run has the case's tolerances."""
        name = (record.component, record.backend, record.variant)
        if not self.judge.policy.states(name, what):
            case = self.case
            record = replace(record, backend=case.backend, variant=case.how)
        return self.judge.check(record, what)

    def _whole(self, change: SettingChange | None, case: Case) -> Trial:
        return self._measured(change, case, self.engine.run(case), whole=True)

    def _measured(
        self,
        change: SettingChange | None,
        case: Case,
        record: CaseRecord,
        *,
        whole: bool,
    ) -> Trial:
        at = self.at
        if record.failure is not None:
            return Trial(change=change, whole=whole, failure=record.failure.message)
        try:
            verdicts = {what: self._judged(record, what) for what in case.whats}
        except ParityError as error:
            return Trial(change=change, whole=whole, failure=str(error))
        there = [row for row in verdicts[at.what].rows if _same_value(row.row, at)]
        passed = agree(verdicts.values())
        # Another exporter's graph may have no such value.
        agrees = all(row.verdict.passed for row in there) if there else whole and passed
        floors = max(
            (error_in_floors(judged.row) for judged in there), default=math.nan
        )
        return Trial(
            change=change,
            floors=floors,
            output_floors=max(
                error_in_floors(row)
                for row in as_read(record.rows)
                if row.what == OUTPUTS and row.sample == at.sample
            ),
            passed=passed,
            agrees=agrees,
            fixes=whole and change is not None and agrees and self._moves(floors),
            whole=whole,
            size_bytes=(record.artifacts or {})[case.backend]["size_bytes"],
            peak_bytes=record.peak_bytes or 0,
        )


def agree(verdicts: Iterable[CaseVerdict]) -> bool:
    """Whether every value that was compared is within tolerance.

    A changed graph may show fewer values than the suite requires. That is no error.
    """
    return all(
        verdict.found.passed or verdict.found is Outcome.COVERAGE
        for verdict in verdicts
    )


def moved(floors: float, was: float) -> bool:
    """Whether an error changed; an error that is no longer measured has changed."""
    if math.inf in {floors, was}:
        return floors != was
    return not abs(floors - was) <= MOVED * abs(was)


def _diverging(
    judge: Judge, record: CaseRecord, case: Case, report: Callable[[str], None]
) -> tuple[CaseVerdict, JudgedRow]:
    """Return the verdict on a case's layers, or on its outputs, and the divergence."""
    if record.failure is not None:
        raise SuiteError(record.failure.message)
    verdicts = [judge.check(record, what) for what in case.whats]
    in_graph = [verdict.reason for verdict in verdicts if verdict.found.of_graph]
    for reason in in_graph:
        report(reason)
    for verdict in verdicts:
        if verdict.first is not None:
            return verdict, verdict.first
    if in_graph:
        raise OnlyInGraphError
    few = [v.reason for v in verdicts if v.found in {Outcome.COVERAGE, Outcome.EMPTY}]
    if few:
        msg = (
            f"{record.case} agrees in all that was compared, and too little was: "
            f"{few[0]}. No setting has failed, so none is tried. `parity show last "
            f"{record.case}` lists what was compared."
        )
        raise SuiteError(msg)
    msg = (
        f"{record.case} agrees in all that was compared ({verdicts[0].reason}), so "
        "there is nothing to explain; a tighter --tier or --set finds what is nearest."
    )
    raise SuiteError(msg)


def _same_value(row: Row, at: Row) -> bool:
    """Whether two rows are of one sample's value; exporters may name it differently."""
    if row.sample != at.sample:
        return False
    same_place = (at.module, at.op) == (row.module, row.op) and bool(at.module)
    return row.probe == at.probe or same_place
