"""Divide the cases of a run among machines: each runs one shard.

Every machine divides alone. So the division depends only on what all of them have: the
cases, and the seconds of an earlier run where all have that run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.core.case import Case
from harness.core.end_to_end import Tested
from harness.core.errors import SpecError, SuiteError
from harness.core.record import Key
from harness.core.text import count
from harness.suite.forecast import known_weights
from harness.suite.shards import ShardCases

_SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")

# Seconds of a case where no earlier run tells, fitted on a warm run of digits on two
# cores. A case with 12 samples took 0.4 s with 0.7 MiB of weights, 0.7 s with 2.6,
# 3.2 s with 10.8 and 3.7 s with 15.5.
_CASE_S: Final = 0.1
_SAMPLE_S_PER_MIB: Final = 0.022


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard of a run; its number is from 1 to `of`."""

    number: int
    of: int

    def part_of(
        self, cases: Sequence[tuple[str, Tested]], costs: Mapping[Key, float]
    ) -> ShardCases:
        """Return this shard's cases.

        The cases of one component, or of one pipeline, stay together, because they
        share its export and its reference.

        Args:
            cases: Suite's path and case, for every case of the run.
            costs: Seconds of cases in an earlier run; 0 of a case that failed there,
                which is forecast. They count only if the run had every case, because
                the other shards may not know a run of fewer cases.

        Raises:
            SuiteError: There are more shards than components and pipelines.

        """
        had_all = all((path, case.id) in costs for path, case in cases)
        groups: dict[Key, list[Key]] = {}
        seconds: dict[Key, float] = {}
        for path, case in cases:
            key, group = (path, case.id), (path, case.subject)
            groups.setdefault(group, []).append(key)
            cost = (had_all and costs[key]) or _forecast_s(case)
            seconds[group] = seconds.get(group, 0.0) + cost
        if self.of > len(groups):
            msg = (
                f"at most {count(len(groups), 'shard')} can be made of these cases, "
                "because the cases of one component or pipeline stay together; "
                f"{self.of} were asked for."
            )
            raise SuiteError(msg)
        own = divided(seconds, self.of)[self.number - 1]
        return ShardCases(
            number=self.number,
            of=self.of,
            divided=[key for keys in groups.values() for key in keys],
            own=[key for group in own for key in groups[group]],
        )


def shard_of(text: str) -> Shard:
    """Return the shard that a text such as ``3/8`` means.

    Raises:
        SpecError: The text is no shard, or its number is beyond the count.

    """
    found = _SHARD.fullmatch(text)
    if found is None:
        msg = f"a shard is written as in 3/8, the third of eight; got {text!r}."
        raise SpecError(msg)
    number, of = int(found[1]), int(found[2])
    if number > of:
        msg = f"there is no shard {number} of {of}; the last one is {of}/{of}."
        raise SpecError(msg)
    return Shard(number=number, of=of)


def divided(seconds: Mapping[Key, float], of: int) -> list[list[Key]]:
    """Divide groups into parts that take about as long; none of them is empty.

    The longest group goes first, each into the part that is shortest so far. The
    longest part is at most 4/3 of the best possible one (R. L. Graham, 1969, "Bounds
    on Multiprocessing Timing Anomalies").

    >>> parts = divided({("", "a"): 5, ("", "b"): 4, ("", "c"): 3, ("", "d"): 3}, 2)
    >>> [[name for _, name in part] for part in parts]
    [['a', 'd'], ['b', 'c']]
    """
    parts: list[list[Key]] = [[] for _ in range(of)]
    for group in sorted(seconds, key=lambda group: (-seconds[group], group)):
        shortest = min(
            parts, key=lambda part: (len(part) > 0, sum(seconds[one] for one in part))
        )
        shortest.append(group)
    return parts


def _forecast_s(case: Tested) -> float:
    """Return about how many seconds a case takes, by its weights and samples."""
    weights = sum(known_weights(part.component) for part in case.parts)
    many = len(case.samples) if isinstance(case, Case) else case.samples_alike
    return _CASE_S + _SAMPLE_S_PER_MIB * many * weights / 2**20
