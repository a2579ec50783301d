"""Time subjects on a cluster: one node times a group of them, with no task beside it.

Rounds go through all subjects of a group, so that its times share a machine and a
moment. A group is therefore one task, which begins again if its node is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from harness.core.environment import environment
from harness.core.errors import ParityError, StageError
from harness.core.waiting import as_they_end
from harness.engine.executors import Tell
from harness.engine.needs import TaskStep, takes
from harness.plugins.bench.rounds import Bench
from harness.plugins.bench.timing import BenchPlan, Subject, Timing
from harness.plugins.fleet.cluster import NodeSettings, Task, node_name


@dataclass(frozen=True, kw_only=True)
class BenchElsewhere(AbstractContextManager["BenchElsewhere"]):
    """Stands in for `Bench`, and times subjects by an executor.

    Attributes:
        executor: It takes each `Task` as a function without arguments.
        place: What the engines on the other side need.
        order: Names of all components and pipelines of the suite. The gate compares
            times of one machine alone, so whichever of them a user names, each goes to
            the same node every time.

    """

    executor: Executor
    place: NodeSettings
    order: Sequence[str]

    def __exit__(self, *_: object) -> None:
        """End the tasks that are left, however the `with` ends."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def each(
        self, groups: Iterable[Sequence[Subject]], plan: BenchPlan
    ) -> Iterator[list[Timing]]:
        """Yield the times of each group of subjects as its task ends.

        Raises:
            ParityError: A node has other versions of packages.

        """
        running = {
            self.executor.submit(self._task(subjects, plan)): subjects
            for subjects in groups
        }
        for task in as_they_end(running):
            try:
                made = task.result()
            except StageError as error:  # its node is gone, and so were all others
                made = [
                    Timing(subject=one, failure=str(error)) for one in running[task]
                ]
            yield made

    def _task(self, subjects: Sequence[Subject], plan: BenchPlan) -> _Task:
        cases = tuple(one.case for one in subjects)
        return _Task(
            place=self.place,
            cases=cases,
            takes=takes(cases, TaskStep.ALL),
            alone=True,
            node_number=self.order.index(cases[0].subject),
            subjects=tuple(subjects),
            plan=plan,
            packages=environment().packages,
        )


@dataclass(frozen=True, kw_only=True)
class _Task(Task):
    """Times a group of subjects; see `Task`.

    Attributes:
        packages: Versions of the packages of the machine that sends the task.

    """

    subjects: tuple[Subject, ...]
    plan: BenchPlan
    packages: Mapping[str, str]

    def __call__(self, tell: Tell | None = None) -> list[Timing]:
        here, name = environment(), node_name()
        for tool, version in self.packages.items():
            if (own := here.packages.get(tool, "no version")) != version:
                msg = (
                    f"{name} has {own} of {tool}, and the command was started with "
                    f"{version}; install the same on every node."
                )
                raise ParityError(msg)
        with (
            self.place.engine(tell) as (engine, _),
            Bench(
                engine.store,
                limits=self.place.limits,
                mnn_convert=self.place.mnn_convert or "",
                on_progress=tell,
            ) as bench,
        ):
            made = bench.times(self.subjects, self.plan)
        return [replace(one, node=name, environment=here) for one in made]
