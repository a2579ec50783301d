"""Time subjects on a cluster: one node times a group of them, with no task beside it.

Rounds go through all subjects of a group, so that its times share a machine and a
moment. A group is therefore one task, which begins again if its node is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from harness.core.environment import environment
from harness.core.errors import ParityError, StageError
from harness.core.settings import Settings
from harness.core.waiting import as_they_end
from harness.engine.engine import Engine
from harness.engine.executors import CaseExecutor
from harness.plugins.bench.rounds import Bench
from harness.plugins.bench.timing import BenchPlan, Subject, Timing
from harness.suite.suite import Suite


def each(
    executor: CaseExecutor,
    suite: Suite,
    settings: Settings,
    groups: Iterable[Sequence[Subject]],
    plan: BenchPlan,
) -> Iterator[list[Timing]]:
    """Yield the times of each group of subjects as its task ends.

    The gate compares times of one machine alone. So a component or pipeline goes to the
    same node every time, whichever of the suite's a user names.

    Raises:
        ParityError: A node has other versions of packages.

    """
    order = list(dict.fromkeys(case.subject for case in suite.tested))
    running = {}
    for subjects in groups:
        cases = tuple(subject.case for subject in subjects)
        work = partial(times_there, subjects, plan, environment().packages)
        number = order.index(cases[0].subject)
        task = executor.alone(settings, suite.limits, work, cases, number)
        running[task] = subjects
    for task in as_they_end(running):
        try:
            made = task.result()
        except StageError as error:  # its node is gone, and so were all others
            made = [Timing(subject=one, failure=str(error)) for one in running[task]]
        yield made


def times_there(
    subjects: Sequence[Subject],
    plan: BenchPlan,
    packages: Mapping[str, str],
    engine: Engine,
    node: str,
) -> list[Timing]:
    """Time subjects on a node; `packages` are the versions of who sent the task.

    Raises:
        ParityError: The node has other versions.

    """
    here = environment()
    for tool, version in packages.items():
        if (own := here.packages.get(tool, "no version")) != version:
            msg = (
                f"{node} has {own} of {tool}, and the command was started with "
                f"{version}; install the same on every node."
            )
            raise ParityError(msg)
    made = Bench(engine.artifacts).times(subjects, plan)
    return [replace(one, node=node, environment=here) for one in made]
