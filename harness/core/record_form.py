"""The JSON form of a record: typed and bounded, so nothing in it is taken on trust.

`harness.core.record` writes this form and reads it. A run may come from somebody else,
so each field has a type, a length and a range here. Numbers that may be infinite or no
number are written as text, as `harness.core.comparison.strict` does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sized
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct

from harness.core.case import Sample
from harness.core.comparison import Comparison, Picture
from harness.core.outcome import Outcome
from harness.core.received import DamagedError, convert

Name = Annotated[str, Meta(max_length=1 << 16)]
"""A name that others chose, such as that of a value; a prompt is one too."""

Text = Annotated[str, Meta(max_length=1 << 22)]
"""Words for people, or the output of a native library."""

CaseId = Annotated[
    str, Meta(max_length=255, pattern=r"\A[a-z0-9][\w.-]*(/[a-z0-9][\w.@+:-]*){2}\Z")
]
"""``component/backend/variant``. Files are named by it, so its letters are few."""

PicturePath = Annotated[
    str,
    Meta(
        max_length=512, pattern=r"\Apictures/[a-z0-9][\w.@+:-]*/[\w+-][\w.+-]*\.png\Z"
    ),
]
"""Path of a picture from the run's folder; it cannot lead out of that folder."""

Number = float
"""A number that may be infinite, or NaN."""

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=10**12)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Whole = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Shape = Annotated[tuple[Count, ...], Meta(max_length=64)]

Bits = Annotated[str, Meta(pattern=r"\A[0-9]{1,3}\Z")]
"""A number of bits, as a key of JSON."""

_Word = None | bool | Whole | Finite | Text
_Flat = None | bool | Whole | Finite | Text | list[_Word] | dict[Name, _Word]
Plain = None | bool | Whole | Finite | Text | list[_Flat] | dict[Name, _Flat]
"""What JSON holds, nested two levels deep."""

_LARGEST = 1 << 64
"""Above every integer that an array holds."""


class TargetForm(TypedDict):
    """The target of a case, as it was asked for.

    Attributes:
        trace: Path of the trace that the values come from; empty without one.

    """

    trace: NotRequired[Name]


class AskedForm(TypedDict):
    """The requested device settings that are read by name."""

    target: NotRequired[TargetForm | None]
    hints: NotRequired[list[tuple[Name, _Word]]]
    provider_options: NotRequired[list[tuple[Name, _Word]]]


class RanForm(TypedDict):
    """What a session really ran with; `harness.runtimes.session.Ran` says more."""

    backend: NotRequired[Name]
    version: NotRequired[Name]
    device: NotRequired[Name]
    precision: NotRequired[Name]
    threads: NotRequired[Count]
    detail: NotRequired[list[tuple[Name, Text]]]


class Coverage(TypedDict):
    """Numbers of computing operators; `CaseRecord.coverage` says more."""

    computing: Count
    aligned: Count
    fused: Count
    unmatched: Count
    inside: NotRequired[Count]
    seen: NotRequired[Count]
    reach: NotRequired[Count]
    missing: NotRequired[list[Name]]
    unseen: NotRequired[dict[Name, list[Name]]]
    kinds: NotRequired[dict[Name, Name]]


class MetaRead(TypedDict):
    """The facts about a store entry that are read by name."""

    unread: NotRequired[list[Name]]
    no_effect: NotRequired[list[Name]]
    bits: NotRequired[dict[Bits, Count]]


class Artifact(TypedDict):
    """An entry of the store that a case used; a baseline keeps its size alone."""

    size_bytes: Count
    digest: NotRequired[Name]
    made_by: NotRequired[dict[Name, Text]]
    meta: NotRequired[dict[Name, Plain]]


class ContractInput(TypedDict):
    """One input of a deployed file, and how it moves the outputs."""

    name: Name
    dtype: Name
    shape: list[Count | Name]
    low: Number
    high: Number
    reference: Number | None
    deployed: Number | None


class Exchanged(TypedDict):
    """Two inputs that a file takes for one another."""

    names: Annotated[list[Name], Meta(min_length=2, max_length=2)]
    error: Number
    mended: Number


class Beside(TypedDict):
    """How far an item moves with what its answer must not depend on."""

    reference: Number
    deployed: Number


class Contract(TypedDict):
    """How a deployed file keeps the contract of its component."""

    sizes: dict[Name, Count]
    inputs: list[ContractInput]
    exchanged: list[Exchanged]
    repeated: Number
    beside: NotRequired[dict[Name, Beside]]


class Weight(TypedDict):
    """A weight of a graph that is not PyTorch's."""

    name: Name
    constant: NotRequired[Name]
    by: Name
    kind: Name
    words: Text
    rms: Number | None
    axes: Count
    other: Name


class Attribute(TypedDict):
    """A setting of an operator that is not PyTorch's."""

    probe: Name
    module: Name
    op: Name
    name: Name
    words: Text


class LeftOut(TypedDict):
    """An operator of the program that a graph lacks, and one that reads past it."""

    probe: Name
    module: Name
    words: Text
    reader: Name


class Graph(TypedDict):
    """The weights and attributes of a graph that are not PyTorch's."""

    exact: NotRequired[bool]
    tensors: Count
    matrices: Count
    equal: NotRequired[Count]
    elsewhere: list[Name]
    stored: dict[Name, Count]
    differing: Count
    kinds: dict[Name, Count]
    weights: list[Weight]
    attributes: list[Attribute]
    dropped: NotRequired[list[Name]]
    removed: NotRequired[list[LeftOut]]
    lora: NotRequired[Text]


class Foreign(TypedDict):
    """How a file that others made was compared."""

    by: Name
    left_out: list[Name]
    extra: list[Name]
    unfed: list[Name]
    unseen: NotRequired[dict[Name, list[Name]]]
    unpaired: NotRequired[dict[Name, Name]]
    kinds: NotRequired[dict[Name, Name]]


class AppPart(TypedDict):
    """A setting of an app that differs from the reference's."""

    name: Name
    app: Number
    own: Number
    place: Name
    share: NotRequired[Number]


class AttributionPart(TypedDict):
    """The share of one role in the error of the pictures."""

    alone: Number
    without: Number
    share: Number


class AttributionFacts(TypedDict):
    """The shares of all roles in the error of the pictures."""

    rms: Number
    parts: Annotated[dict[Name, AttributionPart], Meta(min_length=1)]
    interaction: Number


class Pairs(TypedDict):
    """The errors of pairs of prompt and seed; a baseline keeps some of the fields."""

    by: Name
    margins: Annotated[dict[Name, Number | None], Meta(min_length=1)]
    prompts: Annotated[list[Name], Meta(min_length=1, max_length=1 << 16)]
    seeds: list[Whole]
    losses: dict[Name, list[Number]]
    limits: dict[Name, list[Number]]
    planned: NotRequired[Count]
    worst: NotRequired[Annotated[list[Count], Meta(min_length=1)]]
    pictures: NotRequired[list[PicturePath]]


class PipelineForm(TypedDict):
    """The facts of an end-to-end case; a baseline keeps its pairs alone."""

    roles: NotRequired[dict[Name, Name]]
    timesteps: NotRequired[list[Number]]
    growth: NotRequired[Number | None]
    guidance: NotRequired[list[Number] | None]
    signature: NotRequired[Text]
    app: NotRequired[list[AppPart]]
    attribution: NotRequired[AttributionFacts | None]
    pictures: NotRequired[list[PicturePath]]
    pairs: NotRequired[Pairs]


class FailureForm(Struct, forbid_unknown_fields=True):
    """A stage that ended without a result."""

    outcome: Outcome
    message: Text
    log: Text = ""


class BriefProbes(Struct, forbid_unknown_fields=True):
    """The compared values as columns, as far as a baseline keeps them."""

    what: list[Name]
    probe: list[Name]
    module: list[Name]


class Probes(BriefProbes, forbid_unknown_fields=True):
    """The compared values as columns; `harness.core.record.Row` explains them."""

    position: list[Whole]  # what a pipeline computes before its first step has -1
    op: list[Name]
    source: list[Name]
    parents: list[tuple[Name, ...]]
    looks: list[Text]
    between: list[bool] = []

    def __post_init__(self) -> None:
        # Records of older versions do not have it.
        self.between = self.between or [False] * len(self.probe)


Atols = tuple[Number, Number, Number, Number, Number, Number]
"""A number for each rtol of `harness.core.comparison.RTOL_GRID`."""


class BriefColumns(Struct, forbid_unknown_fields=True):
    """Comparisons as columns, as far as a baseline keeps them."""

    expected_shape: list[Shape]
    nonfinite_mismatched: list[Count]
    expected_rms: list[Number]
    rms: list[Number]
    required_atol: list[Atols]
    floor_rms: list[Number | None]


class Columns(BriefColumns, forbid_unknown_fields=True):
    """Comparisons as columns; `harness.core.comparison.Comparison` explains them."""

    actual_shape: list[Shape]
    expected_dtype: list[Name]
    actual_dtype: list[Name]
    count: list[Count]
    finite_count: list[Count]
    nonfinite_expected: list[Count]
    nonfinite_actual: list[Count]
    expected_constant: list[bool]
    actual_constant: list[bool]
    max_abs: list[Number]
    p99: list[Number]
    p999: list[Number]
    bias: list[Number]
    cosine: list[Number]
    cosine_distance: list[Number]
    norm_ratio: list[Number]
    sqnr_db: list[Number]
    worst_index: list[Shape | None]
    worst_expected: list[int | float | None]
    worst_actual: list[int | float | None]
    worst_item: list[Count | None]
    worst_item_rms: list[Number]
    worst_channel: list[Count | None]
    worst_channel_rms: list[Number | None]
    floor_multiple: list[Number | None]
    picture: list[Picture | None]

    def __post_init__(self) -> None:
        for name in ("worst_expected", "worst_actual"):
            values = getattr(self, name)
            if any(type(value) is int and abs(value) > _LARGEST for value in values):
                msg = f"`{name}` has a number that no array holds"
                raise DamagedError(msg)


class BriefRows(BriefColumns, forbid_unknown_fields=True):
    """The rows of a record of a baseline as columns."""

    sample: list[Name]
    probe: list[Count]


class Rows(Columns, forbid_unknown_fields=True):
    """The rows of a record as columns; `probe` is a place in the table of probes."""

    sample: list[Name]
    probe: list[Count]


Why = Literal["suite", "kept", "independent"]
"""Why an input is tried: it is the suite's, an earlier tuning kept it, or it was drawn
independently."""


class TriedInput(Struct, frozen=True, kw_only=True):
    """One input of a case that ran on many, and of which the worst rows are kept.

    Attributes:
        sample: The input; its `layers` says whether layers were compared.
        usage: Largest part of that day's limits that its outputs use, or a pipeline's
            latents and pictures. None where the reference is not finite.

    """

    sample: Sample
    why: Why
    usage: Number | None = None


class PatchForm(Struct, forbid_unknown_fields=True):
    """The patch of the exported copy.

    Attributes:
        name: Where the function is.
        floors: Largest difference that it makes to an output, in noise floors.

    """

    name: Name
    floors: Number


class _Case(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that a record of a run and one of a baseline share."""

    case: CaseId
    component: Name
    backend: Name
    variant: Name
    suite: Name = ""
    failure: FailureForm | None
    asked: dict[Name, Plain]
    ran: RanForm | None = None
    inputs: dict[Name, Name] | None = None
    sizes: dict[Name, dict[Name, Count]] | None = None
    made_of: dict[Name, Name] | None = None
    coverage: Coverage | None = None
    observer_max_abs: dict[Name, Number] | None
    contract: tuple[Contract, ...]
    graphs: tuple[Graph, ...]
    rewrite_max_abs: Number | None
    patch: PatchForm | None = None
    pipeline: PipelineForm | None
    foreign: Foreign | None = None
    artifacts: dict[Name, Artifact] | None = None
    stand_ins: tuple[Name, ...]
    too_large: tuple[Name, ...]
    refused: tuple[Text, ...] = ()
    took_s: dict[Name, Seconds] | None = None
    peak_bytes: Count = 0
    log: Text = ""
    node: Name = ""
    tried: tuple[TriedInput, ...] = ()

    def __post_init__(self) -> None:
        convert(self.asked, AskedForm)
        for artifact in (self.artifacts or {}).values():
            convert(artifact.get("meta", {}), MetaRead)
        if self.foreign and "unseen" in self.foreign and "kinds" not in self.foreign:
            msg = "`foreign` has `unseen` and no `kinds`"
            raise DamagedError(msg)
        if self.pipeline and "pairs" in self.pipeline:
            _check_pairs(self.pipeline["pairs"])


class CaseForm(_Case, forbid_unknown_fields=True, kw_only=True):
    """The JSON form of a record of a run."""

    probes: Probes
    rows: Rows

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_table(self.probes, self.rows)


class BriefCaseForm(_Case, forbid_unknown_fields=True, kw_only=True):
    """The JSON form of a record of a baseline."""

    probes: BriefProbes
    rows: BriefRows

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_table(self.probes, self.rows)


def from_columns(data: object) -> list[Comparison]:
    """Return the comparisons that `harness.core.comparison.to_columns` wrote.

    Raises:
        DamagedError: A column is missing or unknown, has another length, or has a value
            that is not allowed.

    """
    table = columns(convert(data, Columns, words=True))
    _check_lengths("columns", table)
    rows = zip(*table.values(), strict=True)
    return [Comparison(**dict(zip(table, row, strict=True))) for row in rows]


def columns(table: Struct) -> dict[str, list[Any]]:
    """Return the columns of a table by name, in no order that matters."""
    return {name: getattr(table, name) for name in table.__struct_fields__}


def _check_table(probes: BriefProbes, rows: Rows | BriefRows) -> None:
    """Refuse columns of different lengths, and rows of a value that is not there."""
    _check_lengths("probes", columns(probes))
    _check_lengths("rows", columns(rows))
    if rows.probe and max(rows.probe) >= len(probes.probe):
        msg = f"a row is of value {max(rows.probe)}, and there are {len(probes.probe)}"
        raise DamagedError(msg)


def _check_lengths(noun: str, table: Mapping[str, Sized]) -> None:
    lengths = {len(column): name for name, column in table.items()}
    if len(lengths) > 1:
        (one, name), (two, other), *_ = lengths.items()
        msg = f"`{noun}` has {one:,} of `{name}` and {two:,} of `{other}`"
        raise DamagedError(msg)


def _check_pairs(pairs: Pairs) -> None:
    """Refuse pairs whose lists differ in length, or that name what is not there."""
    margins, losses, limits = pairs["margins"], pairs["losses"], pairs["limits"]
    # The metric of a suite's reader has no limit of each pair.
    if margins.keys() != losses.keys() or margins.keys() - limits.keys() - {"read"}:
        msg = "`pairs` has other metrics in `margins`, `losses` and `limits`"
        raise DamagedError(msg)
    if not 0.0 < (margins.get("read") or 0.5) < 1.0:
        msg = "the margin of `read` is a share between 0 and 1"
        raise DamagedError(msg)
    lists: dict[str, Sized] = {"prompts": pairs["prompts"], "seeds": pairs["seeds"]}
    lists |= {f"losses.{name}": losses[name] for name in losses}
    lists |= {f"limits.{name}": limits[name] for name in limits}
    _check_lengths("pairs", lists)
    worst = pairs.get("worst", [0])
    if max(worst) >= len(pairs["prompts"]):
        msg = f"the worst pair is {max(worst)}, of {len(pairs['prompts'])}"
        raise DamagedError(msg)
    if "pictures" in pairs and len(pairs["pictures"]) != len(worst):
        msg = "`pairs` has another number of pictures than of worst pairs"
        raise DamagedError(msg)
