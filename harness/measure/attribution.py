"""Who brought the error: seats exchanged one at a time, in both directions.

Errors of pictures are compared as powers (mean squares), which add up where seats do
not act on each other; what does not add up is interaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Draw = Callable[[frozenset[str]], float]
"""Draws with the candidate in the named seats and PyTorch in the others, and returns
the mean squared error of the pictures; infinite if they are not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one seat has to do with the error.

    Attributes:
        alone: Rms of the pictures with the candidate in this seat alone, 0 to 255.
        without: Rms with the candidate in every seat but this.
        share: Of the error's power: the mean of what the seat brings alone and of what
            goes when it is taken out. 1 is all.

    """

    alone: float
    without: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The parts of an error.

    Attributes:
        rms: Of the pictures with the candidate in every seat, 0 to 255.
        parts: By seat.
        interaction: Share of the power that no seat brings alone; negative where
            errors cancel.

    """

    rms: float
    parts: Mapping[str, Part]
    interaction: float

    @property
    def culprit(self) -> str:
        """The seat with the largest share."""
        return max(self.parts, key=lambda seat: self.parts[seat].share)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Attribution:
        """Read what `to_json` wrote."""
        parts = {seat: Part(**part) for seat, part in data["parts"].items()}
        return cls(rms=data["rms"], parts=parts, interaction=data["interaction"])


def attribute(seats: Iterable[str], total: float, draw: Draw) -> Attribution:
    """Exchange seats one at a time.

    Args:
        seats: Those that the candidate takes.
        total: Mean squared error with the candidate in all of them.
        draw: Measures any other cast.

    >>> power = {"unet": 9.0, "vae_decoder": 1.0}
    >>> found = attribute(power, 10.0, lambda cast: sum(power[s] for s in cast))
    >>> found.culprit, found.parts["unet"].share, found.interaction
    ('unet', 0.9, 0.0)
    """
    whole = frozenset(seats)
    alone = {seat: draw(frozenset({seat})) for seat in sorted(whole)}
    without = {
        seat: draw(whole - {seat}) if len(whole) > 1 else 0.0 for seat in sorted(whole)
    }
    parts = {
        seat: Part(
            alone=math.sqrt(alone[seat]),
            without=math.sqrt(without[seat]),
            share=_share(alone[seat], without[seat], total),
        )
        for seat in whole
    }
    summed = sum(alone.values())
    interaction = 1.0 - summed / total if math.isfinite(summed) and total > 0 else 0.0
    ordered = {seat: parts[seat] for seat in seats}
    if not math.isfinite(total):
        interaction = 0.0
    return Attribution(rms=math.sqrt(total), parts=ordered, interaction=interaction)


def _share(alone: float, without: float, total: float) -> float:
    """Return the mean of what a seat brings, and of what goes with it."""
    if total == 0.0:
        return 0.0
    if not math.isfinite(total):  # who breaks a picture alone, or is missed by it
        return (float(not math.isfinite(alone)) + float(math.isfinite(without))) / 2
    if not math.isfinite(alone):  # and together something hides it
        return 1.0
    if not math.isfinite(without):  # which it hides
        return 0.0
    return (alone + total - without) / (2 * total)
