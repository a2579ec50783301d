"""Hold a comparison against a tolerance. Decides only; sees no array.

The same comparison can be judged again and again under other tolerances: nothing here
measures, and nothing remembers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.ladder import RTOL_LADDER
from harness.core.outcome import Outcome
from harness.judge.tolerance import Tolerance
from harness.measure.metrics import BOUNDED

if TYPE_CHECKING:
    from harness.core.comparison import Comparison, Picture
    from harness.measure.metrics import Metric

_ALL_DIGITS = 17
_ATOL = "atol"
"""This bound is stated with rtol, a share and a cap, so it has its own check."""
_LEVEL = 1.0
"""Of a picture's 255: what differs by less is one colour on a screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one comparison fares under one tolerance.

    Attributes:
        comparison: What was measured.
        tolerance: What it was held against.
        outcome: Which way it went.
        usage: Largest part of any bound that is used: 0 is no error, 1 at the limit,
            more beyond it. Infinite where no number says how far: a bound of 0, a
            metric that could not be computed, or nothing comparable at all.
        reason: The bound with the largest usage, or what made numbers meaningless.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One bound: whether it holds, how much of it is used, and that in words."""

    holds: bool
    usage: float
    reason: str


def judge(
    comparison: Comparison,
    tolerance: Tolerance,
    *,
    is_output: bool,
    allow_nonfinite: bool = False,
    allow_constant: bool = False,
    allow_misread: bool = False,
) -> Verdict:
    """Hold one comparison against one tolerance.

    Args:
        comparison: What was measured.
        tolerance: Every bound it states must hold.
        is_output: A component's output, which must not be one value everywhere. A
            layer may be (a mask, a bias); it is judged by its numbers.
        allow_nonfinite: NaN and infinities pass if they are at the same places.
        allow_constant: An output may be one value everywhere, a picture one colour.
        allow_misread: A suite's reader may see something else in the picture; an
            output of truths may have others, within its tolerance.

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
            outcome, reason = _misread_truths(comparison)
    if outcome is not None:
        usage = math.inf
    else:
        # What fails has used more than 1 of its bound, so it comes before what holds.
        worst = max(_checks(comparison, tolerance), key=lambda check: check.usage)
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
    """Return what makes the numbers meaningless, or None."""
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
    """Return what a picture without content is: black, or of one colour."""
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


def _misread_truths(comparison: Comparison) -> tuple[Outcome | None, str]:
    """Judge what is either so or not, such as a ranking: no share of it may differ."""
    if _dtype_kind(comparison.expected_dtype) != "boolean":
        return None, ""
    wrong = round(comparison.rms**2 * comparison.count)
    if wrong == 0:
        return None, ""
    return (
        Outcome.MISREAD,
        f"{wrong:,} of {comparison.count:,} truths are read otherwise",
    )


def _dtype_kind(name: str) -> str:
    """Return the kind of number a numpy dtype name stands for.

    >>> [_dtype_kind(name) for name in ("float16", "uint8", "bool", "complex64")]
    ['floating', 'integer', 'boolean', 'other']
    """
    if name.startswith(("float", "bfloat")):
        return "floating"
    if name.startswith(("int", "uint")):
        return "integer"
    return "boolean" if name == "bool" else "other"


def _checks(comparison: Comparison, tolerance: Tolerance) -> Iterator[_Check]:
    """Yield a check for each bound the tolerance states."""
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
            # Passing what was not measured is how harnesses lie.
            yield _Check(
                holds=False,
                usage=math.inf,
                reason=f"no noise floor was measured, so {limit:g} {metric.name} "
                "cannot be checked",
            )


def _elements(
    comparison: Comparison, tolerance: Tolerance, rtol: float, atol: float
) -> Iterator[_Check]:
    required = comparison.required_atol[RTOL_LADDER.index(rtol)]
    at = f"at rtol {rtol:.0e}" if rtol else "at rtol 0"
    if tolerance.cap is None:
        yield _upper(required, atol, "needs atol {} " + at + ", allowed {}", ".3e")
        return
    # The quantile knows no rtol and so overstates what is needed; where all elements
    # together need less, that is the better number; but not to talk a NaN away.
    quantile = {0.999: comparison.p999, 0.99: comparison.p99}[tolerance.share]
    needed = quantile if math.isnan(quantile) else min(required, quantile)
    share = f"{100 * tolerance.share:g} % of elements need atol "
    yield _upper(needed, atol, share + "{}, allowed {}", ".3e")
    yield _upper(
        required, tolerance.cap, "the worst needs atol {} " + at + ", cap {}", ".3e"
    )


def _truths(comparison: Comparison) -> _Check:
    # Of truths, every error is 1, so its mean square is the share that is wrong.
    wrong = round(comparison.rms**2 * comparison.count)
    reason = f"{{}} of {comparison.count:,} truths are wrong, {{}} may be"
    return _upper(wrong, 0.0, reason, ".0f")


def _within(metric: Metric, value: float, limit: float) -> _Check:
    shown, bound = _apart(value, limit, metric.spec)
    asked = f"at least {bound} asked" if metric.more_is_tighter else f"allowed {bound}"
    return _check(
        holds=metric.is_met(value, limit),
        # A ratio of error amplitudes, so that one bound's usage is like another's.
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
    # `holds` is written so that NaN fails; usage then says "how far is unknown".
    if math.isnan(usage):
        usage = math.inf
    # Decibels round: beyond the limit is more than 1, however little.
    usage = min(usage, 1.0) if holds else max(usage, math.nextafter(1.0, 2.0))
    return _Check(holds=holds, usage=usage, reason=reason)


def _apart(value: float, limit: float, spec: str) -> tuple[str, str]:
    """Format two numbers, with more digits where rounding makes them look the same."""
    shown, bound = f"{value:{spec}}", f"{limit:{spec}}"
    digits = 4
    while shown == bound and value != limit and digits <= _ALL_DIGITS:
        shown, bound = f"{value:.{digits}g}", f"{limit:.{digits}g}"
        digits += 1
    return shown, bound
