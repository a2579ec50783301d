"""An excerpt: the operators around one value of an exported graph, with references.

An excerpt is a separate component: a small graph, the reference's values for its
inputs, and the reference's value for its output. So it is deployed, run and compared
like any other component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.case import GIVEN, Case, TensorSpec
from harness.core.entry import Entry
from harness.core.runtime import EXACT
from harness.engine.deployed import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place to cut a graph.

    Attributes:
        probe: The value that the excerpt computes.
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
            them the largest size, ``own`` keeps the user's weights and inputs.
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


def excerpt_of(case: Case, entry: Entry) -> Excerpt:
    """Return a stored excerpt as a separate case."""
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
    (sample,) = case.samples
    return Excerpt(
        case=replace(case, component=component, variant=variant),
        entry=entry,
        reading=Reading(sample=sample.id, inputs=entry, reference=entry, layers=True),
    )


def _specs(rows: Sequence[Sequence[Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, shape=tuple(shape), dtype=dtype)
        for name, shape, dtype in rows
    )
