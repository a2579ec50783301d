"""Cases that wait for an executor, in groups whose shared part is made once.

An executor has only a few tasks at once. So what waits is here, and costs little.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.core.case import Case, Sample
from harness.core.digest import digest_value
from harness.core.end_to_end import Tested
from harness.core.errors import ParityError
from harness.core.groups import sample_groups, samples_of
from harness.core.record import CaseRecord, added
from harness.engine.groups import Begun, together
from harness.engine.needs import TaskStep, gpus_of
from harness.suite.forecast import known_weights

if TYPE_CHECKING:
    from harness.plugins.fleet.cluster import Elsewhere

_AHEAD: Final = 2
"""Number of tasks that an executor has at once, for each case that it can run."""


@dataclass(slots=True, eq=False, kw_only=True)
class CaseGroup:
    """Cases whose shared part one task makes, before any of them runs.

    Attributes:
        cases: The cases that the task is given.
        begun: The cases that are ready afterwards; none where pipelines alone need
            what it makes.
        makes: Ids of the graphs that it exports and pipelines need; see `graphs_of`.
        waits: Ids of the graphs that its cases need and others export.
        took_s: Seconds that its own task and those exports took, by kind; its first
            record gets them.
        payer: The group that counts the seconds of this group's task as its own.

    """

    cases: tuple[Tested, ...]
    begun: Sequence[Begun] = ()
    makes: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()
    took_s: Mapping[str, float] | None = None
    payer: CaseGroup | None = None

    @property
    def step(self) -> TaskStep:
        """The step that makes what is shared."""
        return TaskStep.PREPARE if self.begun else TaskStep.EXPORT


def graphs_of(case: Case, samples: Sequence[Sample]) -> list[str]:
    """Return the ids of the graphs that samples run on."""
    made = case.component.name, asdict(case.export)
    groups = sample_groups(case, samples)
    return [digest_value((*made, group.shapes)) for group in groups]


def groups_of(begun: Iterable[Begun]) -> Iterator[CaseGroup]:
    """Yield groups of cases, and a group for each graph that pipelines alone need.

    One task makes each graph, because nodes hold no lock against each other.
    """
    components: list[CaseGroup] = []
    pipelines: list[CaseGroup] = []
    for some in together(begun):
        group = CaseGroup(cases=tuple(case for case, _ in some), begun=some)
        is_component = isinstance(group.cases[0], Case)
        (components if is_component else pipelines).append(group)
    lacking: dict[str, CaseGroup] = {}
    for group in pipelines:
        for role in (part for case in group.cases for part in case.parts):
            (first, *_) = graphs_of(role, role.samples)
            group.waits |= {first}
            if first not in lacking:
                lacking[first] = CaseGroup(
                    cases=(role,), makes=frozenset([first]), payer=group
                )
    for group in components if lacking else ():
        cases = [case for case in group.cases if isinstance(case, Case)]
        found = graphs_of(cases[0], samples_of(cases))
        group.makes = frozenset(lacking).intersection(found)
        for graph in group.makes:
            del lacking[graph]
    yield from (*components, *lacking.values(), *pipelines)


def largest_first(groups: Iterable[CaseGroup]) -> list[CaseGroup]:
    """Return groups by the weights that their cases load, the largest first.

    A long group that begins last keeps one node busy while the others wait. The first
    group stays the first, so that a verdict comes soon.
    """
    every = list(groups)
    return every[:1] + sorted(every[1:], key=_weights, reverse=True)


def _weights(group: CaseGroup) -> int:
    """Return the bytes of weights that the cases of a group load, one after another."""
    some = [part.component for part in group.cases[0].parts]
    total = 0
    with suppress(ParityError):  # the case itself reports a damaged checkpoint
        total = sum(known_weights(component) for component in some)
    return total * len(group.cases)


@dataclass(slots=True, eq=False)
class _Lane:
    """Tasks that wait for the same thing, such as a GPU, and hold up no others."""

    groups: deque[CaseGroup] = field(default_factory=deque)
    ready: deque[tuple[Tested, Future[CaseRecord], Mapping[str, float] | None]] = field(
        default_factory=deque
    )
    running: int = 0


class Queue:
    """Cases that wait here, so that the executor has only few of them at once.

    What cases share is made ahead of them, as long as fewer cases than can run at once
    have theirs.
    """

    def __init__(self, engine: Elsewhere, groups: Iterable[CaseGroup]) -> None:
        self._engine = engine
        self._lanes = {gpus: _Lane() for gpus in (1, 0)}
        for group in groups:
            self._lanes[gpus_of(group.cases, group.step)].groups.append(group)
        self._made: set[str] = set()
        self._blocked: list[CaseGroup] = []
        self._is_going = False
        self._lock = threading.Lock()

    def go_on(self) -> None:
        """Submit tasks until the executor has enough."""
        with self._lock:
            if self._is_going:  # another call, of this thread perhaps, goes on
                return
            self._is_going = True
        while submit := self._next():
            submit()

    def _next(self) -> Callable[[], None] | None:
        jobs = self._engine.jobs
        with self._lock:
            for lane in self._lanes.values():
                waits = lane.groups or lane.ready
                if not waits or lane.running >= _AHEAD * jobs:
                    continue
                lane.running += 1
                if lane.groups and len(lane.ready) < jobs:
                    return partial(self._prepare, lane, lane.groups.popleft())
                return partial(self._run, lane, *lane.ready.popleft())
            self._is_going = False
            return None

    def _prepare(self, lane: _Lane, group: CaseGroup) -> None:
        try:
            made = self._engine.submit(*group.cases, step=group.step)
        except Exception as error:  # noqa: BLE001  # the cluster is gone
            made = Future()
            made.set_exception(error)
        made.add_done_callback(partial(self._prepared, lane, group))

    def _prepared(
        self, lane: _Lane, group: CaseGroup, made: Future[Mapping[str, float]]
    ) -> None:
        """Let cases run whose graphs are all there.

        A failure is reported by the case that needs what was not made.
        """
        with self._lock:
            with suppress(Exception):
                payer = group.payer or group
                payer.took_s = added(made.result(), payer.took_s)
            lane.running -= 1
            self._made |= group.makes
            self._blocked.append(group)
            for one in [one for one in self._blocked if one.waits <= self._made]:
                self._blocked.remove(one)
                took_s = one.took_s
                for case, record in one.begun:
                    gpus = gpus_of([case], TaskStep.RUN)
                    self._lanes[gpus].ready.append((case, record, took_s))
                    took_s = None
        self.go_on()

    def _run(
        self,
        lane: _Lane,
        case: Tested,
        record: Future[CaseRecord],
        took_s: Mapping[str, float] | None,
    ) -> None:
        record.add_done_callback(lambda _: self._ended(lane))
        self._engine.run_into(record, case, took_s)

    def _ended(self, lane: _Lane) -> None:
        with self._lock:
            lane.running -= 1
        self.go_on()
