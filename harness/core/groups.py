"""Samples that one exported graph serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from harness.core.case import Case, ExportSettings, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Samples that run on the same exported graph.

    Attributes:
        shapes: Sizes for tracing. A size that is not open is fixed in the graph.
        samples: Samples, in file order.

    """

    shapes: tuple[tuple[str, int], ...]
    samples: tuple[Sample, ...]


def sample_groups(case: Case, samples: Sequence[Sample]) -> tuple[Group, ...]:
    """Group samples by the sizes that the case's exported graph fixes."""
    groups: dict[tuple[tuple[str, int], ...], list[Sample]] = {}
    for sample in samples:
        fixed = (pair for pair in sample.shapes if pair[0] not in case.export.dynamic)
        groups.setdefault(tuple(fixed), []).append(sample)
    return tuple(
        Group(
            shapes=example_shapes(together[0].shapes, case.export),
            samples=tuple(together),
        )
        for together in groups.values()
    )


def samples_of(cases: Iterable[Case]) -> tuple[Sample, ...]:
    """Return every sample of the cases once, in order."""
    return tuple(dict.fromkeys(sample for case in cases for sample in case.samples))


def smallest(group: Group) -> tuple[tuple[str, int], ...]:
    """Return the sizes of a group's smallest sample."""
    every = (sample.shapes for sample in group.samples)
    return min(every, key=lambda shapes: (prod(dict(shapes).values()), shapes))


def example_shapes(
    shapes: tuple[tuple[str, int], ...], settings: ExportSettings
) -> tuple[tuple[str, int], ...]:
    """Return sizes for tracing a network.

    An open axis must not have size 1, because exporters fix such an axis. It must not
    have the same size as another open axis, because exporters take both for the same
    axis.
    """
    sizes = dict(shapes)
    used: set[int] = set()
    for symbol in sorted(sizes.keys() & set(settings.dynamic)):
        size = max(2, sizes[symbol])
        while size in used:
            size += 8
        used.add(size)
        sizes[symbol] = size
    return tuple(sorted(sizes.items()))
