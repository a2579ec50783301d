"""A shard: the part of a run's cases that one of several machines runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, Protocol, TypedDict

from harness.core.end_to_end import Tested
from harness.core.errors import SpecError
from harness.core.plugins import first_answer
from harness.core.record import Key


class ShardCases(TypedDict):
    """A shard with its cases, as a report has it and as xdist can send it.

    Attributes:
        divided: Suite and id of every case that was divided.
        own: Suite and id of each case of this shard.
        checks: Number of their checks that pytest selected; absent without pytest,
            where each case has all of its checks.

    """

    number: int
    of: int
    divided: list[Key]
    own: list[Key]
    checks: NotRequired[int]


class AnyShard(Protocol):
    """One shard of a run, before the cases are known."""

    def part_of(
        self, cases: Sequence[tuple[str, Tested]], costs: Mapping[Key, float]
    ) -> ShardCases:
        """Return this shard's cases.

        Args:
            cases: Suite's path and case, for every case of the run.
            costs: Seconds of cases in an earlier run; 0 of a case that failed there.

        Raises:
            SuiteError: The cases cannot be divided into so many shards.

        """


def shard_of(text: str) -> AnyShard:
    """Return the shard that a text such as ``3/8`` means.

    Raises:
        SpecError: The text is no shard, or no plug-in divides cases.

    """
    msg = (
        f"the shard {text!r} needs a plug-in that divides cases among machines, and "
        "none is installed; leave it out, and all cases run here."
    )
    shard: AnyShard = first_answer("shards", text, lacking=SpecError(msg))
    return shard
