"""Whether what was timed had the processor to itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.core.text import count

QUIET = 0.05
"""Largest share withheld at which a time says something of the build; see
`benchmarks/bench_times.py`."""

_FULL = 0.5
"""Share of the threads that should have been at work; with less, it is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWork:
    """What the processor did while something was timed.

    Attributes:
        threads: As asked for.
        cores: Processor time over time.
        withheld: Share of the processor time that was asked for and went to others;
            None where that is not known.

    """

    threads: int
    cores: float
    withheld: float | None

    @property
    def disturbed(self) -> bool:
        """Whether other work took too much."""
        return is_disturbed(self.withheld)


def is_disturbed(withheld: float | None) -> bool:
    """Return whether a time says more of other work than of what was timed."""
    return withheld is not None and withheld > QUIET


def at_work_words(rows: Iterable[AtWork]) -> str:
    """Return what is to be said of the processor; empty for nothing.

    >>> at_work_words([AtWork(threads=2, cores=0.4, withheld=0.0)])
    '1 row kept under half of the threads at work: the network is too small for them'
    >>> at_work_words([AtWork(threads=2, cores=1.3, withheld=0.33)])[:52]
    'other work took up to 33% of the processor time that'
    """
    return "; ".join(_sentences(tuple(rows)))


def _sentences(rows: tuple[AtWork, ...]) -> Iterator[str]:
    disturbed = [row.withheld or 0.0 for row in rows if row.disturbed]
    idle = [
        row for row in rows if row.cores < _FULL * row.threads and not row.disturbed
    ]
    if disturbed:
        yield (
            f"other work took up to {max(disturbed):.0%} of the processor time that "
            f"{count(len(disturbed), 'row')} asked for: the gate judges no such time; "
            "time again on a quiet machine"
        )
    if idle:
        yield (
            f"{count(len(idle), 'row')} kept under half of the threads at work: the "
            "network is too small for them"
        )
