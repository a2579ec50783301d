"""Find the role that causes the error, by exchanging roles one at a time.

Each role is exchanged in both directions. Errors of pictures are compared as powers
(mean squares). Powers add up if roles do not influence each other; the rest is
interaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

Draw = Callable[[frozenset[str]], float]
"""Function that draws with the candidate in the named roles and PyTorch in the others.
It returns the mean squared error of the pictures, which is infinite if they are not
finite."""


class RoleShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one role in the error.

    Attributes:
        alone: Rms error of the pictures with the candidate in this role only, in levels
            from 0 to 255.
        without: Rms error with the candidate in every role except this one, in the same
            unit.
        share: Share of the error's power; 1 is all of it. It is the mean of two shares:
            the power that the role causes alone, and the power that disappears without
            it.

    """

    alone: float
    without: float
    share: float


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of all roles in an error.

    Attributes:
        rms: Rms error of the pictures with the candidate in every role, in levels from
            0 to 255.
        parts: Share of each role, by the role's name.
        interaction: Share of the power that no role causes alone; negative if errors
            cancel.

    """

    rms: float
    parts: Mapping[str, RoleShare]
    interaction: float

    @property
    def culprit(self) -> str:
        """The role with the largest share."""
        return max(self.parts, key=lambda role: self.parts[role].share)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Attribution:
        """Return what `to_json` wrote."""
        return msgspec.convert(data, cls)


def attribute(roles: Iterable[str], total: float, draw: Draw) -> Attribution:
    """Exchange roles one at a time, and return the share of each in the error.

    `total` is the mean squared error with the candidate in all of the roles.

    >>> power = {"unet": 9.0, "vae_decoder": 1.0}
    >>> found = attribute(power, 10.0, lambda roles: sum(power[r] for r in roles))
    >>> found.culprit, found.parts["unet"].share, found.interaction
    ('unet', 0.9, 0.0)
    """
    whole = frozenset(roles)
    alone = {role: draw(frozenset({role})) for role in sorted(whole)}
    without = {
        role: draw(whole - {role}) if len(whole) > 1 else 0.0 for role in sorted(whole)
    }
    parts = {
        role: RoleShare(
            alone=math.sqrt(alone[role]),
            without=math.sqrt(without[role]),
            share=_share(alone[role], without[role], total),
        )
        for role in roles
    }
    summed, interaction = sum(alone.values()), 0.0
    if math.isfinite(summed) and math.isfinite(total) and total > 0:
        interaction = 1.0 - summed / total
    return Attribution(rms=math.sqrt(total), parts=parts, interaction=interaction)


def _share(alone: float, without: float, total: float) -> float:
    """Return the mean of the share caused alone and the share gone without a role."""
    if total == 0.0:
        return 0.0
    if not math.isfinite(total):  # each of two signs of fault counts a half
        return (float(not math.isfinite(alone)) + float(math.isfinite(without))) / 2
    if not math.isfinite(alone):  # the other roles hide its error
        return 1.0
    if not math.isfinite(without):  # it hides the error of other roles
        return 0.0
    return (alone + total - without) / (2 * total)
