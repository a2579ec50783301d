"""Rounds through the subjects of a component, each turn in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from harness.commands.bench.by_module import Clocked
from harness.commands.bench.subjects import device_of, timed_sample
from harness.commands.bench.timing import (
    TIMING,
    Drawing,
    Plan,
    Round,
    Subject,
    Timing,
    Turn,
)
from harness.core.case import REFERENCE, Case
from harness.core.closes import Closes
from harness.core.errors import ParityError
from harness.core.groups import sample_groups
from harness.core.outcome import Outcome
from harness.core.pipeline import Chain, Seated
from harness.core.probes import Probe, load_probes
from harness.engine import export_files, tasks
from harness.engine.artifacts import Makers, native_converter
from harness.engine.engine import check_words
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import Progress, Workshop
from harness.suite.schema import Limits

_HOSTS = {REFERENCE: "torch"}
"""Child process of a runtime, where it is not called as the runtime is."""


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
        turns: dict[str, Turn | Drawing] = {}
        failures: dict[str, str] = {}
        rounds: dict[str, list[Round]] = {subject.id: [] for subject in subjects}
        for subject in subjects:
            try:
                turns[subject.id] = self._needed(subject, plan)
            except ParityError as error:
                failures[subject.id] = str(error)
        for number in range(plan.rounds):
            self._round = f"round {number + 1} of {plan.rounds}"
            order = [subject for subject in subjects if subject.id not in failures]
            for subject in order[:: -1 if number % 2 else 1]:
                try:
                    rounds[subject.id].append(self._time(turns[subject.id]))
                except ParityError as error:
                    failures[subject.id] = str(error)
        return [
            Timing(
                subject=subject.id,
                component=subject.case.subject,
                runtime=subject.runtime,
                how=subject.how,
                threads=device_of(subject, plan).threads,
                asked=device_of(subject, plan) == device_of(subject, Plan()),
                files=turns[subject.id].files if subject.id in turns else {},
                rounds=() if subject.id in failures else tuple(rounds[subject.id]),
                failure=failures.get(subject.id, ""),
            )
            for subject in subjects
        ]

    def _tell(self, progress: Progress) -> None:
        """Pass on what a stage says; a turn's round is the better detail."""
        if self._on_progress is not None:
            detail = self._round if progress.stage == TIMING else progress.detail
            self._on_progress(replace(progress, detail=detail))

    def _needed(self, subject: Subject, plan: Plan) -> Turn | Drawing:
        if isinstance(subject.case, Chain):
            return self._drawing(subject, subject.case, plan)
        return self.turn(subject, subject.case, plan)

    def _drawing(self, subject: Subject, chain: Chain, plan: Plan) -> Drawing:
        """Return what a child needs to draw, making what the store lacks."""
        inputs, _ = self._makers.draw(chain.pipeline, chain.device, {})
        seated = []
        for seat, case in chain.seats:
            if case is None or subject.is_eager:
                continue
            artifact, model = self._makers.deploy(case, self._makers.export(case))
            device = replace(case.device, threads=plan.threads or case.device.threads)
            seated.append(
                Seated(
                    seat=seat,
                    component=case.component,
                    backend=case.backend,
                    device=device,
                    artifact=artifact,
                    model=model,
                )
            )
        return Drawing(
            id=subject.id,
            pipeline=chain.pipeline,
            seated=tuple(seated),
            inputs=inputs,
            device=device_of(subject, plan),
            plan=plan.of_pipelines,
        )

    def where(self, case: Case, plan: Plan) -> tuple[Clocked, tuple[Probe, ...]]:
        """Return what each operator takes, and the probes that say where it is from.

        Raises:
            ParityError: A stage ended without an answer.

        """
        subject = Subject(case=case, runtime=case.backend, how=case.how)
        turn = self.turn(subject, case, plan)
        result = self._job(tasks.CLOCK_TURN, turn)
        (group,) = sample_groups(case, (timed_sample(case),))
        probes = self._makers.graph(case, group).file(export_files.PROBES)
        return cast("Clocked", result.value), load_probes(probes)

    def turn(self, subject: Subject, case: Case, plan: Plan) -> Turn:
        """Return what a child needs, making what the store lacks.

        Raises:
            ParityError: It cannot be made.

        """
        case = replace(case, samples=(timed_sample(case),))
        (reading,) = self._makers.prepare(case, case.samples).values()
        path = artifact = None
        if subject.runtime != REFERENCE:
            (group,) = sample_groups(case, case.samples)
            graph = self._makers.graph(case, group)
            artifact, model = self._makers.deploy(case, graph)
            path = artifact.file(model)
        return Turn(
            id=subject.id,
            component=case.component,
            device=device_of(subject, plan),
            runtime=subject.runtime,
            how=subject.how,
            path=path,
            artifact=artifact,
            inputs=reading.inputs,
            plan=plan,
            scratch=Path(self._scratch.name),
        )

    def _time(self, turn: Turn | Drawing) -> Round:
        drawing = isinstance(turn, Drawing)
        result = self._job(tasks.TIME_DRAWING if drawing else tasks.TIME_TURN, turn)
        return replace(cast("Round", result.value), peak_bytes=result.peak_bytes)

    def _job(self, stage: str, turn: Turn | Drawing) -> JobResult:
        """Run a stage in its host; refuse a runtime that says it ran elsewhere."""
        if isinstance(turn, Drawing):
            host = "pipeline"
            asked = {(file.backend, file.device) for file in turn.seated}
        else:
            host = _HOSTS.get(turn.runtime, turn.runtime)
            asked = {(turn.runtime, turn.device)} - {(REFERENCE, turn.device)}
        result = self._workshop.job(
            host, stage, turn, subject=turn.id, label=turn.id, failure=Outcome.RUN
        )
        said = f"{result.import_log}\n{result.log}"
        for runtime, device in asked:
            check_words(turn.id, runtime, device, said)
        return result
