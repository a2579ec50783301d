"""Tune on a cluster: one node measures all cases of a component or pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime

from harness.core.end_to_end import Tested
from harness.core.errors import StageError
from harness.core.waiting import as_they_end
from harness.engine.needs import TaskStep, takes
from harness.engine.worker_pool import Progress
from harness.plugins.fleet.cluster import NodeSettings, Task
from harness.plugins.tune.measure import Tuner, nothing_tuned
from harness.plugins.tune.record import Effort, Tuning
from harness.suite.suite import Suite


def tune_on(
    executor: Executor,
    place: NodeSettings,
    suite: Suite,
    cases: Sequence[Tested],
    *,
    effort: Effort,
    now: datetime,
    keep: Callable[[Tuning], object] = lambda _: None,
) -> tuple[Tuning, tuple[str, ...]]:
    """Measure cases as `tune` does, each component and pipeline as a task elsewhere.

    The executor takes each task as a function without arguments, and `place` is what
    the engines on the other side need.

    Raises:
        ParityError: Nothing could be measured, or the suite's files are wrong.

    """
    # A task runs in another folder.
    suite = replace(
        suite,
        path=suite.path.absolute(),
        tolerances_path=suite.tolerances_path.absolute(),
    )
    together: dict[str, list[Tested]] = {}
    for case in cases:
        together.setdefault(case.subject, []).append(case)
    found: dict[str, Tuning] = {}
    failed: list[str] = []
    try:
        running = {
            executor.submit(
                _Task(
                    place=place,
                    cases=tuple(some),
                    takes=takes(some, TaskStep.ALL),
                    suite=suite,
                    effort=effort,
                    now=now,
                )
            ): subject
            for subject, some in together.items()
        }
        for task in as_they_end(running):
            try:
                part, sentences = task.result()
            except StageError as error:  # its node is gone, and so were all others
                failed.append(f"{running[task]}: {error}")
                continue
            failed += sentences
            if part is not None:
                found[running[task]] = part
                keep(_joined(found[one] for one in together if one in found))
    except KeyboardInterrupt:
        failed.append("stopped: nothing further was tuned")
        if not found:
            raise
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    if not found:
        raise nothing_tuned(failed)
    tuning = _joined(found[one] for one in together if one in found)
    return tuning, tuple(failed)


@dataclass(frozen=True, kw_only=True)
class _Task(Task):
    """Tunes the cases of one component or pipeline; see `Task`."""

    suite: Suite
    effort: Effort
    now: datetime

    def __call__(
        self, tell: Callable[[Progress], None] | None = None
    ) -> tuple[Tuning | None, list[str]]:
        with self.place.engine(tell) as (engine, _):
            tuner = Tuner(engine, self.suite, self.effort, self.now, lambda _: None)
            tuner.measure(self.cases)
            return tuner.tuning if tuner.is_any else None, tuner.failed


def _joined(parts: Iterable[Tuning]) -> Tuning:
    """Return one tuning of several that have other components and pipelines each."""
    first, *others = parts
    for one in others:
        first = replace(
            first,
            versions={**first.versions, **one.versions},
            tried={**first.tried, **one.tried},
            overflowed={**first.overflowed, **one.overflowed},
            cases={**first.cases, **one.cases},
            took_s={**first.took_s, **one.took_s},
        )
    return first
