"""What is timed, how, and what came of it: plain data."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.case import REFERENCE, Case, Component, Device
from harness.core.entry import Entry
from harness.core.errors import SpecError
from harness.core.pipeline import Chain, Pipeline, Seated
from harness.report.runs.cpu_load import AtWork

EAGER = "eager"
COMPILE = "compile"
"""PyTorch as it is, and through ``torch.compile``."""

TIMING = "timing"
"""How a turn calls itself while it is timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing to time: a deployed file, or PyTorch's own module.

    Attributes:
        case: Of the deployed file or pipeline; of PyTorch, whichever case says
            component and sizes.
        runtime: ``pytorch``, ``onnxruntime`` or ``mnn``.
        how: ``eager``, ``compile``, or the variant.
        build: Tells the same case of two suites apart; empty for the first.

    """

    case: Case | Chain
    runtime: str
    how: str
    build: str = ""

    @property
    def id(self) -> str:
        """``component/runtime/how``, with its build before it."""
        name = f"{self.case.subject}/{self.runtime}/{self.how}"
        return f"{self.build}:{name}" if self.build else name

    @property
    def is_eager(self) -> bool:
        """Whether it is what the others of its component are held against."""
        return self.runtime == REFERENCE and self.how == EAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: Times that every subject has its turn, in a new process.
        warmups: Runs after the first that are not counted.
        least_runs: Counted runs of a turn, however long they take.
        most_runs: Counted runs of a turn, however short they are.
        budget_s: No counted run begins later in a turn.
        threads: For every runtime; 0 for what each case says.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What a child process needs to time a whole pipeline once.

    Attributes:
        id: Of the subject.
        pipeline: What is drawn.
        seated: Deployed files in its seats; PyTorch has the others.
        inputs: The pipeline's stored inputs.
        device: Where PyTorch runs.
        plan: How often.

    """

    id: str
    pipeline: Pipeline
    seated: tuple[Seated, ...]
    inputs: Entry
    device: Device
    plan: Plan

    @property
    def files(self) -> dict[str, str]:
        """Seat to the digest of its file, as a run's report names it."""
        return {one.seat: one.artifact.key_digest for one in self.seated}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a child process needs to time one subject once.

    Attributes:
        id: Of the subject.
        component: What is run.
        device: Where.
        runtime: Which runtime.
        how: Of PyTorch, ``eager`` or ``compile``.
        path: The deployed file; None for PyTorch.
        artifact: What holds it; None for PyTorch.
        inputs: The stored sample.
        plan: How often.
        scratch: Where PyTorch's compiler may write.

    """

    id: str
    component: Component
    device: Device
    runtime: str
    how: str
    path: Path | None
    artifact: Entry | None
    inputs: Entry
    plan: Plan
    scratch: Path

    @property
    def files(self) -> dict[str, str]:
        """Runtime to the digest of its file, as a run's report names it."""
        return {self.runtime: self.artifact.key_digest} if self.artifact else {}


class Runs(NamedTuple):
    """The counted runs of one turn.

    Attributes:
        runs_s: Each run, host memory to host memory.
        cores: Processor time over time while they ran.
        withheld: Share of the processor time asked for that went to others; None where
            the system does not say, or threads outnumber cores.

    """

    runs_s: tuple[float, ...]
    cores: float
    withheld: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn of one subject.

    Attributes:
        load_s: From nothing to a loaded model, its runtime imported before.
        first_s: The first run; compilation and shape inference fall into it.
        runs_s: As of `Runs`.
        cores: As of `Runs`.
        withheld: As of `Runs`.
        base_bytes: Resident set before loading.
        peak_bytes: Largest resident set of the process, at its end.
        size_bytes: Of the deployed file, or of PyTorch's weights.
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
        component: What was run.
        runtime: In which runtime.
        how: Made or called how.
        threads: As asked of the runtime.
        asked: Whether they are what the suite says.
        files: Digests of the deployed files, by runtime or seat; PyTorch has none.
        rounds: In order; empty after a failure.
        failure: Why there are none.

    """

    subject: str
    component: str
    runtime: str
    how: str
    threads: int
    asked: bool = True
    files: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[Round, ...] = field(default=(), repr=False)
    failure: str = ""

    @property
    def runs_s(self) -> tuple[float, ...]:
        """Every counted run."""
        return tuple(run for one in self.rounds for run in one.runs_s)

    @property
    def is_eager(self) -> bool:
        """Whether it is of PyTorch as it is, which others are held against."""
        return self.runtime == REFERENCE and self.how == EAGER

    @property
    def medians_s(self) -> tuple[float, ...]:
        """The median of each round, to hold against another's of the same round."""
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
    def cores(self) -> float:
        """Median of the rounds."""
        return statistics.median(one.cores for one in self.rounds)

    @property
    def withheld(self) -> float | None:
        """Median of the rounds; None where the system does not say."""
        known = [one.withheld for one in self.rounds if one.withheld is not None]
        return statistics.median(known) if known else None

    @property
    def at_work(self) -> AtWork:
        """What the processor did meanwhile."""
        return AtWork(threads=self.threads, cores=self.cores, withheld=self.withheld)

    @property
    def memory_bytes(self) -> int:
        """What loading and running adds to the process, at its peak; largest round."""
        return max(one.peak_bytes - one.base_bytes for one in self.rounds)

    @property
    def peak_bytes(self) -> int:
        """Largest resident set of any round's process."""
        return max(one.peak_bytes for one in self.rounds)

    @property
    def size_bytes(self) -> int:
        """Of the deployed file, or of PyTorch's weights."""
        return self.rounds[0].size_bytes

    @property
    def ran(self) -> Mapping[str, Any]:
        """What really ran."""
        return self.rounds[0].ran

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
