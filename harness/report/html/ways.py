"""A way to run a component or pipeline, and which ways no other beats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run a component or pipeline.

    Attributes:
        name: Runtime and variant.
        floors: Largest error of its outputs; 0 of the reference, None if not compared.
        latency_ms: Median run.
        quartiles_ms: Between which the middle half of the runs lies.
        size_mb: Of its file; None where there is none.
        memory_mb: What loading and running it adds to a process.
        load_ms: From nothing to a loaded model; None if not known.
        first_ms: The first run; None if not known.
        cores: How many were at work; None if not known.

    """

    name: str
    floors: float | None
    latency_ms: float
    quartiles_ms: tuple[float, float]
    size_mb: float | None
    memory_mb: float
    load_ms: float | None = None
    first_ms: float | None = None
    cores: float | None = None

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """What one wants little of; what is not known counts as much."""
        error = math.inf if self.floors is None else self.floors
        size = math.inf if self.size_mb is None else self.size_mb
        return error, self.latency_ms, size, self.memory_mb


def front(ways: Sequence[Way]) -> list[Way]:
    """Return the ways that no other equals in everything and beats in something.

    A way whose error is not known or not finite is none of them, however fast.
    """
    return [
        one
        for one in ways
        if one.floors is not None
        and math.isfinite(one.floors)
        and not any(
            other.costs != one.costs
            and all(b <= a for a, b in zip(one.costs, other.costs, strict=True))
            for other in ways
        )
    ]


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that none beats in both numbers, from left to right.

    >>> stairs([(3.0, 1.0), (1.0, 9.0), (2.0, 9.5), (2.0, 4.0)])
    [(1.0, 9.0), (2.0, 4.0), (3.0, 1.0)]
    """
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not kept or y < kept[-1][1]:
            kept.append((x, y))
    return kept
