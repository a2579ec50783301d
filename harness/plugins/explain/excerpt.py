"""An excerpt: the operators around one value of an exported graph, with references.

An excerpt is a separate component: a small graph, the reference's values for its
inputs, and the reference's value for its output. So it is deployed, run and compared
like any other component.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from harness.core.case import GIVEN, Case, Sample, TensorSpec, Variant
from harness.core.comparison import Comparison
from harness.core.entry import Entry
from harness.core.outcome import Outcome
from harness.core.record import CaseRecord
from harness.core.runtime import EXACT, runtime
from harness.engine.deployed import Reading
from harness.engine.stage import Stage
from harness.suite.forecast import CONVERT

if TYPE_CHECKING:
    from harness.engine.engine import Engine, Fields

CUT: Final = Stage(
    kind="excerpt",
    takes=("onnx", "reading", "spot"),
    code=("engine", "measure", "plugins/explain", "runtimes/graph"),
    tools=("onnx", "numpy"),
    task="harness.plugins.explain.cut:cut_excerpt",
    failure=Outcome.CONVERT,
)
"""The operators around one value, cut out of an exported graph."""

REDRAWN: Final = CUT.of(
    takes=("excerpt", "how"), task="harness.plugins.explain.redraw:redraw_excerpt"
)
"""An excerpt with other weights, inputs and sizes."""

EVALUATE: Final = "harness.plugins.explain.evaluated:evaluate"
"""Compares what ONNX's reference evaluator makes of an excerpt (`torch`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place to cut a graph.

    Attributes:
        probe: The value that the excerpt computes, or an output of the component.
        shown: Probes that the case's run compared, sorted. The excerpt begins at the
            nearest of them.

    """

    probe: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redraw:
    """Numbers that replace those of an excerpt.

    Attributes:
        style: ``like`` draws numbers of the same rough scale, ``peaked`` gives some of
            them the largest size, ``even`` gives those of the last axis one value,
            ``own`` keeps the user's weights and inputs.
        seed: Seed of the draw.
        sizes: Pairs of a size and the size in its place.
        begins: Values that become inputs, by their names in the drawn graph.

    """

    style: str
    seed: int = 0
    sizes: tuple[tuple[int, int], ...] = ()
    begins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """An excerpt and its case.

    Attributes:
        case: The case, with the excerpt as its component.
        entry: The store's entry with graph, probes, inputs and reference.
        reading: The only sample.

    """

    case: Case
    entry: Entry
    reading: Reading

    @property
    def given(self) -> dict[str, str]:
        """The values of the graph that the excerpt's inputs stand for, by input."""
        return dict(cast("Any", self.entry.meta["given"]))

    @property
    def begins(self) -> set[str]:
        """The probes, or inputs of the component, that the excerpt reads."""
        return set(cast("Any", self.entry.meta["begins"]))


def excerpt_of(case: Case, entry: Entry, *, renamed: bool = False) -> Excerpt:
    """Return a stored excerpt as a separate case.

    If its values are `renamed`, its variant has no flags that name a file: what such a
    file says of values would be said of none.
    """
    meta = cast("dict[str, Any]", entry.meta)
    component = replace(
        case.component,
        inputs=_specs(meta["inputs"]),
        outputs=_specs(meta["outputs"]),
        foreign=None,  # the harness cut the excerpt, also from a foreign model
    )
    variant = case.variant
    if variant.kind == GIVEN:  # nobody gave a file of the excerpt
        variant = replace(variant, kind=EXACT)
    if renamed:
        of_files = dict(variant.files)
        flags = tuple(flag for flag in variant.flags if flag not in of_files)
        variant = replace(variant, flags=flags, files=())
    variant = replace(variant, flags=tuple(_flags_of(variant, meta["kept"])))
    (sample,) = case.samples
    return Excerpt(
        case=replace(case, component=component, variant=variant),
        entry=entry,
        reading=Reading(sample=sample.id, inputs=entry, reference=entry, layers=True),
    )


def excerpt_at(engine: Engine, case: Case, sample: Sample, spot: Spot) -> Excerpt:
    """Return the excerpt around one value of a case's graph; cut it out if missing.

    The sample gives the values of the reference.

    Raises:
        ParityError: A stage ended without an answer.

    """
    artifacts = engine.artifacts
    case, graph, reading = engine.of_sample(artifacts.known(case), sample)
    entry = artifacts.make(
        CUT.of(host=f"{CONVERT}{case.backend}"),
        *(case.component, graph, reading, spot),
        decides=(graph, reading, asdict(spot)),
        subject=case.component.name,
        label=f"{case.id}: excerpt at {spot.probe}",
    )
    return excerpt_of(case, entry)


def redrawn(engine: Engine, excerpt: Excerpt, how: Redraw) -> Excerpt:
    """Return an excerpt with drawn weights and inputs; draw them if they are missing.

    Raises:
        ParityError: ONNX's reference evaluator cannot run it.

    """
    case = excerpt.case
    entry = engine.artifacts.make(
        REDRAWN.of(host=f"{CONVERT}{case.backend}"),
        *(excerpt.entry, how),
        decides=(excerpt.entry, asdict(how)),
        subject=case.component.name,
        label=f"{case.id}: drawn excerpt",
    )
    return excerpt_of(case, entry, renamed=True)


def run_excerpt(engine: Engine, excerpt: Excerpt) -> CaseRecord:
    """Deploy an excerpt with its case's settings, run it, and return its record."""
    case = excerpt.case

    def measure() -> Fields:
        file = engine.artifacts.deployed(case, excerpt.entry, [excerpt.reading])
        fields = engine.measured(case, [file])
        return {**fields, "artifacts": {case.backend: file.artifact.summary}}

    return engine.recorded(case, measure)


def evaluated(engine: Engine, excerpt: Excerpt) -> Comparison:
    """Compare what ONNX's reference evaluator makes of an excerpt; no runtime runs.

    Raises:
        ParityError: The evaluator cannot run it.

    """
    result = engine.artifacts.worker_pool.job(
        "torch",
        EVALUATE,
        excerpt.entry,
        subject=excerpt.case.id,
        label=f"{excerpt.case.id}: by ONNX's reference evaluator",
        failure=Outcome.RUN,
    )
    return cast("Comparison", result.value)


def deployed_file(engine: Engine, excerpt: Excerpt) -> Path:
    """Return the deployed file of an excerpt; make it if it is missing."""
    artifact, model = engine.artifacts.deploy(excerpt.case, excerpt.entry)
    return artifact.file(model)


def _flags_of(variant: Variant, kept: Mapping[str, str]) -> Iterator[str]:
    """Yield a variant's flags; one that keeps values names those of the excerpt."""
    keep = runtime(variant.backend).keep
    for flag in variant.flags:
        if not keep or not flag.startswith(keep):
            yield flag
        elif here := [
            kept[name] for name in flag.removeprefix(keep).split(",") if name in kept
        ]:
            yield f"{keep}{','.join(here)}"


def _specs(rows: Sequence[Sequence[Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, shape=tuple(shape), dtype=dtype)
        for name, shape, dtype in rows
    )
