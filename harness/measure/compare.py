"""Measure how far two arrays differ. `harness.judge` makes the verdict.

The numbers come from one compiled pass (`harness.measure.kernel`). This module has the
steps before it (shapes, kinds of number, nothing to compare) and the arithmetic after
it.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.comparison import RTOL_GRID, Comparison
from harness.core.errors import SpecError
from harness.measure.metrics import METRICS, Sums, cosine, ratio

Array = NDArray[Any]

UNIT_ROUNDOFF = 2.0**-24
"""Unit roundoff of float32: the smallest relative noise that a float32 computation is
assumed to have."""

EXACT_QUANTILES = 1 << 20
"""Largest number of elements for which every error is counted in the quantiles."""

_SAMPLE = 1 << 18
_STRIDES = (3, 7, 13, 23, 47, 97, 197, 397, 797, 1597, 3203, 6421, 12853)
_FROM_SUMS = tuple(
    (metric.field, metric.measure) for metric in METRICS if metric.measure
)

_name = functools.cache(str)  # numpy makes the name of a dtype anew each time


def compare(
    *, expected: Array, actual: Array, floor_rms: float | None = None
) -> Comparison:
    """Compare a candidate's values with the reference's, without broadcasting.

    Args:
        expected: Values of the reference, with any shape and memory layout; boolean,
            integer or floating point of at most 64 bits.
        actual: Values of the candidate, likewise.
        floor_rms: Rms of the reference's own float32 error, in the unit of the values;
            None if it is not known.

    Returns:
        The measurements. A number that could not be measured is NaN; see `Comparison`.

    Raises:
        SpecError: A dtype cannot be measured, or `floor_rms` is negative or NaN.

    """
    _check_dtype("expected", expected)
    _check_dtype("actual", actual)
    if floor_rms is not None and not floor_rms >= 0.0:
        msg = f"floor_rms must not be negative or NaN, got {floor_rms}."
        raise SpecError(msg)
    described: dict[str, Any] = {
        "expected_shape": expected.shape,
        "actual_shape": actual.shape,
        "expected_dtype": _name(expected.dtype),
        "actual_dtype": _name(actual.dtype),
        "floor_rms": None if floor_rms is None else float(floor_rms),
    }
    if expected.shape != actual.shape or expected.size == 0:
        return Comparison(
            **described, floor_multiple=None if floor_rms is None else math.nan
        )
    return Comparison(**described, **_measure(expected, actual, floor_rms))


def _check_dtype(side: str, array: Array) -> None:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:  # noqa: PLR2004  # bytes
        msg = (
            f"The {side} values are {array.dtype}, which cannot be measured; give "
            "booleans, integers or floating point of at most 64 bits."
        )
        raise SpecError(msg)


def _measure(expected: Array, actual: Array, floor_rms: float | None) -> dict[str, Any]:
    """Return every field of a `Comparison` that needs the values."""
    kernel = _kernel()
    shape = expected.shape
    count = expected.size
    items = shape[0] if len(shape) > 1 else 1
    channels = shape[1] if len(shape) > 2 else 1  # noqa: PLR2004  # axes
    sums = np.zeros(kernel.SUM_COUNT)
    required = np.zeros(len(RTOL_GRID))
    tally = np.zeros(kernel.TALLY_COUNT, np.int64)
    values: tuple[Array, Array, Array | None, Array | None]
    if _fits_float32(expected.dtype) and _fits_float32(actual.dtype):
        limits = np.zeros(len(RTOL_GRID), np.float32)
        values = _flat(expected, np.float32), _flat(actual, np.float32), None, limits
    else:
        values = *_widened(expected, actual), None
    kernel.measure(*values, items, channels, _stride(count), sums, required, tally)

    counts = tally.tolist()
    finite_count = count - counts[kernel.EXCLUDED]
    measured = {
        "count": count,
        "finite_count": finite_count,
        "nonfinite_expected": counts[kernel.BAD_EXPECTED],
        "nonfinite_actual": counts[kernel.BAD_ACTUAL],
        "nonfinite_mismatched": counts[kernel.BAD_MISMATCHED],
        "expected_constant": _is_constant(expected),
        "actual_constant": _is_constant(actual),
        "floor_multiple": None if floor_rms is None else math.nan,
    }
    if finite_count == 0:
        return measured

    atols = tuple(required.tolist())
    bias, error, signal, candidate, product, along, p99, p999, *parts = sums.tolist()
    total = Sums(
        count=finite_count,
        error_squared=error,
        expected_squared=signal,
        actual_squared=candidate,
        product=product,
        along=along,
    )
    from_sums = {field: measure(total) for field, measure in _FROM_SUMS}
    expected_rms = math.sqrt(signal / finite_count)
    worst = counts[kernel.WORST]
    if worst < 0:  # every error is 0: take the first finite pair
        worst = int(np.argmax(np.isfinite(expected) & np.isfinite(actual)))
    if shape:
        item = (counts[kernel.ITEM], parts[0]) if len(shape) > 1 else (worst, atols[0])
        measured |= {"worst_item": item[0], "worst_item_rms": item[1]}
    if len(shape) > 2:  # noqa: PLR2004  # axes
        measured |= {
            "worst_channel": counts[kernel.CHANNEL],
            "worst_channel_rms": parts[1],
        }
    return measured | {
        "max_abs": atols[0],
        **from_sums,
        "p99": p99,
        "p999": p999,
        "bias": bias / finite_count,
        "cosine": cosine(total),
        "norm_ratio": math.sqrt(ratio(candidate, signal, both_zero=1.0)),
        "expected_rms": expected_rms,
        "worst_index": _index(worst, shape),
        # The plus sign turns a boolean into an int.
        "worst_expected": +expected.item(worst),
        "worst_actual": +actual.item(worst),
        "required_atol": atols,
        "floor_multiple": None
        if floor_rms is None
        else ratio(
            from_sums["rms"],
            max(floor_rms, UNIT_ROUNDOFF * expected_rms),
            both_zero=0.0,
        ),
    }


@functools.cache  # a small array would notice what an import statement costs
def _kernel() -> ModuleType:
    """Import the compiled pass; reading a recorded comparison needs no compiler."""
    from harness.measure import kernel

    return kernel


def _fits_float32(dtype: np.dtype[Any]) -> bool:
    """Whether float32 holds every value of `dtype` exactly."""
    return dtype.itemsize <= (4 if dtype.kind == "f" else 2)


def _flat(array: Array, dtype: type[np.floating[Any]]) -> Array:
    """Return `array` in the one layout for which the kernel is compiled.

    The result is one-dimensional, contiguous, aligned, in native byte order and
    read-only. It is a view if possible.
    """
    flags = array.flags
    # A dtype has its type; byte orders are told apart by `isnative`.
    is_it = array.dtype.type is dtype and array.dtype.isnative
    if not (is_it and flags.c_contiguous and flags.aligned):
        array = np.require(array, dtype, ("C", "A"))
    flat = array.reshape(-1)
    flat.setflags(write=False)
    return flat


def _widened(expected: Array, actual: Array) -> tuple[Array, Array, Array]:
    """Return expected, actual and the error between them, flat and in float64."""
    left, right = _flat(expected, np.float64), _flat(actual, np.float64)
    if expected.dtype.kind == "f" or actual.dtype.kind == "f":
        with np.errstate(all="ignore"):  # the kernel counts numbers that are not finite
            error = right - left
    else:
        error = _integer_error(expected.reshape(-1), actual.reshape(-1))
    # It stays writable: the kernel is compiled for one type, and fills float32 errors.
    return left, right, error


def _integer_error(expected: Array, actual: Array) -> Array:
    """Subtract exactly and round once; float64 alone merges integers above 2^53."""
    common = np.result_type(expected, actual)
    if common.kind == "f":  # int64 and uint64 have no integer type in common
        return np.subtract(actual, expected, dtype=object).astype(np.float64)
    expected, actual = expected.astype(common), actual.astype(common)
    # Modulo 2^64 the larger number minus the smaller one is exact for all signs.
    left, right = expected.astype(np.uint64), actual.astype(np.uint64)
    up = (right - left).astype(np.float64)
    down = (left - right).astype(np.float64)
    return np.where(actual >= expected, up, -down)


def _stride(count: int) -> int:
    """Return n, where every n-th element is counted for the quantiles.

    Beyond `EXACT_QUANTILES` it is a prime, so that the sample does not fall on a few
    channels or columns only.
    """
    if count <= EXACT_QUANTILES:
        return 1
    return max(stride for stride in _STRIDES if count >= stride * _SAMPLE)


def _is_constant(array: Array) -> bool:
    """Whether several elements all have one value; NaN counts as one value."""
    if array.size < 2:  # noqa: PLR2004  # one element is no evidence
        return False
    first = array.item(0)
    missing = first != first  # noqa: PLR0124  # NaN, for every dtype
    if array.item(-1) != first and not missing:
        return False
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    start, step = 0, 1 << 10
    while start < array.size:
        part = flat[start : start + step]
        if not (np.isnan(part) if missing else part == first).all():
            return False
        start, step = start + step, 1 << 20
    return True


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a flat index as one index for each axis."""
    index: tuple[int, ...] = ()
    for length in reversed(shape):
        flat, last = divmod(flat, length)
        index = (last, *index)
    return index
