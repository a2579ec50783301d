"""The compiled pass behind `compare`: one walk over a pair, sums and maxima out.

Rows are walked in blocks that stay in the first-level cache, so that several simple
loops over a block, each of which the compiler vectorises, cost one walk over memory.
Nothing here knows shapes beyond ``[rows, inner]``, tolerances or Python objects.

Single-threaded on purpose: callers fork, and a threading layer does not survive it.
Importing this module imports numba; nothing is compiled before the first call, which
loads from the disk cache if it can.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# ruff: noqa: ANN001, ANN201, ANN202
# Both: numba infers the types of compiled functions, and reads no annotations.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from harness.core.ladder import RTOL_LADDER

if TYPE_CHECKING:
    from collections.abc import Callable

BIN_COUNT = 1 << 15
"""Bins of the error histogram: 11 bits of exponent and 4 of mantissa."""

# Slots of the result vectors; numba freezes them into the machine code.
BIAS, SQUARED_ERROR, SQUARED_EXPECTED, SQUARED_ACTUAL, PRODUCT, ALONG = range(6)
P99, P999 = 6, 7
SUM_COUNT = 8
BAD_EXPECTED, BAD_ACTUAL, BAD_MISMATCHED, EXCLUDED, SAMPLED, WORST = range(6)
TALLY_COUNT = 6

_BLOCK = 2048  # expected, actual and a float64 scratch together fill 32 of 48 KiB
_SHORT = 128
_RUNGS = 6
_BIN_SHIFT = 48
_ROUND_UP = (1 << _BIN_SHIFT) - 1
_SCALE = np.float32(2.0**24)
_UNSCALE = 2.0**-24
_NARROWED = 1.0 - 2.0**-21
_SLACK = 1.0 - 2.0**-20
if len(RTOL_LADDER) != _RUNGS or RTOL_LADDER[0] != 0.0:
    msg = f"The kernel is unrolled for 0 and five more rtol, got {RTOL_LADDER}."
    raise ImportError(msg)


def _compiled(*, reorder: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile on first call, cached on disk; `reorder` lets sums run in lanes.

    The flags behind `reorder` leave NaN and infinity alone, unlike ``fastmath=True``,
    which would let the compiler assume that there are none.
    """
    fastmath = {"reassoc", "contract", "nsz"} if reorder else False
    return njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)


@_compiled(reorder=True)
def _sum_pair(expected, actual):
    """Sum a float32 block in float64, without a copy of it."""
    bias = squared = squared_expected = squared_actual = product = along = 0.0
    for i in range(expected.size):
        left = np.float64(expected[i])
        right = np.float64(actual[i])
        error = right - left
        bias += error
        squared += error * error
        squared_expected += left * left
        squared_actual += right * right
        product += left * right
        # Not product - squared_expected, which loses the digits of a small error.
        along += error * left
    return bias, squared, squared_expected, squared_actual, product, along


@_compiled(reorder=True)
def _sum_triple(expected, actual, error):
    """Sum a float64 block whose error was taken beforehand."""
    bias = squared = squared_expected = squared_actual = product = along = 0.0
    for i in range(expected.size):
        bias += error[i]
        squared += error[i] * error[i]
        squared_expected += expected[i] * expected[i]
        squared_actual += actual[i] * actual[i]
        product += expected[i] * actual[i]
        along += error[i] * expected[i]
    return bias, squared, squared_expected, squared_actual, product, along


@_compiled()
def _screen(expected, actual, scaled):
    """Bound ``|error| - rtol * |expected|`` over a finite block from above, in float32.

    Twice the lanes of float64, and enough to leave most blocks out of `_exact`. What
    makes it a bound: `scaled` is rounded towards zero by more than float32 can lose,
    and everything is held `_SCALE` times too large, so that a positive difference
    cannot underflow to zero. An overflow turns the first bound into infinity.

    Returns:
        The bit patterns of six float32 numbers, negative ones as 0. As integers,
        because positive floats sort like their bits, and the maximum of floats is not
        vectorised unless NaN may be assumed away.

    """
    # Read once: a load inside the loop would have to be repeated for each lane.
    scaled1, scaled2, scaled3 = scaled[1], scaled[2], scaled[3]
    scaled4, scaled5 = scaled[4], scaled[5]
    most0 = most1 = most2 = most3 = most4 = most5 = np.int32(0)
    for i in range(expected.size):
        size = abs(expected[i])
        error = np.float32(abs(actual[i] - expected[i]) * _SCALE)
        most0 = max(most0, error.view(np.int32))
        most1 = max(most1, np.float32(error - scaled1 * size).view(np.int32))
        most2 = max(most2, np.float32(error - scaled2 * size).view(np.int32))
        most3 = max(most3, np.float32(error - scaled3 * size).view(np.int32))
        most4 = max(most4, np.float32(error - scaled4 * size).view(np.int32))
        most5 = max(most5, np.float32(error - scaled5 * size).view(np.int32))
    return most0, most1, most2, most3, most4, most5


@_compiled()
def _may_raise(bounds, required):
    """Whether a block with these bounds can hold a new maximum at any rtol."""
    for i in range(len(bounds)):
        bound = np.float64(np.int32(bounds[i]).view(np.float32)) * _UNSCALE
        if bound > required[i] * _SLACK:
            return True
    return False


@_compiled()
def _exact(expected, error, ladder, required):
    """Raise `required` to the block's maxima; return whether the largest error grew."""
    rtol1, rtol2, rtol3 = ladder[1], ladder[2], ladder[3]
    rtol4, rtol5 = ladder[4], ladder[5]
    most0 = most1 = most2 = most3 = most4 = most5 = np.int64(0)
    for i in range(error.size):
        size = abs(np.float64(expected[i]))
        distance = np.float64(abs(error[i]))
        most0 = max(most0, distance.view(np.int64))
        most1 = max(most1, np.float64(distance - rtol1 * size).view(np.int64))
        most2 = max(most2, np.float64(distance - rtol2 * size).view(np.int64))
        most3 = max(most3, np.float64(distance - rtol3 * size).view(np.int64))
        most4 = max(most4, np.float64(distance - rtol4 * size).view(np.int64))
        most5 = max(most5, np.float64(distance - rtol5 * size).view(np.int64))
    most = (most0, most1, most2, most3, most4, most5)
    grew = np.int64(most0).view(np.float64) > required[0]
    for i in range(len(most)):
        required[i] = max(required[i], np.int64(most[i]).view(np.float64))
    return grew


@_compiled()
def _first_equal(error, distance):
    for i in range(error.size):
        if abs(error[i]) == distance:
            return i
    return 0


@_compiled()
def _kind(value):
    """Tell finite (0), NaN (1), +inf (2) and -inf (3) apart."""
    if np.isfinite(value):
        return 0
    if np.isnan(value):
        return 1
    return 2 if value > 0 else 3


@_compiled()
def _scrub(expected, actual, error, start, stride, tally, inner, excluded):
    """Count what is not finite, and set both sides to 0 there, in place.

    A zero on both sides adds nothing to any sum or maximum; the histogram's share of
    them is counted in `tally` and taken out again at the end.
    """
    for i in range(expected.size):
        left = _kind(expected[i])
        right = _kind(actual[i])
        if left or right:
            tally[BAD_EXPECTED] += left != 0
            tally[BAD_ACTUAL] += right != 0
            tally[BAD_MISMATCHED] += left != right
            tally[EXCLUDED] += 1
            tally[SAMPLED] -= (start + i) % stride == 0
            excluded[(start + i) // inner] += 1
            expected[i] = actual[i] = error[i] = 0.0


@_compiled()
def _subtract(expected, actual, error):
    for i in range(error.size):
        error[i] = np.float64(actual[i]) - np.float64(expected[i])


@_compiled()
def _bin_of(distance):
    """Return the bin whose upper edge, itself included, is the first at `distance`."""
    return np.uint16((np.float64(distance).view(np.int64) + _ROUND_UP) >> _BIN_SHIFT)


@_compiled()
def _count_all(error, bins, places):
    # Two loops, because the first vectorises only without the second.
    for i in range(error.size):
        places[i] = _bin_of(abs(error[i]))
    for i in range(error.size):
        bins[places[i]] += np.int32(1)


@_compiled()
def _count_some(expected, actual, first, stride, bins):
    for i in range(first, expected.size, stride):
        error = np.float64(actual[i]) - np.float64(expected[i])
        bins[_bin_of(abs(error))] += np.int32(1)


@_compiled()
def _quantiles(bins, tally, largest, sums):
    """Read both quantiles off the upper edges, never above the largest error."""
    sums[P99] = sums[P999] = largest
    above = 0
    found = False
    for place in range(np.int64(_bin_of(largest)), -1, -1):
        above += bins[place]
        edge = min(np.int64(place << _BIN_SHIFT).view(np.float64), largest)
        if not found and above > (tally[SAMPLED] - 1) // 1000:
            sums[P999] = edge
            found = True
        if above > (tally[SAMPLED] - 1) // 100:
            sums[P99] = edge
            break


@_compiled()
def _rows_together(inner):
    """How many rows to walk as one block: many if they are too short for lanes."""
    return _BLOCK // inner if inner <= _SHORT else 1


@_compiled(reorder=True)
def _square_rows(error, inner, squared):
    for row in range(error.size // inner):
        total = 0.0
        for i in range(row * inner, (row + 1) * inner):
            total += error[i] * error[i]
        squared[row] = total


@_compiled()
def _add(block, sums):
    for i in range(len(block)):
        sums[i] += block[i]


@_compiled()
def measure_pair(
    expected, actual, inner, stride, ladder, sums, required, tally, squared, excluded
):
    """Measure float32 against float32, without a float64 copy of either.

    Args:
        expected: float32 ``[rows * inner]``, contiguous.
        actual: The same of the candidate.
        inner: Elements a row.
        stride: Every how many elements one is counted for the quantiles.
        ladder: float64 ``[6]``, ascending from 0.
        sums: float64 ``[SUM_COUNT]`` of zeros, filled in.
        required: float64 ``[6]`` of zeros, filled with the required atol.
        tally: int64 ``[TALLY_COUNT]`` of zeros, filled in; ``WORST`` is the flat index
            of the largest error and -1 if all errors are 0.
        squared: float64 ``[rows]`` of zeros, filled with each row's squared error.
        excluded: int64 ``[rows]`` of zeros, filled with each row's count of pairs that
            are not finite on both sides.

    """
    scaled = (ladder * (_NARROWED / _UNSCALE)).astype(np.float32)
    bins = np.zeros(BIN_COUNT, np.int32)
    places = np.empty(_BLOCK, np.uint16)
    errors = np.empty(_BLOCK, np.float64)
    clean_expected = np.empty(_BLOCK, np.float32)
    clean_actual = np.empty(_BLOCK, np.float32)
    tally[WORST] = -1
    tally[SAMPLED] = (expected.size + stride - 1) // stride
    sampled = tally[SAMPLED]
    together = _rows_together(inner)
    for row in range(0, squared.size, together):
        end = min(row + together, squared.size) * inner
        for start in range(row * inner, end, _BLOCK):
            size = min(_BLOCK, end - start)
            left = expected[start : start + size]
            right = actual[start : start + size]
            error = errors[:size]
            block = _sum_pair(left, right)
            # A square of a float32 is finite in float64: this sees NaN and infinity.
            if not np.isfinite(block[SQUARED_EXPECTED] + block[SQUARED_ACTUAL]):
                clean_expected[:size] = left
                clean_actual[:size] = right
                left = clean_expected[:size]
                right = clean_actual[:size]
                _scrub(left, right, error, start, stride, tally, inner, excluded)
                block = _sum_pair(left, right)
            _add(block, sums)
            first = -start % stride
            bounds = _screen(left, right, scaled)
            if bounds[0] == 0:
                bins[0] += np.int32(max(0, (size - first + stride - 1) // stride))
                continue
            raises = _may_raise(bounds, required)
            if raises or stride == 1 or together > 1:
                _subtract(left, right, error)
            if together > 1:
                _square_rows(error, inner, squared[row:])
            else:
                squared[row] += block[SQUARED_ERROR]
            if raises and _exact(left, error, ladder, required):
                tally[WORST] = start + _first_equal(error, required[0])
            if stride == 1:
                _count_all(error, bins, places)
            else:
                _count_some(left, right, first, stride, bins)
    bins[0] -= np.int32(sampled - tally[SAMPLED])  # what `_scrub` made zero
    _quantiles(bins, tally, required[0], sums)


@_compiled()
def measure_triple(
    expected,
    actual,
    error,
    inner,
    stride,
    ladder,
    sums,
    required,
    tally,
    squared,
    excluded,
):
    """Measure float64 values whose error was taken by the caller, as it must be.

    For what float32 cannot hold: float64, and integers, of which only the caller can
    take an exact difference: `error` is float64 ``[rows * inner]``, actual - expected.
    The other arguments are those of `measure_pair`, with float64 values.
    """
    bins = np.zeros(BIN_COUNT, np.int32)
    places = np.empty(_BLOCK, np.uint16)
    zeros = np.zeros(_BLOCK, np.float64)
    clean_expected = np.empty(_BLOCK, np.float64)
    clean_actual = np.empty(_BLOCK, np.float64)
    clean_error = np.empty(_BLOCK, np.float64)
    tally[WORST] = -1
    tally[SAMPLED] = (expected.size + stride - 1) // stride
    sampled = tally[SAMPLED]
    together = _rows_together(inner)
    for row in range(0, squared.size, together):
        end = min(row + together, squared.size) * inner
        for start in range(row * inner, end, _BLOCK):
            size = min(_BLOCK, end - start)
            left = expected[start : start + size]
            right = actual[start : start + size]
            distance = error[start : start + size]
            block = _sum_triple(left, right, distance)
            # Also true where squares overflow; then nothing is found to scrub.
            if not np.isfinite(block[SQUARED_EXPECTED] + block[SQUARED_ACTUAL]):
                clean_expected[:size] = left
                clean_actual[:size] = right
                clean_error[:size] = distance
                left = clean_expected[:size]
                right = clean_actual[:size]
                distance = clean_error[:size]
                _scrub(left, right, distance, start, stride, tally, inner, excluded)
                block = _sum_triple(left, right, distance)
            _add(block, sums)
            if together > 1:
                _square_rows(distance, inner, squared[row:])
            else:
                squared[row] += block[SQUARED_ERROR]
            if _exact(left, distance, ladder, required):
                tally[WORST] = start + _first_equal(distance, required[0])
            if stride == 1:
                _count_all(distance, bins, places)
            else:
                _count_some(zeros[:size], distance, -start % stride, stride, bins)
    bins[0] -= np.int32(sampled - tally[SAMPLED])  # what `_scrub` made zero
    _quantiles(bins, tally, required[0], sums)
