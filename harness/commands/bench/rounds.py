"""Rounds through the subjects of a component, each turn in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from harness.commands.bench.by_module import found_where
from harness.commands.bench.timing import (
    TIMING,
    Plan,
    Round,
    Subject,
    Timing,
    Turn,
    device_of,
    timed_sample,
)
from harness.core.case import REFERENCE, Case, Component
from harness.core.closes import Closes
from harness.core.errors import ParityError
from harness.core.groups import sample_groups
from harness.core.outcome import Outcome
from harness.core.pipeline import Chain, Pipeline, Seated
from harness.core.probes import load_probes
from harness.engine import export_files, tasks
from harness.engine.artifacts import Makers, native_converter
from harness.engine.engine import check_words
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import Progress, Workshop
from harness.suite.schema import Limits

if TYPE_CHECKING:
    from harness.runtimes.session import Spent


class Bench(Closes):
    """Times subjects; owns child processes, so a context manager.

    Args:
        store: Where artifacts are kept.
        limits: Of the suite: time of one turn, and memory.
        mnn_convert: A native converter; empty for one on PATH or the wheel's.
        on_progress: Told what is being done.

    """

    def __init__(
        self,
        store: Store,
        *,
        limits: Limits,
        mnn_convert: str = "",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._workshop = Workshop.of(limits, self._tell)
        self._on_progress = on_progress
        self._round = ""
        self._makers = Makers(
            store, self._workshop, native_converter(mnn_convert or None)
        )
        self._scratch = TemporaryDirectory(prefix="parity-bench-")

    def close(self) -> None:
        """End every child process, and drop what PyTorch compiled."""
        self._workshop.close()
        self._scratch.cleanup()

    def times(self, subjects: Sequence[Subject], plan: Plan) -> list[Timing]:
        """Time subjects in rounds; what fails once has no more turns, and no row.

        Every second round goes backwards, so that nobody always follows the same one.
        """
        turns: dict[str, Turn] = {}
        failures: dict[str, str] = {}
        rounds: dict[str, list[Round]] = {subject.id: [] for subject in subjects}
        for subject in subjects:
            try:
                turns[subject.id] = self.turn(subject, plan)
            except ParityError as error:
                failures[subject.id] = str(error)
        for number in range(plan.rounds):
            self._round = f"round {number + 1} of {plan.rounds}"
            order = [subject for subject in subjects if subject.id not in failures]
            for subject in order[:: -1 if number % 2 else 1]:
                try:
                    rounds[subject.id].append(self.time(turns[subject.id]))
                except ParityError as error:
                    failures[subject.id] = str(error)
        return [
            timing_of(
                subject,
                plan,
                files=turns[subject.id].files if subject.id in turns else {},
                rounds=rounds[subject.id],
                failure=failures.get(subject.id, ""),
            )
            for subject in subjects
        ]

    def _tell(self, progress: Progress) -> None:
        """Pass on what a stage says; a turn's round is the better detail."""
        if self._on_progress is not None:
            detail = self._round if progress.stage == TIMING else progress.detail
            self._on_progress(replace(progress, detail=detail))

    def turn(self, subject: Subject, plan: Plan) -> Turn:
        """Return what a worker process needs, making what the store lacks.

        Raises:
            ParityError: It cannot be made.

        """
        case = subject.case
        deployed: list[Seated] = []
        what: Component | Pipeline
        if isinstance(case, Chain):
            what, plan_of = case.pipeline, plan.of_pipelines
            inputs, _ = self._makers.draw(case.pipeline, case.device, {})
            for seat, own in case.seats:
                if own is not None and not subject.is_eager:
                    deployed.append(self._file(own, seat, plan))
        else:
            case = replace(case, samples=(timed_sample(case),))
            what, plan_of = case.component, plan
            (reading,) = self._makers.prepare(case, case.samples).values()
            inputs = reading.inputs
            if subject.runtime != REFERENCE:
                deployed.append(self._file(case, subject.runtime, plan))
        return Turn(
            id=subject.id,
            what=what,
            how=subject.how,
            deployed=tuple(deployed),
            inputs=inputs,
            device=device_of(subject, plan),
            plan=plan_of,
            scratch=Path(self._scratch.name),
        )

    def _file(self, case: Case, name: str, plan: Plan) -> Seated:
        """Return a case's deployed file, under the name that a report gives it."""
        artifact, model = self._makers.deploy(case, self._makers.export(case))
        return Seated(
            seat=name,
            component=case.component,
            backend=case.backend,
            device=replace(case.device, threads=plan.threads or case.device.threads),
            artifact=artifact,
            model=model,
        )

    def where(self, case: Case, plan: Plan) -> dict[str, Any]:
        """Return what the modules of a case take, as a run's report keeps it.

        Raises:
            ParityError: A stage ended without an answer.

        """
        turn = self.turn(Subject.of(case), plan)
        result = self._job(tasks.CLOCK_TURN, turn, case.component)
        spent, whole_s = cast("tuple[tuple[Spent, ...], float]", result.value)
        (group,) = sample_groups(case, (timed_sample(case),))
        probes = self._makers.graph(case, group).file(export_files.PROBES)
        return found_where(case.id, spent, whole_s, load_probes(probes))

    def time(self, turn: Turn) -> Round:
        """Time one turn in a new process.

        Raises:
            ParityError: It ended without a time.

        """
        result = self._job(tasks.TIME_TURN, turn)
        return replace(cast("Round", result.value), peak_bytes=result.peak_bytes)

    def _job(self, stage: str, turn: Turn, *more: object) -> JobResult:
        """Run a stage in its host; refuse a runtime that says it ran elsewhere."""
        used = {(file.backend, file.device) for file in turn.deployed}
        if isinstance(turn.what, Pipeline):
            host = "pipeline"
        else:
            host = turn.deployed[0].backend if turn.deployed else "torch"
        result = self._workshop.job(
            host,
            stage,
            turn,
            *more,
            subject=turn.id,
            label=turn.id,
            failure=Outcome.RUN,
        )
        said = f"{result.import_log}\n{result.log}"
        for runtime, device in used:
            check_words(turn.id, runtime, device, said)
        return result


def timing_of(
    subject: Subject,
    plan: Plan,
    *,
    files: Mapping[str, str],
    rounds: Sequence[Round],
    failure: str = "",
    alone: bool = False,
) -> Timing:
    """Return what became of a subject; what failed once has no rounds."""
    device = device_of(subject, plan)
    return Timing(
        subject=subject.id,
        component=subject.case.subject,
        runtime=subject.runtime,
        how=subject.how,
        threads=device.threads,
        asked=device == device_of(subject, Plan()),
        alone=alone,
        files=files,
        rounds=() if failure else tuple(rounds),
        failure=failure,
    )
