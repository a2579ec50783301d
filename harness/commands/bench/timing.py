"""Plain data: what is timed, how it is timed, and the times."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from harness.core.case import REFERENCE, Case, Component, Device, Sample
from harness.core.entry import Entry
from harness.core.errors import SpecError
from harness.core.pipeline import MIXED, Chain, Pipeline, Seated
from harness.core.text import count
from harness.report.runs.cpu_load import AtWork
from harness.suite.suite import Suite, Tested

EAGER = "eager"
COMPILE = "compile"
"""PyTorch as it is, and through ``torch.compile``."""

TIMING = "timing"
"""The name of the stage, for progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing to time: a deployed file, or PyTorch's own module.

    Attributes:
        case: The case of the file. PyTorch takes component and sizes from any case.
        runtime: The runtime that runs it.
        how: ``eager``, ``compile``, or the variant.
        build: Tells the same case of two suites apart; empty for the first.

    """

    case: Case | Chain
    runtime: str
    how: str
    build: str = ""

    @classmethod
    def of(cls, case: Case | Chain, build: str = "") -> Self:
        """Return a case's deployed file as a subject."""
        return cls(case=case, runtime=case.backend, how=case.how, build=build)

    @property
    def id(self) -> str:
        """``component/runtime/how``, with its build before it."""
        name = f"{self.case.subject}/{self.runtime}/{self.how}"
        return f"{self.build}:{name}" if self.build else name

    @property
    def is_eager(self) -> bool:
        """Whether the other subjects of its component are compared with this one."""
        return self.runtime == REFERENCE and self.how == EAGER


def timed_cases(suite: Suite, names: Collection[str]) -> list[Tested]:
    """Return the cases of a suite that are timed.

    Mixed-runtime pipelines are timed only if a name says so: they exist to tell which
    component brings an error, and nobody deploys two dozen of them.
    """
    chosen = suite.select(tuple(names))
    if any(MIXED in name for name in names):
        return list(chosen)
    return [case for case in chosen if case.backend != MIXED]


def subjects_of(cases: Iterable[Case | Chain]) -> dict[str, list[Subject]]:
    """Return the subjects of each component and pipeline, PyTorch first.

    A pipeline is not timed compiled: each of its networks would be compiled anew.
    """
    found: dict[str, list[Subject]] = {}
    for case in cases:
        own = found.setdefault(case.subject, [])
        if not own:
            own += [
                Subject(case=case, runtime=REFERENCE, how=how)
                for how in ((EAGER,) if isinstance(case, Chain) else (EAGER, COMPILE))
            ]
        own.append(Subject.of(case))
    return found


def timed_sample(case: Case) -> Sample:
    """Return the sample that is timed: the first."""
    return case.samples[0]


def inputs_words(case: Case | Chain) -> str:
    """Return a sentence part about the inputs that a case is timed on."""
    if isinstance(case, Chain):
        pipeline = case.pipeline
        pictures = count(len(pipeline.texts), "picture")
        size = f"{pipeline.width} × {pipeline.height}"
        return f"{pictures} of {size}, {count(pipeline.steps, 'step')}"
    sample = timed_sample(case)
    return " ".join((sample.id, *(f"{name} {size}" for name, size in sample.shapes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: Turns of every subject, each in a new process.
        warmups: Runs after the first that are not counted.
        least_runs: Counted runs of a turn, however long they take.
        most_runs: Counted runs of a turn, however short they are.
        budget_s: No counted run begins later in a turn.
        threads: For every runtime; 0 for the number of each case.

    """

    rounds: int = 6
    warmups: int = 2
    least_runs: int = 3
    most_runs: int = 30
    budget_s: float = 0.5
    threads: int = 0

    def __post_init__(self) -> None:
        if min(self.rounds, self.least_runs) < 1 or self.most_runs < self.least_runs:
            msg = (
                f"a benchmark needs a round and a run at least, got {self.rounds} "
                f"rounds of {self.least_runs} to {self.most_runs} runs."
            )
            raise SpecError(msg)

    @property
    def of_pipelines(self) -> Plan:
        """The same for whole drawings, of which one warms every network many times."""
        return replace(self, warmups=0, least_runs=1)


def device_of(subject: Subject, plan: Plan) -> Device:
    """Return where a subject runs; PyTorch has as many threads as the files beside."""
    case = subject.case
    if isinstance(case, Chain):
        used = [one.device.threads for _, one in case.seats if one is not None]
        return replace(case.device, threads=plan.threads or max(used))
    device = case.device
    if subject.runtime == REFERENCE:
        device = replace(case.reference, threads=case.device.threads)
    return replace(device, threads=plan.threads or device.threads)


class Caller(NamedTuple):
    """Another process that calls for each counted run, and times it.

    Attributes:
        address: Where it listens.
        key: Proves that a connection comes from its own worker process.

    """

    address: Any
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a worker process needs to time one subject once.

    Attributes:
        id: The subject's.
        what: The component or pipeline that runs.
        how: Tells PyTorch's ``eager`` from ``compile``.
        deployed: The deployed file of a component, those of a pipeline; PyTorch runs
            what has none.
        inputs: The stored inputs.
        device: Where it runs; of a pipeline, where PyTorch runs.
        plan: How much is measured.
        scratch: Where PyTorch's compiler may write.
        caller: Times the runs; None for the worker itself.

    """

    id: str
    what: Component | Pipeline
    how: str
    deployed: tuple[Seated, ...]
    inputs: Entry
    device: Device
    plan: Plan
    scratch: Path
    caller: Caller | None = None

    @property
    def files(self) -> dict[str, str]:
        """Digests of the files by the names that a run's report gives them."""
        return {one.seat: one.artifact.key_digest for one in self.deployed}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that is read from the store."""
        return (self.inputs, *(one.artifact for one in self.deployed))

    @property
    def size_bytes(self) -> int:
        """Size of all deployed files."""
        return sum(one.artifact.size_bytes for one in self.deployed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn of one subject.

    Attributes:
        load_s: From nothing to a loaded model, its runtime imported before.
        first_s: The first run; compilation and shape inference fall into it.
        runs_s: Each counted run, from host memory to host memory.
        cores: Processor time over time while they ran.
        withheld: Share of the processor time asked for that went to others; None where
            the system does not say, or threads outnumber cores.
        base_bytes: Resident set before loading.
        peak_bytes: Largest resident set of the process, at its end.
        size_bytes: Size of the deployed file, or of PyTorch's weights.
        ran: What really ran, as the session reports it.

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
        subject: Its id.
        component: The component or pipeline.
        runtime: The runtime that ran it.
        how: The variant, or ``eager`` or ``compile``.
        threads: The number that the runtime was given.
        asked: Whether that is the number of the suite.
        alone: Whether no other subject had its turns in the same rounds.
        files: Digests of the deployed files, by runtime or pipeline component.
        rounds: In order; empty after a failure.
        failure: Why there are none.

    """

    subject: str
    component: str
    runtime: str
    how: str
    threads: int
    asked: bool = True
    alone: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[Round, ...] = field(default=(), repr=False)
    failure: str = ""

    @property
    def runs_s(self) -> tuple[float, ...]:
        """Every counted run."""
        return tuple(run for one in self.rounds for run in one.runs_s)

    @property
    def is_eager(self) -> bool:
        """Whether the other subjects of its component are compared with this one."""
        return self.runtime == REFERENCE and self.how == EAGER

    @property
    def medians_s(self) -> tuple[float, ...]:
        """The median of each round, to compare with another's of the same round."""
        return tuple(statistics.median(one.runs_s) for one in self.rounds)

    @property
    def median_s(self) -> float:
        """Median of all counted runs."""
        return statistics.median(self.runs_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """Between which the middle half of the counted runs lies."""
        if len(self.runs_s) == 1:
            return self.runs_s[0], self.runs_s[0]
        low, _, high = statistics.quantiles(self.runs_s, n=4, method="inclusive")
        return low, high

    @property
    def load_s(self) -> float:
        """Median of the rounds."""
        return statistics.median(one.load_s for one in self.rounds)

    @property
    def first_s(self) -> float:
        """Slowest of the rounds: of ``torch.compile`` only one compiles anew."""
        return max(one.first_s for one in self.rounds)

    @property
    def at_work(self) -> AtWork:
        """What the processor did meanwhile: medians of the rounds."""
        shares = [one.withheld for one in self.rounds if one.withheld is not None]
        return AtWork(
            threads=self.threads,
            cores=statistics.median(one.cores for one in self.rounds),
            withheld=statistics.median(shares) if shares else None,
        )

    @property
    def memory_bytes(self) -> int:
        """What loading and running adds to the process, at its peak; largest round."""
        return max(one.peak_bytes - one.base_bytes for one in self.rounds)

    @property
    def peak_bytes(self) -> int:
        """Largest resident set of any round's process."""
        return max(one.peak_bytes for one in self.rounds)
