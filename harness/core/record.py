"""The record of one case: it has every measurement and no verdict.

A record is a small JSON file. It can be judged again under other tolerances without a
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.core.comparison import (
    BRIEF_FIELDS,
    FIELDS,
    Comparison,
    strict,
    to_columns,
)
from harness.core.received import convert, read_json
from harness.core.record_form import BriefCaseForm, CaseForm, TriedInput, columns
from harness.core.whole_file import write_whole

LAYERS = "layers"
OUTPUTS = "outputs"
ISOLATED = "isolated"
"""The name of rows of operators that ran on the reference's own inputs. It is no check
of its own."""

SELF: Mapping[str, str] = {"self-bf16": "bfloat16", "self-fp16": "float16"}
"""The names of rows of PyTorch's own error in fewer bits, each with its dtype there. A
tolerance asks for them by these names. They are no checks of their own. The first has
the larger error."""

READ: Mapping[str, str] = {LAYERS: "layers-read", OUTPUTS: "outputs-read"}
"""For each check, the name of rows of what is read: a second comparison of the same
value, without what a mask takes out. They are no checks of their own."""

WHATS = (LAYERS, OUTPUTS)
"""The two checks of a case: intermediate values, as recorded in the watched run, and
outputs of the deployed file."""

Key = tuple[str, str]
"""Suite and case. Two suites of one run may both have a ``unet/mnn/fp32``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison of one probe on one sample.

    Attributes:
        sample: Sample id, ``realistic-1``.
        what: Check: ``layers`` or ``outputs``; in a pipeline ``latents`` or ``image``.
            Rows of no check have `ISOLATED`, or a name of `READ` or `SELF`.
        probe: Name of the value in the PyTorch program, or of the output.
        module: Module path in the checkpoint's own names; empty for outputs.
        comparison: Result of the comparison.
        position: Position in the order of execution in the PyTorch program, from 0. For
            an output it is the position among the outputs.
        op: PyTorch operator that computed the value.
        source: Line of the model's code that called the operator.
        parents: Names of the nearest computed values from which it was made.
        looks: Error pattern: a message about what a large error looks like. Empty if
            the error is small, or has no known pattern. In a row of `SELF` without a
            sample it is the reason why PyTorch could not be measured.
        between: Whether the value is a module's, and what the module reads was not
            compared. The error of the operators before it is then part of its own.

    """

    sample: str
    what: str
    probe: str
    module: str
    comparison: Comparison
    position: int = 0
    op: str = ""
    source: str = ""
    parents: tuple[str, ...] = ()
    looks: str = ""
    between: bool = False

    @property
    def place(self) -> str:
        """Name of the value for a reader: its module, or a picture's prompt."""
        name = self.module or self.probe
        return f'"{name}"' if self.op == "picture" else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stage that ended without a result.

    Attributes:
        outcome: Value of the `Outcome`.
        message: Message for the user.
        log: Native output of the stage; may be empty.

    """

    outcome: str
    message: str
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Repeated measurements of one quantity; less is better.

    Attributes:
        case: Id of the case.
        metric: Name of the quantity, with its unit last: ``latency_ms``.
        runs: Result of every measurement.
        rounds: Median of each round. A round is a process of its own. It holds `runs`
            if an entry does not say which runs share a process.
        over_pytorch: Time of each round divided by PyTorch's time in that round. Empty
            if PyTorch was not timed in the same rounds.
        withheld: Share of processor time that other processes took, from it or from
            PyTorch in the same rounds. None if the system does not report it.
        machine: Id of the machine that it was measured on; empty for the run's own.

    """

    case: str
    metric: str
    runs: tuple[float, ...]
    rounds: tuple[float, ...] = ()
    over_pytorch: tuple[float, ...] = ()
    withheld: float | None = None
    machine: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", self.rounds or self.runs)


def benchmarks_of(entries: Iterable[Mapping[str, Any]]) -> tuple[Benchmark, ...]:
    """Read a report's table of repeated measurements; more columns are allowed."""
    return msgspec.convert(entries, tuple[Benchmark, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """Everything that one case measured.

    A baseline also consists of records, with fewer fields and shorter numbers.

    Attributes:
        case: Id of the case, ``component/backend/variant``.
        component: First part of the id.
        backend: Second part of the id.
        variant: Third part of the id.
        suite: Absolute path of the suite's file; empty outside a run. In a baseline of
            several suites it is the suite's name.
        rows: Every comparison, in order of execution within a sample.
        failure: Failure of a stage that ended without a result, or None. After a
            failure `rows` may be incomplete.
        asked: Device settings that were requested.
        ran: Device, provider and precision that were used.
        inputs: For each sample, a digest of what decides its reference: weights,
            configuration and inputs. The key ``""`` stands for every sample.
        sizes: For each sample, the sizes of its axes by name.
        made_of: Digests of what each network is made of, by ``NETWORK/PART``: its
            ``checkpoint`` (weights and configuration), its ``configuration`` alone,
            and its ``recipe`` with options. They tell which part changed between runs.
        coverage: Numbers of computing operators: aligned, fused, unmatched, and those
            that count as compared. `measure.align.coverage_of` describes them. Where a
            value has another shape than PyTorch's: the values that were not compared,
            with those they were computed from, and the kinds of those that compute
            nothing.
        observer_max_abs: For each sample, the largest difference between the outputs of
            the watched run and of the deployed one.
        contract: For each deployed file: the effect of each input alone, in PyTorch and
            in the file; two inputs that the file exchanges; and the difference between
            its outputs for the same inputs.
        graphs: For each graph of a case, the weights and attributes that differ from
            PyTorch's, and whether the deployed file keeps the graph's weights.
        rewrite_max_abs: Largest difference, over all samples, between the module's
            outputs and those of the program made from its exportable copy.
        patch: Name of the patch of the exported copy, and by how many noise floors it
            moves an output at most (``name``, ``floors``); None without a patch.
        pipeline: Facts of an end-to-end case only: the file of each role, the growth of
            errors, the effect of guidance on them, and the roles that cause them.
        foreign: Facts of a foreign model only: how its values were matched with
            PyTorch's, the outputs that it lacks or adds, and the inputs that it lacks.
        stand_ins: Real inputs that something else replaced: ``weights``, ``prompts``,
            ``scheduler``, ``picture``, ``hint``, ``mask``.
        too_large: Sizes at which the case did not run, because memory was too small.
        refused: Sizes that the harness added and the reference refused, with its words;
            and the open axes that did not run above the suite's own sizes.
        artifacts: For each stage, the digest, size and tool versions of the store entry
            that was used.
        took_s: Seconds of each stage. A stage is absent if its product was in the
            store.
        peak_bytes: Largest resident set of the candidate's process, in bytes.
        log: Last native output of the candidate's process.
        node: Machine of a cluster that ran the case; empty for the machine of the run.
        tried: Every input, where a case ran on many and each row is the worst of them.
            Else it is empty.

    """

    case: str
    component: str
    backend: str
    variant: str
    suite: str = ""
    rows: tuple[Row, ...] = ()
    failure: Failure | None = None
    asked: Mapping[str, Any]
    ran: Mapping[str, Any] | None = None
    inputs: Mapping[str, str] | None = None
    sizes: Mapping[str, Mapping[str, int]] | None = None
    made_of: Mapping[str, str] | None = None
    coverage: Mapping[str, Any] | None = None
    observer_max_abs: Mapping[str, float] | None = None
    contract: tuple[Mapping[str, Any], ...] = ()
    graphs: tuple[Mapping[str, Any], ...] = ()
    rewrite_max_abs: float | None = None
    patch: Mapping[str, Any] | None = None
    pipeline: Mapping[str, Any] | None = None
    foreign: Mapping[str, Any] | None = None
    stand_ins: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    artifacts: Mapping[str, Any] | None = None
    took_s: Mapping[str, float] | None = None
    peak_bytes: int = 0
    log: str = ""
    node: str = ""
    tried: tuple[TriedInput, ...] = ()

    @property
    def key(self) -> Key:
        """Suite and case, which are unique within a run."""
        return self.suite, self.case

    def with_seconds(self, took_s: Mapping[str, float] | None) -> CaseRecord:
        """Return the record with the seconds of what was made ahead of the case."""
        if not took_s or self.took_s is None:
            return self
        return replace(self, took_s=added(took_s, self.took_s))

    def to_json(self, *, brief: bool = False) -> dict[str, Any]:
        """Return strict JSON values, with probes and rows as columns.

        A `brief` record has only the columns that a baseline keeps.
        """
        data = {
            name: strict(getattr(self, name))
            for name in self.__slots__
            if name not in {"rows", "failure", "tried"}
        }
        data["failure"] = asdict(self.failure) if self.failure else None
        data["tried"] = strict(msgspec.to_builtins(self.tried))
        names, measured = _COLUMNS[brief]
        probes: dict[tuple[Any, ...], int] = {}
        at = [
            probes.setdefault(tuple(getattr(row, name) for name in names), len(probes))
            for row in self.rows
        ]
        data["probes"] = {
            name: [probe[column] for probe in probes]
            for column, name in enumerate(names)
        }
        data["rows"] = {
            "sample": [row.sample for row in self.rows],
            "probe": at,
            **to_columns([row.comparison for row in self.rows], measured),
        }
        return data

    @property
    def is_traced(self) -> bool:
        """Whether its values come from a trace, so that nothing can run again."""
        return bool((self.asked.get("target") or {}).get("trace"))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, brief: bool = False) -> CaseRecord:
        """Return what `to_json` wrote.

        Raises:
            DamagedError: The data has another form. The clause says where.

        """
        if brief:
            return cls.of(convert(data, BriefCaseForm, words=True))
        return cls.of(convert(data, CaseForm, words=True))

    @classmethod
    def of(cls, form: CaseForm | BriefCaseForm) -> CaseRecord:
        """Return the record that has this JSON form."""
        told = {
            name: getattr(form, name)
            for name in form.__struct_fields__
            if name not in {"failure", "probes", "rows"}
        }
        if failed := form.failure:
            told["failure"] = Failure(
                outcome=failed.outcome.value, message=failed.message, log=failed.log
            )
        return cls(**told, rows=tuple(_rows(form)))


def _rows(form: CaseForm | BriefCaseForm) -> Iterator[Row]:
    """Yield the rows of a record's tables, whose columns have equal lengths."""
    table = columns(form.probes)
    probes = [
        dict(zip(table, values, strict=True))
        for values in zip(*table.values(), strict=True)
    ]
    table = columns(form.rows)
    samples, at = table.pop("sample"), table.pop("probe")
    for sample, probe, *values in zip(samples, at, *table.values(), strict=True):
        comparison = Comparison(**dict(zip(table, values, strict=True)))
        yield Row(sample=sample, comparison=comparison, **probes[probe])


_ABOUT = tuple(name for name in Row.__slots__ if name not in {"sample", "comparison"})
_COLUMNS = {
    False: (_ABOUT, FIELDS),
    True: (("what", "probe", "module"), BRIEF_FIELDS),
}
"""The columns of probes and of comparisons, for a full and for a brief record."""


def as_read(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return rows, each without what a mask takes out, where that was measured."""
    rows = tuple(rows)
    checks = {name: what for what, name in READ.items()}
    read = {
        (row.sample, checks[row.what], row.probe): replace(row, what=checks[row.what])
        for row in rows
        if row.what in checks
    }
    return tuple(
        read.get((row.sample, row.what, row.probe), row)
        for row in rows
        if row.what not in checks
    )


def coverage_share(record: CaseRecord) -> float:
    """Return the share of computing operators that count as compared, from 0 to 1.

    `measure.align.coverage_of` says which do. A network without any computing operator
    is compared whole.
    """
    counts = record.coverage
    if not counts:
        return 0.0
    # Records of older versions have neither of the two.
    seen = counts.get("seen", counts["aligned"] + counts.get("inside", 0))
    reach = counts.get("reach", counts["computing"])
    if not reach:
        return 0.0 if counts["computing"] else 1.0
    return float(seen / reach)


def left_out(record: CaseRecord) -> Iterator[str]:
    """Yield a phrase for each kind of operator that was not compared."""
    counts = record.coverage or {}
    fused, inside = counts.get("fused", 0), counts.get("inside", 0)
    if fused:
        part = "all" if inside == fused else f"{inside:,} of them"
        into = f", {part} into compared values" if inside else ""
        yield f"{fused:,} fused away{into}"
    if unmatched := counts.get("unmatched", 0):
        # Of a file that somebody else exported these are not counted at all.
        beside = counts.get("seen", 0) - counts["aligned"] - inside
        part = "all" if beside == unmatched else f"{beside:,} of them"
        yield f"{unmatched:,} unmatched" + (
            f", {part} read by compared values" if beside > 0 else ""
        )


def labels(records: Iterable[CaseRecord]) -> dict[Key, str]:
    """Return the name of each case: its id, after its suite if there are several.

    >>> about = {"component": "", "backend": "", "variant": "", "asked": {}}
    >>> one = CaseRecord(case="c", suite="/a/one/parity.toml", **about)
    >>> two = CaseRecord(case="c", suite="/a/two/parity.toml", **about)
    >>> list(labels([one]).values()), list(labels([one, two]).values())
    (['c'], ['one:c', 'two:c'])
    """
    keys = [record.key for record in records]
    prefixes = suite_prefixes(suite for suite, _ in keys)
    return {(suite, case): f"{prefixes[suite]}{case}" for suite, case in keys}


def suite_prefixes(suites: Iterable[str]) -> dict[str, str]:
    """Return the text before a case's id, for each of a run's suites.

    The text is empty if there is one suite. Otherwise it is the name of the suite's
    folder, or the suite's path if two folders have the same name.
    """
    paths = set(suites)
    if len(paths) <= 1:
        return dict.fromkeys(paths, "")
    names = {path: Path(path).parent.name for path in paths}
    if len(set(names.values())) < len(paths):
        names = {path: path for path in paths}
    return {path: f"{name}:" for path, name in names.items()}


def save_record(record: CaseRecord, path: Path) -> None:
    """Write the record to `path`, and replace an old file in one step."""
    write_whole(path, msgspec.json.encode(record.to_json()))


def load_record(path: Path) -> CaseRecord:
    """Return the record that `save_record` wrote.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It has another form. The clause says where.

    """
    return CaseRecord.of(read_json(path, CaseForm, words=True))


def added(
    one_s: Mapping[str, float], two_s: Mapping[str, float] | None
) -> dict[str, float]:
    """Return the sums of seconds by kind.

    >>> added({"onnx": 2.0}, {"onnx": 1.0, "asked": 0.5})
    {'onnx': 3.0, 'asked': 0.5}
    """
    two_s = two_s or {}
    return {
        kind: one_s.get(kind, 0.0) + two_s.get(kind, 0.0) for kind in {**one_s, **two_s}
    }
