"""Judge one comparison by a tolerance. This module sees no array.

The same comparison can be judged again under other tolerances, because nothing here
measures or keeps a state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.comparison import RTOL_GRID
from harness.core.outcome import Outcome
from harness.core.record import SELF
from harness.judge.tolerance import Tolerance
from harness.measure.metrics import BOUNDED, ratio

if TYPE_CHECKING:
    from harness.core.comparison import Comparison, Picture
    from harness.core.record import Row
    from harness.measure.metrics import Metric

_ALL_DIGITS = 17
_ATOL = "atol"
"""This bound is stated with rtol, a share and a cap, so it has a check of its own."""
_IDS = ("int32", "int64", "uint32", "uint64")
"""Dtypes of an output that hold ids or positions."""
_LEVEL = 1.0
"""Level of a picture, of 255. Differences below it are the same colour on a screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one comparison under one tolerance.

    Attributes:
        comparison: Measurements of the comparison.
        tolerance: Bounds by which it was judged.
        outcome: Outcome of the judgement.
        usage: Largest used share of any bound: 0 without an error, 1 at the limit, more
            beyond it. It is infinite if no number says how far: with a bound of 0, with
            a metric that could not be computed, or with nothing to compare.
        reason: Bound with the largest usage, or the reason why numbers mean nothing.

    """

    comparison: Comparison
    tolerance: Tolerance
    outcome: Outcome
    usage: float
    reason: str

    @property
    def passed(self) -> bool:
        """Whether the two sides agree."""
        return self.outcome.passed


UNPAIRED = (Outcome.SHAPE, Outcome.DTYPE)
"""Outcomes in which the two values are of different kinds. The file's value is then no
wrong version of PyTorch's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """A row of a record, and the verdict on its comparison.

    Attributes:
        row: The row.
        verdict: The verdict on its comparison.
        own: PyTorch's own error in the dtype that bounds it, if that was measured.
        unread: Why the whole value is out of tolerance, if what a mask takes out of it
            alone is. The row is then of what is read. Empty for every other row.
        other: How the value differs, if plug-ins say that it stands for another one
            than the reference's; empty for every other row.
        reads_other: Whether the value is computed from such a value.

    """

    row: Row
    verdict: Verdict
    own: Comparison | None = None
    unread: str = ""
    other: str = ""
    reads_other: bool = False

    @property
    def another(self) -> str:
        """How the value differs, if it passes for it stands for another one."""
        return self.other if self.verdict.outcome is Outcome.ANOTHER else ""

    @property
    def floors(self) -> float:
        """The error in noise floors; infinite if there is no number.

        It is 0 if the row's value stands for another value, or if padding alone reads
        it, because that difference is no error.
        """
        alone = self.unread and not self.verdict.usage
        if alone or self.verdict.outcome is Outcome.ANOTHER:
            return 0.0
        return floors_of(self.row, passed=self.verdict.passed)


def floors_of(row: Row, *, passed: bool) -> float:
    """Return an error in noise floors; infinite if there was no comparison.

    It is never NaN, because the result of `max` with a NaN depends on the order.
    """
    multiple = row.comparison.floor_multiple
    if multiple is not None and not math.isnan(multiple):
        return multiple
    return 0.0 if passed else math.inf


def max_floors(rows: Iterable[JudgedRow]) -> float | None:
    """Return the largest error in floors; None if no row has a floor."""
    known = (j.floors for j in rows if j.row.comparison.floor_multiple is not None)
    return max(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One bound: whether it holds, the used share of it, and a message."""

    holds: bool
    usage: float
    reason: str


def judge(
    comparison: Comparison,
    tolerance: Tolerance,
    *,
    is_output: bool,
    own: Comparison | None = None,
    allow_nonfinite: bool = False,
    allow_constant: bool = False,
    allow_misread: bool = False,
) -> Verdict:
    """Judge one comparison by one tolerance.

    Args:
        comparison: Measurements to judge.
        tolerance: Bounds, all of which must hold.
        is_output: Whether the value is a component's output, which must not have the
            same value everywhere. A layer (a mask, a bias) may have it, and is judged
            by its numbers.
        own: PyTorch's own error in the dtype that `Tolerance.within` names, on the same
            sample; None if it was not measured.
        allow_nonfinite: Whether NaN and infinities pass if they are at the same places.
        allow_constant: Whether an output may have the same value everywhere, or a
            picture a single colour.
        allow_misread: Whether a suite's reader may read something else in the picture.
            Outputs of booleans or ids may then also differ, within the tolerance.

    """
    outcome, reason = _obstacle(comparison, allow_nonfinite=allow_nonfinite)
    if outcome is None and not allow_constant:
        if comparison.picture is not None:
            outcome, reason = _without_content(comparison.picture)
        elif is_output:
            outcome, reason = _constant(comparison)
    if outcome is None and not allow_misread:
        if comparison.picture is not None:
            outcome, reason = _misread(comparison.picture)
        elif is_output:
            outcome, reason = _misread_answer(comparison)
    if outcome is not None:
        usage = math.inf
    else:
        # A failing bound has a usage above 1, so it comes before one that holds.
        checks = [*_checks(comparison, tolerance)]
        if tolerance.within:
            checks.append(_within_own(comparison, own, tolerance.within))
        worst = max(checks, key=lambda check: check.usage)
        outcome = Outcome.WITHIN if worst.holds else Outcome.EXCEEDS
        usage, reason = worst.usage, worst.reason
    return Verdict(
        comparison=comparison,
        tolerance=tolerance,
        outcome=outcome,
        usage=usage,
        reason=reason,
    )


def _obstacle(
    comparison: Comparison, *, allow_nonfinite: bool
) -> tuple[Outcome | None, str]:
    """Return the outcome and reason if numbers mean nothing, or None."""
    expected, actual = comparison.expected_shape, comparison.actual_shape
    if expected != actual:
        return Outcome.SHAPE, f"shape {list(actual)}, expected {list(expected)}"
    kind = _dtype_kind(comparison.expected_dtype)
    if kind == "other" or kind != _dtype_kind(comparison.actual_dtype):
        return (
            Outcome.DTYPE,
            f"dtype {comparison.actual_dtype}, expected {comparison.expected_dtype}",
        )
    if comparison.count == 0:
        return Outcome.EMPTY, f"no element to compare in shape {list(expected)}"
    return _nonfinite(comparison, allow=allow_nonfinite)


def _nonfinite(comparison: Comparison, *, allow: bool) -> tuple[Outcome | None, str]:
    there, here = comparison.nonfinite_expected, comparison.nonfinite_actual
    wrong = comparison.nonfinite_mismatched
    if there == 0 and here == 0 and wrong == 0:
        return None, ""
    if not allow:
        found = f"{here:,} of {comparison.count:,} values are not finite"
        if wrong == 0 and comparison.finite_count:
            found += ", where the reference's are not: `allow_nonfinite` lets that pass"
            return Outcome.NONFINITE, found
        return Outcome.NONFINITE, f"{found}, {there:,} in the reference"
    if wrong != 0:
        return Outcome.NONFINITE, f"{wrong:,} non-finite values are not where expected"
    if comparison.finite_count == 0:
        return Outcome.NONFINITE, "no value is finite, so none can be compared"
    return None, ""


def _constant(comparison: Comparison) -> tuple[Outcome | None, str]:
    sides = {
        "reference": comparison.expected_constant,
        "candidate": comparison.actual_constant,
    }
    constant = [side for side, is_constant in sides.items() if is_constant]
    if not constant or comparison.count == 1:
        return None, ""
    return (
        Outcome.CONSTANT,
        f"one value everywhere in the {' and the '.join(constant)}",
    )


def _without_content(picture: Picture) -> tuple[Outcome | None, str]:
    """Return the outcome of a picture without content: black, or one colour."""
    peaks = {"reference": picture.expected_peak, "candidate": picture.actual_peak}
    if dark := [side for side, peak in peaks.items() if peak < _LEVEL]:
        return Outcome.BLACK, f"black all over in the {' and the '.join(dark)}"
    spreads = {"reference": picture.expected_spread, "candidate": picture.actual_spread}
    if plain := [side for side, spread in spreads.items() if spread < _LEVEL]:
        return Outcome.CONSTANT, f"one colour all over in the {' and the '.join(plain)}"
    return None, ""


def _misread(picture: Picture) -> tuple[Outcome | None, str]:
    if picture.expected_read == picture.actual_read:
        return None, ""
    return (
        Outcome.MISREAD,
        f"read as {picture.actual_read!r}, expected {picture.expected_read!r}",
    )


def _misread_answer(comparison: Comparison) -> tuple[Outcome | None, str]:
    """Judge booleans, such as a ranking, and ids: no share of them may differ.

    Another id names another thing, however near the two numbers are. Integers of 8 or
    16 bits are amounts, such as pixels, and are judged by their size.
    """
    if not comparison.max_abs >= 1.0:  # the least by which whole numbers differ
        return None, ""
    if _dtype_kind(comparison.expected_dtype) == "boolean":
        wrong = round(comparison.rms**2 * comparison.count)
        return (
            Outcome.MISREAD,
            f"{wrong:,} of {comparison.count:,} truths are read otherwise",
        )
    if comparison.expected_dtype not in _IDS:
        return None, ""
    at = list(comparison.worst_index or ())
    numbers = f"{comparison.worst_actual} at {at}, expected {comparison.worst_expected}"
    return (
        Outcome.MISREAD,
        f"{numbers}: another id, which `allow_misread` lets pass",
    )


def _dtype_kind(name: str) -> str:
    """Return the kind of number of a NumPy dtype name.

    >>> [_dtype_kind(name) for name in ("float16", "uint8", "bool", "complex64")]
    ['floating', 'integer', 'boolean', 'other']
    """
    if name.startswith(("float", "bfloat")):
        return "floating"
    if name.startswith(("int", "uint")):
        return "integer"
    return "boolean" if name == "bool" else "other"


def _checks(comparison: Comparison, tolerance: Tolerance) -> Iterator[_Check]:
    """Yield a check for each bound that the tolerance states."""
    if tolerance.rtol is not None and tolerance.atol is not None:
        yield from _elements(comparison, tolerance, tolerance.rtol, tolerance.atol)
    for metric in BOUNDED:
        limit = tolerance.limit(metric)
        if limit is None or metric.name == _ATOL:
            continue
        value = metric.error(comparison)
        if value is not None:
            yield _within(metric, value, limit)
        elif _dtype_kind(comparison.expected_dtype) == "boolean":
            yield _truths(comparison)
        else:
            # A bound on a number that was not measured must not pass.
            yield _Check(
                holds=False,
                usage=math.inf,
                reason=f"no noise floor was measured, so {limit:g} {metric.name} "
                "cannot be checked",
            )


def own_times(comparison: Comparison, own: Comparison) -> float | None:
    """Return an error's rms divided by that of PyTorch's own error in fewer bits.

    The result is None if PyTorch's own error was not measured or is not finite, and
    infinite if PyTorch has no error and the candidate has one.
    """
    if not own.finite_count or own.nonfinite_mismatched or math.isnan(own.rms):
        return None
    return ratio(comparison.rms, own.rms, both_zero=0.0)


def _within_own(comparison: Comparison, own: Comparison | None, within: str) -> _Check:
    name = f"the model's own {SELF[within]}"
    times = None if own is None else own_times(comparison, own)
    if times is None:
        lack = "was not measured" if own is None else "is not finite"
        reason = f'{name} {lack}, so within = "{within}" cannot be checked'
        return _Check(holds=False, usage=math.inf, reason=reason)
    shown, bound = _apart(times, 1.0, ".3g")
    reason = f"{shown} × {name}, allowed {bound}"
    return _check(holds=times <= 1.0, usage=times, reason=reason)


def _elements(
    comparison: Comparison, tolerance: Tolerance, rtol: float, atol: float
) -> Iterator[_Check]:
    required = comparison.required_atol[RTOL_GRID.index(rtol)]
    at = f"at rtol {rtol:.0e}" if rtol else "at rtol 0"
    if tolerance.cap is None:
        yield _upper(required, atol, "needs atol {} " + at + ", allowed {}", ".3e")
        return
    # The quantile ignores rtol, so it can be larger than necessary. If the required
    # atol of all elements is smaller, that number is better. A NaN must stay a NaN.
    quantile = {0.999: comparison.p999, 0.99: comparison.p99}[tolerance.share]
    needed = quantile if math.isnan(quantile) else min(required, quantile)
    share = f"{100 * tolerance.share:g} % of elements need atol "
    yield _upper(needed, atol, share + "{}, allowed {}", ".3e")
    yield _upper(
        required, tolerance.cap, "the worst needs atol {} " + at + ", cap {}", ".3e"
    )


def _truths(comparison: Comparison) -> _Check:
    # Every error of a boolean is 1, so the mean square is the share of wrong ones.
    wrong = round(comparison.rms**2 * comparison.count)
    reason = f"{{}} of {comparison.count:,} truths are wrong, {{}} may be"
    return _upper(wrong, 0.0, reason, ".0f")


def _within(metric: Metric, value: float, limit: float) -> _Check:
    shown, bound = _apart(value, limit, metric.spec)
    asked = f"at least {bound} asked" if metric.more_is_tighter else f"allowed {bound}"
    return _check(
        holds=metric.is_met(value, limit),
        # This is a ratio of error amplitudes, so usages of different bounds compare.
        usage=metric.times(value, limit),
        reason=f"{metric.phrase.format(shown)}, {asked}",
    )


def _upper(value: float, limit: float, reason: str, spec: str) -> _Check:
    beyond = 0.0 if value == 0.0 else math.inf
    return _check(
        holds=value <= limit,
        usage=value / limit if limit > 0.0 else beyond,
        reason=reason.format(*_apart(value, limit, spec)),
    )


def _check(*, holds: bool, usage: float, reason: str) -> _Check:
    # `holds` is false for NaN. An infinite usage then means that the distance is
    # unknown.
    if math.isnan(usage):
        usage = math.inf
    # Decibels are rounded. Beyond the limit the usage must be above 1, however little.
    usage = min(usage, 1.0) if holds else max(usage, math.nextafter(1.0, 2.0))
    return _Check(holds=holds, usage=usage, reason=reason)


def _apart(value: float, limit: float, spec: str) -> tuple[str, str]:
    """Format two numbers, with more digits if rounding makes them look equal."""
    shown, bound = f"{value:{spec}}", f"{limit:{spec}}"
    digits = 4
    while shown == bound and value != limit and digits <= _ALL_DIGITS:
        shown, bound = f"{value:.{digits}g}", f"{limit:.{digits}g}"
        digits += 1
    return shown, bound
