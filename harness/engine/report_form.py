"""The JSON form of ``report.json`` and of a baseline: typed and bounded.

Both may come from somebody else. `harness.engine.run_folder` writes the first, and
the command `parity baseline` the second. A field that is not declared here is left
out. A suite's path is a name in a report; nothing opens it.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType

from harness.core.outcome import Outcome
from harness.core.received import DamagedError
from harness.core.record_form import (
    BriefCaseForm,
    CaseForm,
    Count,
    Finite,
    Name,
    RanForm,
    Share,
    Text,
)

RunId = Annotated[str, Meta(pattern=r"\A\w[\w.+-]{0,127}\Z")]
"""Name of a run, which commands repeat."""

CheckId = Annotated[
    str, Meta(max_length=320, pattern=r"\A[a-z0-9][\w.-]*(/[a-z0-9][\w.@+:-]*){3}\Z")
]
"""``component/backend/variant/check``."""

Key = tuple[Name, Name]
"""Suite and case."""

Time = Annotated[float, Meta(gt=0, le=10**12)]


class SuiteFacts(TypedDict):
    """A suite of a run.

    Attributes:
        path: Absolute path of the suite's file where it ran.
        files: Digests of the files that describe the suite, by name.
        checkpoint: Name of the checkpoint, without the folders of one machine.
        tolerances: Text of the suite's tolerances.toml.
        known_gaps: Text of its known_gaps.toml; empty without one.
        coverage: Least share of operators that must be compared.

    """

    path: Name
    files: dict[Name, Name]
    checkpoint: NotRequired[Name]
    tolerances: NotRequired[Text]
    known_gaps: NotRequired[Text]
    coverage: NotRequired[Share]


class EnvironmentFacts(TypedDict):
    """Where a run was made; `harness.core.environment.Environment` says more."""

    id: Name
    cpu: Name
    python: Name
    packages: dict[Name, Name]
    commit: Name | None
    dirty: bool | None
    system: NotRequired[Name]
    arch: NotRequired[Name]
    core_count: NotRequired[Count]
    memory_bytes: NotRequired[Count]
    gpus: NotRequired[list[Name]]
    host: NotRequired[Name]


class ShardFacts(TypedDict):
    """The part of a suite that a run was; `harness.suite.shards` says more."""

    number: Count
    of: Annotated[int, Meta(ge=1, le=1 << 20)]
    divided: list[Key]
    own: list[Key]
    checks: NotRequired[Count]


class MergedFacts(TypedDict):
    """A shard of a merged run."""

    number: Count
    run: RunId
    machine: Name
    cpu: Name
    cases: list[Key]


class BenchmarkFacts(TypedDict):
    """Repeated measurements of a case; `harness.core.record.Benchmark` says more."""

    case: Name
    metric: Name
    runs: Annotated[list[Time], Meta(min_length=1)]
    rounds: NotRequired[list[Time]]
    over_pytorch: NotRequired[list[Time]]
    withheld: NotRequired[Share | None]
    withheld_rounds: NotRequired[list[Share | None]]
    ran: NotRequired[RanForm]
    machine: NotRequired[Name]
    node: NotRequired[Name]
    threads: NotRequired[Count]
    load_ms: NotRequired[Finite]
    first_run_ms: NotRequired[Finite]
    size_bytes: NotRequired[Count]
    memory_bytes: NotRequired[Finite]
    cores: NotRequired[Finite]


class VerdictForm(Struct):
    """How a check ended, after known gaps were applied."""

    suite: Name
    id: CheckId
    outcome: Outcome
    reason: Text


class _Report(Struct, kw_only=True):
    """What a report and a baseline share."""

    schema: int
    id: RunId
    suites: list[SuiteFacts]
    required: tuple[Name, ...]
    verdicts: list[VerdictForm]
    environment: EnvironmentFacts
    tier: Name
    changes: list[Name]
    whole: bool
    benchmarks: list[BenchmarkFacts] = []

    @property
    def about(self) -> dict[str, Any]:
        """The facts that are neither cases nor verdicts, by name."""
        told = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in {"cases", "verdicts", "accepted"}
        }
        return {name: value for name, value in told.items() if value is not UNSET}


class ReportForm(_Report, kw_only=True):
    """The JSON form of ``report.json``."""

    cases: list[CaseForm]
    command: list[Text] | UnsetType = UNSET
    baseline: Name | UnsetType = UNSET
    exit_code: Annotated[int, Meta(ge=0, le=2)] | UnsetType = UNSET
    shard: ShardFacts | UnsetType = UNSET
    shards: list[MergedFacts] | UnsetType = UNSET

    def __post_init__(self) -> None:
        _check_keys(self, self.cases)


class AcceptedForm(Struct, kw_only=True):
    """Who accepted a baseline, and what with it."""

    who: Name
    when: date
    why: Text = ""
    failing: tuple[Name, ...] = ()


class BaselineForm(_Report, kw_only=True):
    """The JSON form of a baseline."""

    cases: list[BriefCaseForm]
    accepted: AcceptedForm

    def __post_init__(self) -> None:
        _check_keys(self, self.cases)


class Version(Struct):
    """The version of a report's form."""

    schema: Annotated[int, Meta(ge=0, le=1 << 31)] | None = None


def _check_keys(report: _Report, cases: list[CaseForm] | list[BriefCaseForm]) -> None:
    """Refuse a case of no suite of the run, and a verdict on no case of it."""
    suites = {suite["path"] for suite in report.suites}
    if stray := {case.suite for case in cases} - suites:
        msg = f"a case is of the suite {min(stray)!r}, which is none of the run's"
        raise DamagedError(msg)
    there = {(case.suite, case.case) for case in cases}
    for verdict in report.verdicts:
        if (verdict.suite, verdict.id.rpartition("/")[0]) not in there:
            msg = f"the verdict {verdict.id} is of no case of the run"
            raise DamagedError(msg)
