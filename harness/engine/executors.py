"""Other machines that run cases: what the core asks of a plug-in's executor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from harness.core.case import Case, Sample
from harness.core.end_to_end import Tested
from harness.core.errors import ParityError
from harness.core.plugins import added
from harness.core.record import CaseRecord, Row
from harness.core.settings import Settings
from harness.engine.worker_pool import Progress
from harness.suite.schema import Limits

if TYPE_CHECKING:
    from harness.engine.engine import Engine

Tell = Callable[[Progress], None]
"""Receives the progress of stages, from several threads."""


NodeWork = Callable[["Engine", str], object]
"""Work on a node. It receives the node's engine and its name, and can be pickled."""


class CaseEngine(Protocol):
    """What runs cases: `harness.engine.engine.Engine`, or what stands in for it."""

    @property
    def jobs(self) -> int:
        """Number of cases that run at once."""

    def __enter__(self) -> Self:
        """Return the engine."""

    def __exit__(self, *_: object) -> None:
        """Close it, however the ``with`` ends."""

    def start(self, cases: Iterable[Tested]) -> list[Future[CaseRecord]]:
        """Start cases in the background; return their records to come."""

    def run(self, case: Tested) -> CaseRecord:
        """Run one case through all stages and return its record."""

    def isolate(self, case: Case, sample: Sample) -> tuple[Row, ...]:
        """Run a case's operators alone, on one sample."""

    def forget(self, cases: Sequence[Tested]) -> None:
        """Remove from the store what was drawn for these cases alone."""

    def rest(self) -> None:
        """Free what is not needed until the next case."""

    def close(self) -> None:
        """End what is left of the cases."""


class CaseExecutor(Executor, ABC):
    """An executor whose tasks are cases."""

    @abstractmethod
    def engine(
        self, settings: Settings, limits: Limits, pictures: Path | None
    ) -> CaseEngine:
        """Return what runs cases by this executor, and ends it when it is closed.

        `pictures` is the folder for the pictures of pipelines' cases.
        """

    @abstractmethod
    def alone(
        self,
        settings: Settings,
        limits: Limits,
        work: NodeWork,
        cases: Sequence[Tested],
        node_number: int,
    ) -> Future[Any]:
        """Start work on cases on one node, with no task beside it; return its result.

        The same number means the same node every time, while the nodes are the same.
        """


def executor_on(where: str, tell: Tell | None) -> CaseExecutor | None:
    """Return the executor that a user names with ``--on``; None for this machine alone.

    Raises:
        ParityError: There is no such executor, or it cannot be reached.

    """
    if not where:
        return None
    refused: ParityError | None = None
    for one in added("executors"):
        try:
            executor: CaseExecutor = one.called(where, tell)
        except ParityError as error:  # another plug-in may know the name
            refused = refused or error
        else:
            return executor
    if refused is not None:
        raise refused
    msg = (
        f"--on {where} needs a plug-in that runs cases on other machines, and none is "
        "installed; leave --on out, and they run here."
    )
    raise ParityError(msg)
