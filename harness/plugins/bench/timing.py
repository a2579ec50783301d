"""Plain data: the subjects, the plan and the times of a benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.core.case import REFERENCE, Case, Component, Device
from harness.core.end_to_end import MIXED, Tested
from harness.core.entry import Entry
from harness.core.environment import Environment
from harness.core.text import count
from harness.plugins.bench.ratio import Ratio, ratio_of
from harness.plugins.pipelines.case import Pipeline, PipelineCase, RoleFile
from harness.suite.suite import Suite

if TYPE_CHECKING:
    from harness.runtimes.session import Ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject to time: a deployed file, or PyTorch's own module.

    Attributes:
        case: The case of the file. For PyTorch, it is any case of the component; only
            component and sizes are taken from it.
        is_eager: Whether this is PyTorch, which the other subjects are compared with.
        build: Distinguishes the same case of two suites; empty for the first.

    """

    case: Tested
    is_eager: bool = False
    build: str = ""

    @property
    def runtime(self) -> str:
        """The runtime; PyTorch's name for PyTorch."""
        return REFERENCE if self.is_eager else self.case.backend

    @property
    def how(self) -> str:
        """The variant; ``eager`` for PyTorch, as it is."""
        return "eager" if self.is_eager else self.case.how

    @property
    def id(self) -> str:
        """The id ``component/runtime/how``, with the build before it."""
        name = f"{self.case.subject}/{self.runtime}/{self.how}"
        return f"{self.build}:{name}" if self.build else name

    @property
    def device(self) -> Device:
        """The device; PyTorch has as many threads as the files beside it."""
        case = self.case
        if isinstance(case, PipelineCase):
            used = [one.device.threads for _, one in case.roles if one is not None]
            return replace(case.device, threads=max(used))
        assert isinstance(case, Case)  # noqa: S101  # what is not a pipeline
        if self.is_eager:
            return replace(case.reference, threads=case.device.threads)
        return case.device

    @property
    def inputs(self) -> str:
        """A short description of the inputs that it is timed on."""
        if isinstance(self.case, PipelineCase):
            pipeline = self.case.pipeline
            pictures = count(len(pipeline.texts), "picture")
            size = f"{pipeline.width} × {pipeline.height}"
            return f"{pictures} of {size}, {count(pipeline.steps, 'step')}"
        assert isinstance(self.case, Case)  # noqa: S101  # what is not a pipeline
        sample = self.case.samples[0]
        return " ".join(
            (sample.id, *(f"{name} {size}" for name, size in sample.shapes))
        )


def timed_cases(suite: Suite, names: Collection[str]) -> list[Tested]:
    """Return the cases of a suite that are timed.

    Mixed-runtime pipelines are timed only if a name says so. They exist to find the
    component that causes an error, and they are not deployed.
    """
    chosen = suite.select(tuple(names))
    if any(MIXED in name for name in names):
        return list(chosen)
    return [case for case in chosen if case.backend != MIXED]


def subjects_of(cases: Iterable[Tested]) -> dict[str, list[Subject]]:
    """Return the subjects of each component and pipeline, PyTorch first.

    What runs on a target is not timed: an emulator's time is no time of a phone, and
    every input would be sent first.
    """
    found: dict[str, list[Subject]] = {}
    for case in cases:
        if case.targets:
            continue
        eager = Subject(case=case, is_eager=True)
        found.setdefault(case.subject, [eager]).append(Subject(case=case))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """The amount of measurement.

    Attributes:
        rounds: Number of turns of every subject, each in a new process.
        warmups: Number of runs after the first that are not counted.
        least_runs: Least number of counted runs of a turn, however long they take.
        most_runs: Largest number of counted runs of a turn, however short they are.
        budget_s: Time in a turn after which no counted run begins, in seconds.

    """

    rounds: int = 6
    warmups: int = 2
    least_runs: int = 3
    most_runs: int = 30
    budget_s: float = 0.5

    @property
    def of_pipelines(self) -> BenchPlan:
        """The plan for pipelines, where one drawing runs each network many times."""
        return replace(self, warmups=0, least_runs=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """All data that a worker process needs to time one subject once.

    Attributes:
        what: The component or pipeline that runs.
        deployed: The deployed file of a component, or those of a pipeline; PyTorch
            runs what has none.
        device: The device of a component, or PyTorch's device in a pipeline.
        round: The number of the round, for progress.

    """

    id: str
    what: Component | Pipeline
    deployed: tuple[RoleFile, ...]
    inputs: Entry
    device: Device
    plan: BenchPlan
    round: str = ""

    @property
    def files(self) -> dict[str, str]:
        """Digests of the deployed files, by their names in a run's report."""
        return {one.role: one.artifact.key_digest for one in self.deployed}


class Loaded(NamedTuple):
    """A loaded component or pipeline.

    Attributes:
        run: Function that runs it once, from host memory to host memory.
        ran: Function that returns, after a run, the runtime and device that really ran.

    """

    run: Callable[[], Any]
    ran: Callable[[], Ran]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn of one subject.

    Attributes:
        load_s: Time to load the model, without the import of its runtime.
        first_s: Time of the first run, which includes shape inference.
        runs_s: Time of each counted run, from host memory to host memory.
        cores: Processor time divided by elapsed time during the counted runs.
        withheld: Share of the requested processor time that other processes got; None
            if the system does not count it, or if threads outnumber cores.
        base_bytes: Resident set before loading.
        peak_bytes: Largest resident set of the process, read at its end.
        size_bytes: Size of the deployed files, or of PyTorch's weights.
        ran: The runtime and device that really ran, as the session reports them.

    """

    load_s: float
    first_s: float
    runs_s: tuple[float, ...]
    cores: float
    withheld: float | None
    base_bytes: int
    peak_bytes: int
    size_bytes: int
    ran: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All rounds of one subject.

    Attributes:
        files: Digests of the deployed files, by runtime or role; PyTorch has none.
        rounds: The rounds in order; empty after a failure.
        failure: The reason why there are no rounds; empty if there are some.
        node: Name of the cluster's node that timed it; empty for this machine.
        environment: The node's machine and software; None for this machine.

    """

    subject: Subject
    files: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[Round, ...] = field(default=(), repr=False)
    failure: str = ""
    node: str = ""
    environment: Environment | None = field(default=None, repr=False)

    @property
    def medians_s(self) -> tuple[float, ...]:
        """The median of each round, to compare with another subject's medians."""
        return tuple(statistics.median(one.runs_s) for one in self.rounds)

    def over(self, other: Timing) -> Ratio:
        """Return the ratio of its time to another's in the same rounds."""
        pairs = zip(self.medians_s, other.medians_s, strict=True)
        return ratio_of([own / its for own, its in pairs])
