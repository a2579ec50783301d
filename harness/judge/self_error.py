"""Compare the errors of a case with PyTorch's own errors in bfloat16 and float16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.core.comparison import Comparison
from harness.core.record import SELF, CaseRecord, Row
from harness.judge.value import own_times

Own = Mapping[tuple[str, str, str], Comparison]
"""PyTorch's own errors by name of `SELF`, sample and probe."""


def own_errors(record: CaseRecord) -> Own:
    """Return PyTorch's own errors that a record has."""
    return {
        (row.what, row.sample, row.probe): row.comparison
        for row in record.rows
        if row.what in SELF and row.sample
    }


def own_words(rows: Sequence[Row], own: Own) -> Iterator[str]:
    """Yield for each dtype the largest ratio of an error to PyTorch's own."""
    for name, dtype in SELF.items():
        times = [one for row in rows for one in _times(row, own, name)]
        if times:
            yield f"off by {max(times):.3g} × the model's own {dtype}"


def refusals(record: CaseRecord) -> Iterator[str]:
    """Yield for each dtype in which PyTorch could not be measured the reason."""
    return (row.looks for row in record.rows if row.what in SELF and not row.sample)


def _times(row: Row, own: Own, name: str) -> Iterable[float]:
    found = own.get((name, row.sample, row.probe))
    times = None if found is None else own_times(row.comparison, found)
    return () if times is None else (times,)
