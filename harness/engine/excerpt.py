"""An excerpt: the operators around one value of an exported graph, with references.

An excerpt is a separate component: a small graph, the reference's values for its
inputs, and the reference's value for its output. So it is deployed, run and compared
like any other component.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.case import GIVEN, Case, TensorSpec, Variant
from harness.core.entry import Entry
from harness.core.runtime import EXACT, runtime
from harness.engine.deployed import Reading


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
