"""An excerpt: one value's part of an exported graph, with the reference around it.

It is a component of its own: a small graph, the reference's values for what it reads,
and the reference's value for what it makes. So it is deployed, run and compared like
any other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.case import Case, Component, TensorSpec
from harness.core.entry import Entry
from harness.core.probes import Probe
from harness.engine.deployed import Reading
from harness.measure.align import wanted_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where to cut.

    Attributes:
        probe: What the excerpt makes.
        shown: Probes that the case's run was compared at, sorted; the excerpt begins
            at the nearest of them.

    """

    probe: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What was cut out.

    Attributes:
        case: The case, with the excerpt as its component.
        entry: Holds the graph, its probes, its inputs and its reference.
        reading: The one sample there is.

    """

    case: Case
    entry: Entry
    reading: Reading

    @property
    def given(self) -> dict[str, str]:
        """The excerpt's inputs, to the values of the graph that they stand for."""
        return dict(cast("Any", self.entry.meta["given"]))

    @property
    def begins(self) -> set[str]:
        """Probes, or inputs of the component, that it reads."""
        return set(cast("Any", self.entry.meta["begins"]))


def excerpt_of(case: Case, entry: Entry) -> Excerpt:
    """Return a stored excerpt as a case of its own."""
    meta = cast("dict[str, Any]", entry.meta)
    component = replace(
        case.component,
        inputs=_specs(meta["inputs"]),
        outputs=_specs(meta["outputs"]),
        taken=None,  # the excerpt was cut here, whoever made the whole
    )
    (sample,) = case.samples
    return Excerpt(
        case=replace(case, component=component),
        entry=entry,
        reading=Reading(sample=sample.id, inputs=entry, reference=entry, layers=True),
    )


def known_values(
    probes: Sequence[Probe], shown: Collection[str], component: Component
) -> dict[str, str]:
    """Return exported value to the probe it carries, for values that a run showed.

    Args:
        probes: Of the graph.
        shown: Names of the probes that the run was compared at.
        component: Its inputs are known as well, and stand for themselves.

    """
    known = {spec.name: spec.name for spec in component.inputs}
    for value, probe in wanted_values(probes).items():
        if probe.name in shown:
            known[value] = probe.name
    return known


def _specs(rows: Sequence[Sequence[Any]]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=name, shape=tuple(shape), dtype=dtype)
        for name, shape, dtype in rows
    )
