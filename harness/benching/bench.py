"""Rounds through the subjects of a component, each turn in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self, cast

from harness import export_files, stages
from harness.benching.subjects import device_of, timed_sample
from harness.benching.timing import Plan, Round, Subject, Timing, Turn
from harness.benching.where import Clocked
from harness.convert import native_converter
from harness.errors import ParityError
from harness.groups import sample_groups
from harness.job import JobResult
from harness.makers import Makers
from harness.outcome import Outcome
from harness.pipeline import check_words
from harness.probes import Probe, load_probes
from harness.spec import REFERENCE
from harness.store import Store
from harness.workshop import Progress, Workshop

_HOSTS = {REFERENCE: "torch"}
"""Child process of a runtime, where it is not called as the runtime is."""


class Bench:
    """Times subjects; owns child processes, so a context manager.

    Args:
        store: Where artifacts are kept.
        timeout_s: Limit of one turn.
        mnn_convert: A native converter; empty for one on PATH or the wheel's.
        on_progress: Told what is being done.

    """

    def __init__(
        self,
        store: Store,
        *,
        timeout_s: float,
        mnn_convert: str = "",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._workshop = Workshop(timeout_s, on_progress)
        self._makers = Makers(
            store, self._workshop, native_converter(mnn_convert or None)
        )
        self._scratch = TemporaryDirectory(prefix="parity-bench-")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every child process."""
        self.close()

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
                rounds=() if subject.id in failures else tuple(rounds[subject.id]),
                failure=failures.get(subject.id, ""),
            )
            for subject in subjects
        ]

    def where(self, subject: Subject, plan: Plan) -> tuple[Clocked, tuple[Probe, ...]]:
        """Return what each operator takes, and the probes that say where it is from.

        Raises:
            ParityError: A stage ended without an answer.

        """
        turn = self.turn(subject, plan)
        result = self._job(stages.clock_turn, turn)
        (group,) = sample_groups(subject.case, (timed_sample(subject.case),))
        probes = self._makers.graph(subject.case, group).file(export_files.PROBES)
        return cast("Clocked", result.value), load_probes(probes)

    def turn(self, subject: Subject, plan: Plan) -> Turn:
        """Return what a child needs, making what the store lacks.

        Raises:
            ParityError: It cannot be made.

        """
        case = replace(subject.case, samples=(timed_sample(subject.case),))
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

    def _time(self, turn: Turn) -> Round:
        result = self._job(stages.time_turn, turn)
        return replace(cast("Round", result.value), peak_bytes=result.peak_bytes)

    def _job(self, stage: Callable[[object], object], turn: Turn) -> JobResult:
        """Run a stage in the turn's runtime; refuse one that says it ran elsewhere."""
        result = self._workshop.job(
            _HOSTS.get(turn.runtime, turn.runtime),
            stage,
            turn,
            subject=turn.id,
            label=turn.id,
            failure=Outcome.RUN,
        )
        if turn.runtime != REFERENCE:
            said = f"{result.import_log}\n{result.log}"
            check_words(turn.id, turn.runtime, turn.device, said)
        return result
