"""Rounds through the subjects of a component; each turn runs in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from harness.core.case import Case, Component
from harness.core.errors import ParityError
from harness.core.outcome import Outcome
from harness.core.runtime import check_words
from harness.engine.artifacts import Artifacts
from harness.engine.worker import JobResult
from harness.plugins.bench.timing import (
    BenchPlan,
    Round,
    Subject,
    Timing,
    Turn,
)
from harness.plugins.pipelines.case import Pipeline, PipelineCase, RoleFile
from harness.plugins.pipelines.stages import draw, role_file

if TYPE_CHECKING:
    from harness.runtimes.session import Spent


TIME_TURN: Final = "harness.plugins.bench.worker:time_turn"
"""Times a component (its runtime's host) or a pipeline (`torch`) once."""

CLOCK_OPERATORS: Final = "harness.plugins.bench.worker:clock_operators"
"""Times the operators of a deployed file (the runtime's own host)."""


@dataclass(frozen=True)
class Bench:
    """Times subjects in child processes of an engine, whose `artifacts` these are."""

    artifacts: Artifacts

    def times(self, subjects: Sequence[Subject], plan: BenchPlan) -> list[Timing]:
        """Time subjects in rounds; a subject that fails has no more turns, and no row.

        Every second round goes backwards, so that no subject always follows the same
        one.
        """
        made = {subject.id: Timing(subject=subject) for subject in subjects}
        turns: dict[str, Turn] = {}
        for number in range(plan.rounds):
            words = f"round {number + 1} of {plan.rounds}"
            order = [name for name, one in made.items() if not one.failure]
            for name in order[:: -1 if number % 2 else 1]:
                one = made[name]
                try:
                    if name not in turns:
                        turns[name] = self.turn(one.subject, plan)
                    done = (*one.rounds, self.time(replace(turns[name], round=words)))
                    made[name] = replace(one, rounds=done, files=turns[name].files)
                except ParityError as error:
                    made[name] = replace(one, rounds=(), failure=str(error))
        return list(made.values())

    def turn(self, subject: Subject, plan: BenchPlan) -> Turn:
        """Return the turn that a worker process runs; make what the store lacks.

        Raises:
            ParityError: Something cannot be made.

        """
        case = subject.case
        deployed: list[RoleFile] = []
        what: Component | Pipeline
        if isinstance(case, PipelineCase):
            what, plan_of = case.pipeline, plan.of_pipelines
            inputs, _ = draw(self.artifacts, case.pipeline, case.device)
            for role, own in case.roles:
                if own is not None and not subject.is_eager:
                    deployed.append(role_file(self.artifacts, own, role))
        else:
            assert isinstance(case, Case)  # noqa: S101  # as above
            case = replace(case, samples=case.samples[:1])
            what, plan_of = case.component, plan
            (reading,) = self.artifacts.prepare(case, case.samples).values()
            inputs = reading.inputs
            if not subject.is_eager:
                deployed.append(role_file(self.artifacts, case, subject.runtime))
        return Turn(
            id=subject.id,
            what=what,
            deployed=tuple(deployed),
            inputs=inputs,
            device=subject.device,
            plan=plan_of,
        )

    def time(self, turn: Turn) -> Round:
        """Time one turn in a new process; refuse a runtime that used another device.

        Raises:
            ParityError: The process ended without a time.

        """
        result = self._job(turn, TIME_TURN)
        return replace(cast("Round", result.value), peak_bytes=result.peak_bytes)

    def clock(self, turn: Turn) -> list[Spent]:
        """Return the time of each operator of a component's file, in a new process.

        Raises:
            ParityError: The process ended without a time.

        """
        return cast("list[Spent]", self._job(turn, CLOCK_OPERATORS).value)

    def _job(self, turn: Turn, task: str) -> JobResult:
        in_torch = isinstance(turn.what, Pipeline) or not turn.deployed
        host = "torch" if in_torch else turn.deployed[0].backend
        result = self.artifacts.worker_pool.job(
            host,
            task,
            turn,
            subject=turn.id,
            label=turn.id,
            failure=Outcome.RUN,
        )
        for file in turn.deployed:
            said = f"{result.import_log}\n{result.log}"
            check_words(turn.id, file.backend, file.device, said)
        return result
