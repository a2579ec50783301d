"""Which samples one exported graph serves, and the sizes it is traced with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from harness.core.case import Case, ExportSettings, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Samples that one exported graph serves.

    Attributes:
        shapes: Sizes to trace with; what is not open is baked in.
        samples: In file order.

    """

    shapes: tuple[tuple[str, int], ...]
    samples: tuple[Sample, ...]


def sample_groups(case: Case, samples: Sequence[Sample]) -> tuple[Group, ...]:
    """Group samples by the sizes that the case's exported graph bakes in."""
    groups: dict[tuple[tuple[str, int], ...], list[Sample]] = {}
    for sample in samples:
        baked = tuple(
            (symbol, size)
            for symbol, size in sample.shapes
            if symbol not in case.export.dynamic
        )
        groups.setdefault(baked, []).append(sample)
    return tuple(
        Group(
            shapes=example_shapes(together[0].shapes, case.export),
            samples=tuple(together),
        )
        for together in groups.values()
    )


def samples_of(cases: Iterable[Case]) -> tuple[Sample, ...]:
    """Return every sample of some cases once, in order."""
    return tuple(dict.fromkeys(sample for case in cases for sample in case.samples))


def smallest(group: Group) -> tuple[tuple[str, int], ...]:
    """Return the sizes of a group's smallest sample."""
    every = (sample.shapes for sample in group.samples)
    return min(every, key=lambda shapes: (prod(dict(shapes).values()), shapes))


def example_shapes(
    shapes: tuple[tuple[str, int], ...], settings: ExportSettings
) -> tuple[tuple[str, int], ...]:
    """Return sizes to trace with.

    An open axis must not be 1, which exporters bake in, nor as long as another open
    one, which they take for the same axis.
    """
    sizes = dict(shapes)
    taken: set[int] = set()
    for symbol in sorted(settings.dynamic):
        if symbol not in sizes:
            continue
        size = max(2, sizes[symbol])
        while size in taken:
            size += 8
        taken.add(size)
        sizes[symbol] = size
    return tuple(sorted(sizes.items()))
