"""Keep the extent of each value of a case while its samples go by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

from harness.commands.tune.extent import worse
from harness.commands.tune.plan import Measured, Noise, Point
from harness.core.comparison import Comparison
from harness.core.record import OUTPUTS, Row
from harness.judge.tolerance import Tolerance
from harness.judge.value import judge
from harness.measure.metrics import METRIC, TUNED
from harness.runtimes.session import Ran


class Tally:
    """One case's numbers so far.

    Args:
        limit: What its outputs are held to today.

    """

    def __init__(self, limit: Tolerance) -> None:
        self._limit = limit
        self._rows: dict[tuple[str, str], Row] = {}
        self._points: list[Point] = []
        self._layers: list[str] = []
        self._noise: dict[str, Noise] = {}
        self._ran: dict[str, Any] = {}
        self._coverage: dict[str, Any] | None = None

    def outputs(self, rows: Iterable[Row]) -> float:
        """Take one sample's outputs; return the part of the limit that they use."""
        rows = list(rows)
        self._merge(rows)
        extent = reduce(worse, (row.comparison for row in rows))
        usage = max(judge(_of(r), self._limit, is_output=True).usage for r in rows)
        self._points.append(
            Point(
                sample=rows[0].sample,
                usage=usage,
                floors=extent.floor_multiple,
                sqnr_db=extent.sqnr_db,
                required_atol=extent.required_atol,
            )
        )
        return usage

    def layers(
        self, sample: str, rows: Iterable[Row], coverage: dict[str, Any]
    ) -> None:
        """Take one sample's layers."""
        self._merge(rows)
        self._layers.append(sample)
        known = self._coverage
        if known is None or coverage["aligned"] < known["aligned"]:
            self._coverage = coverage

    def noise(self, kind: str, rows: Iterable[Row]) -> None:
        """Take how outputs moved under other circumstances; the largest move stays."""
        extent = reduce(worse, (row.comparison for row in rows))
        old = self._noise.get(kind)
        if old is None or extent.max_abs > old.max_abs:
            self._noise[kind] = Noise(
                kind=kind, max_abs=extent.max_abs, floors=extent.floor_multiple
            )

    def also(self, rows: Iterable[Row]) -> None:
        """Take outputs of a run under other circumstances; they bound too."""
        self._merge(rows)

    def ran(self, ran: Ran) -> None:
        """Note what really runs the case."""
        self._ran = asdict(ran)

    @property
    def worst(self) -> str:
        """Id of the sample whose outputs use most of the limit."""
        return max(self._points, key=lambda point: point.usage).sample

    def measured(self) -> Measured:
        """Return all of it."""
        rows = sorted(self._rows.values(), key=lambda row: (row.what, row.position))
        return Measured(
            rows=tuple(rows),
            points=tuple(self._points),
            layers=tuple(self._layers),
            noise=tuple(self._noise.values()),
            ran=self._ran,
            coverage=self._coverage,
        )

    def _size(self, comparison: Comparison) -> float:
        """Return the error in the unit that the case is held to."""
        # An atol has the unit of one value, which does not compare with another's.
        units = [metric for metric in TUNED if metric.name != "atol"]
        stated = [metric for metric in units if self._limit.limit(metric) is not None]
        metric = (stated or [METRIC["floors"]])[0]
        value = metric.of(comparison) or 0.0
        return -value if metric.more_is_tighter else value

    def _merge(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = (row.what, row.probe)
            known = self._rows.get(key)
            if known is None:
                self._rows[key] = row
                continue
            extent = worse(known.comparison, row.comparison)
            louder = self._size(row.comparison) > self._size(known.comparison)
            sample = row.sample if louder else known.sample
            self._rows[key] = replace(known, sample=sample, comparison=extent)


def _of(row: Row) -> Comparison:
    """Return an output's comparison; one that is constant on both sides is the input's.

    A hint without lines gives such outputs, and they say nothing against a runtime.
    """
    comparison = row.comparison
    both = comparison.expected_constant and comparison.actual_constant
    if row.what == OUTPUTS and both:
        return replace(comparison, expected_constant=False, actual_constant=False)
    return comparison
