"""The compiled pass behind `compare`: one pass over a pair gives sums and maxima.

Rows are processed in blocks that fit into a cache. Several simple loops run over each
block, and the compiler vectorises each loop. Together they cost one pass over memory.
This module knows no shapes beyond ``[rows, inner]``, no tolerances and no Python
objects.

The code is single-threaded on purpose: callers fork, and a threading layer does not
survive a fork. Importing this module imports numba. Nothing is compiled before the
first call, which loads from the disk cache if possible.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# ruff: noqa: ANN001, ANN201, ANN202
# Both lines are here because numba infers the types of compiled functions, and reads
# no annotations.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from harness.core.comparison import RTOL_GRID

if TYPE_CHECKING:
    from collections.abc import Callable

BIN_COUNT = 1 << 15
"""Number of bins of the error histogram: 11 bits of exponent and 4 of mantissa."""

_BINS_OF_FLOAT32 = ((1023 - 150) << 4, 280 << 4)
"""First bin and number of bins of errors between float32 values, 2^-149 to 2^129."""

# Positions in the result vectors; numba compiles them in as constants.
BIAS, SQUARED_ERROR, SQUARED_EXPECTED, SQUARED_ACTUAL, PRODUCT, ALONG = range(6)
P99, P999 = 6, 7
ITEM_RMS, CHANNEL_RMS = 8, 9
SUM_COUNT = 10
BAD_EXPECTED, BAD_ACTUAL, BAD_MISMATCHED, EXCLUDED, SAMPLED, WORST = range(6)
ITEM, CHANNEL = 6, 7
TALLY_COUNT = 8

_BLOCK = 4096  # measured: 5 to 10 % faster than 2048, and 8192 adds 2 %
_CACHED = 1 << 21  # both sides have 16 MiB then, and a larger array is not in a cache
_PAGE = 1024  # a page of 4 KiB: measured 20 % faster than `_BLOCK` on a larger array
_SPAN = 512  # a small array has few blocks, and few of their spans need `_exact`
_NO_OVERFLOW = 1e60  # of a sum of squares: each value times `_SCALE` is finite then
_RUNGS = 6
_BIN_SHIFT = 48
_ROUND_UP = (1 << _BIN_SHIFT) - 1
_SCALE = np.float32(2.0**24)
_UNSCALE = 2.0**-24
_NARROWED = 1.0 - 2.0**-21
_SLACK = 1.0 - 2.0**-20
if len(RTOL_GRID) != _RUNGS or RTOL_GRID[0] != 0.0:
    msg = f"The kernel is unrolled for 0 and five more rtol, got {RTOL_GRID}."
    raise ImportError(msg)

_LADDER = np.array(RTOL_GRID)
_SCALED = (_LADDER * (_NARROWED / _UNSCALE)).astype(np.float32)


def _compiled(*, reorder: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a part of `measure`; `reorder` vectorises sums.

    Each part becomes code of `measure` itself. Otherwise a process that compiles would
    call a copy that adds in another order than what the others load from the cache.
    Python cannot call a part: wrappers for that take a fifth of the time to compile.

    The flags of `reorder` keep NaN and infinity correct. ``fastmath=True`` would let
    the compiler assume that there are none.
    """
    fastmath = {"reassoc", "contract", "nsz"} if reorder else False
    return njit(
        error_model="numpy",
        fastmath=fastmath,
        forceinline=True,
        no_cfunc_wrapper=True,
        no_cpython_wrapper=True,
    )


@_compiled(reorder=True)
def _sum(expected, actual, distance, error):
    """Sum a block in float64; its error is `distance`, filled if `error` is None."""
    bias = squared = squared_expected = squared_actual = product = along = 0.0
    for i in range(expected.size):
        left = np.float64(expected[i])
        right = np.float64(actual[i])
        if error is None:  # the compiler decides this, and drops the other branch
            distance[i] = right - left
        apart = distance[i]
        bias += apart
        squared += apart * apart
        squared_expected += left * left
        squared_actual += right * right
        product += left * right
        # product - squared_expected would lose the digits of a small error.
        along += apart * left
    return bias, squared, squared_expected, squared_actual, product, along


@_compiled(reorder=True)
def _may_raise(expected, actual, limits):
    """Whether an error of a span exceeds ``limit + rtol * |expected|`` at any rtol.

    It computes in float32, with twice the lanes of float64, and that is enough to skip
    `_exact` for most spans. Two things make it true wherever the exact answer is.
    `_SCALED` and the limits are smaller by more than float32 can lose. All numbers are
    `_SCALE` times too large, so that a positive difference cannot underflow to zero.

    Args:
        expected: float32 ``[size]``, every value finite.
        actual: The candidate's values, likewise.
        limits: float32 ``[6]``, `required` times `_SCALE`, a little smaller.

    """
    # These are read once: a load inside the loop would be repeated for each lane.
    scaled1, scaled2, scaled3 = _SCALED[1], _SCALED[2], _SCALED[3]
    scaled4, scaled5 = _SCALED[4], _SCALED[5]
    limit0, limit1, limit2 = limits[0], limits[1], limits[2]
    limit3, limit4, limit5 = limits[3], limits[4], limits[5]
    most = np.int32(0)
    for i in range(expected.size):
        size = abs(expected[i])
        error = np.float32(abs(actual[i] - expected[i]) * _SCALE)
        # Positive floats sort like their bits, and a minimum of floats is vectorised
        # only if the compiler may assume that there is no NaN.
        limit = np.float32(limit0).view(np.int32)
        limit = min(limit, np.float32(limit1 + scaled1 * size).view(np.int32))
        limit = min(limit, np.float32(limit2 + scaled2 * size).view(np.int32))
        limit = min(limit, np.float32(limit3 + scaled3 * size).view(np.int32))
        limit = min(limit, np.float32(limit4 + scaled4 * size).view(np.int32))
        limit = min(limit, np.float32(limit5 + scaled5 * size).view(np.int32))
        most = max(most, np.int32(error.view(np.int32) - limit))
    return most > 0


@_compiled()
def _exact(expected, error, required):
    """Raise `required` to the block's maxima, and return its largest error."""
    rtol1, rtol2, rtol3 = _LADDER[1], _LADDER[2], _LADDER[3]
    rtol4, rtol5 = _LADDER[4], _LADDER[5]
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
    for i in range(len(most)):
        required[i] = max(required[i], np.int64(most[i]).view(np.float64))
    return np.int64(most0).view(np.float64)


@_compiled()
def _first_equal(error, distance):
    for i in range(error.size):
        if abs(error[i]) == distance:
            return i
    return 0


@_compiled()
def _raise(expected, error, start, required, tally):
    """Raise `required` by a part, and keep the first place of the largest error."""
    largest = required[0]
    most = _exact(expected, error, required)
    if most > largest:
        tally[WORST] = start + _first_equal(error, most)


@_compiled()
def _raise_by_spans(expected, actual, error, start, required, limits, tally):
    """Raise `required` and `limits` by the spans of a block that `limits` leave."""
    for first in range(0, expected.size, _SPAN):
        span = slice(first, min(first + _SPAN, expected.size))
        if _may_raise(expected[span], actual[span], limits):
            _raise(expected[span], error[span], start + first, required, tally)
            for i in range(len(limits)):
                limits[i] = np.float32(required[i] * (_SLACK / _UNSCALE))


@_compiled()
def _kind(value):
    """Return the class of a number: finite (0), NaN (1), +inf (2) or -inf (3)."""
    if np.isfinite(value):
        return 0
    if np.isnan(value):
        return 1
    return 2 if value > 0 else 3


@_compiled()
def _scrub(expected, actual, error, start, stride, tally, inner, excluded):
    """Count pairs that are not finite, and set both sides to 0 there, in place.

    A zero on both sides adds nothing to any sum or maximum. `tally` counts the zeros
    that enter the histogram, and they are taken out at the end.
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
def _copied(block, clean):
    copy = clean[: block.size]
    # `copy[:] = block` would compile the text of an error too: a second and a half.
    for i in range(block.size):
        copy[i] = block[i]
    return copy


@_compiled()
def _read_only(copy, block):
    """Return `copy` in the type of `block`, so that no part is compiled for both."""
    return copy if copy.size == block.size else block


@_compiled()
def _bin_of(distance, least):
    """Return the first bin whose upper edge is not below `distance`.

    Bins are counted from `least` on, which has smaller errors too.
    """
    bin_ = (np.float64(distance).view(np.int64) + _ROUND_UP) >> _BIN_SHIFT
    return np.uint16(max(bin_ - least, 0))


@_compiled()
def _count(distance, first, stride, least, bins, places):
    """Count every error of a block, or each `stride`th one from `first` on."""
    if stride == 1:
        # There are two loops because the first one vectorises only on its own.
        for i in range(distance.size):
            places[i] = _bin_of(abs(distance[i]), least)
        for i in range(distance.size):
            bins[places[i]] += np.int32(1)
        return
    for i in range(first, distance.size, stride):
        bins[_bin_of(abs(distance[i]), least)] += np.int32(1)


@_compiled()
def _quantiles(bins, least, tally, largest, sums):
    """Read both quantiles from the bins' upper edges, up to the largest error."""
    sums[P99] = sums[P999] = largest
    above = 0
    found = False
    for place in range(np.int64(_bin_of(largest, least)), -1, -1):
        above += bins[place]
        edge = np.int64((least + place) << _BIN_SHIFT if place else 0).view(np.float64)
        edge = min(edge, largest)
        if not found and above > (tally[SAMPLED] - 1) // 1000:
            sums[P999] = edge
            found = True
        if above > (tally[SAMPLED] - 1) // 100:
            sums[P99] = edge
            break


@_compiled(reorder=True)
def _square_rows(error, inner, squared):
    for row in range(error.size // inner):
        # An index from 0 on is known not to be negative, so the loop vectorises.
        part = error[row * inner : (row + 1) * inner]
        total = 0.0
        for i in range(part.size):
            total += part[i] * part[i]
        squared[row] = total


@_compiled(reorder=True)
def _by_part(rows, items, channels):
    """Return the sums over each item and over each channel of all rows."""
    if channels == 1:  # such arrays have the most rows, and a copy takes long
        total = 0.0
        for row in range(items):
            total += rows[row]
        return rows, np.array([total])
    of_item, of_channel = np.zeros(items), np.zeros(channels)
    for item in range(items):
        # An index from 0 on is known not to be negative, so the loop vectorises.
        part = rows[item * channels : (item + 1) * channels]
        total = 0.0
        for channel in range(part.size):
            total += part[channel]
            of_channel[channel] += part[channel]
        of_item[item] = total
    return of_item, of_channel


@_compiled()
def _worst_part(squared, excluded, size):
    """Return the first part with the largest rms, and that rms.

    Each part has `size` pairs. `squared` is its sum of squares, and `excluded` the
    number of its pairs that are not finite. Only parts with a finite pair count.
    `excluded` is empty if every pair is finite.
    """
    worst, largest = 0, -1.0
    for part in range(squared.size):
        finite = size - excluded[part] if excluded.size else size
        # A quotient takes long, and most parts are far from the largest.
        if finite > 0 and squared[part] > largest * finite:
            worst, largest = part, squared[part] / finite
    return worst, np.sqrt(largest)


@_compiled()
def _find_worst(squared, excluded, items, channels, inner, sums, tally):
    """Find the item and the channel whose error has the largest rms."""
    item, channel = _by_part(squared, items, channels)
    of_item = of_channel = excluded
    if excluded.size:
        of_item, of_channel = _by_part(excluded, items, channels)
    tally[ITEM], sums[ITEM_RMS] = _worst_part(item, of_item, channels * inner)
    tally[CHANNEL], sums[CHANNEL_RMS] = _worst_part(channel, of_channel, items * inner)


@_compiled()
def _add(block, sums):
    for i in range(len(block)):
        sums[i] += block[i]


@njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def measure(
    expected,
    actual,
    error,
    limits,
    items,
    channels,
    stride,
    sums,
    required,
    tally,
):
    """Measure float32 arrays, or float64 arrays with the error between them.

    float32 needs no float64 copy of either side. Only the caller can compute an exact
    difference of float64 values and integers, which float32 cannot hold.

    Args:
        expected: float32 or float64 ``[items * channels * inner]``, contiguous; the
            reference. A row is one channel of one item.
        actual: The candidate's values, of the same type and size.
        error: float64 of the same size, actual - expected; None for float32.
        limits: float32 ``[6]`` of zeros, for `_may_raise`; None for float64.
        items: Number of items, at least 1.
        channels: Number of channels, at least 1.
        stride: Number n, where every n-th element is counted for the quantiles.
        sums: float64 ``[SUM_COUNT]`` of zeros, filled in.
        required: float64 ``[6]`` of zeros, filled with the required atol for each rtol
            of `RTOL_GRID`.
        tally: int64 ``[TALLY_COUNT]`` of zeros, filled in; ``WORST`` is the flat index
            of the largest error and -1 if all errors are 0.

    """
    inner = expected.size // (items * channels)
    squared = np.zeros(items * channels)
    excluded = np.zeros(0)
    # A small float32 array would spend most of its time on clearing all bins.
    least, count = _BINS_OF_FLOAT32 if error is None else (0, BIN_COUNT)
    bins = np.zeros(count, np.int32)
    most = _BLOCK if expected.size <= _CACHED else _PAGE
    together = max(1, most // inner)
    places = np.empty(most, np.uint16)
    errors = np.empty(most, np.float64)
    clean = np.empty((2, most), expected.dtype)
    # To numba these are strided, and `_sum` adds what is strided in another order.
    strided_expected, strided_actual = clean
    tally[WORST] = -1
    sampled = tally[SAMPLED] = (expected.size + stride - 1) // stride
    for row in range(0, squared.size, together):
        end = min(row + together, squared.size) * inner
        for start in range(row * inner, end, most):
            size = min(most, end - start)
            first = -start % stride
            left = expected[start : start + size]
            right = actual[start : start + size]
            distance = errors[:size] if error is None else error[start : start + size]
            block = _sum(left, right, distance, error)
            # The square of a float32 is finite in float64, and that of an error is not
            # 0. So the first test sees NaN and infinity, the second sees equal blocks.
            # One of a float64 may overflow; then nothing is found to scrub.
            squares = block[SQUARED_EXPECTED] + block[SQUARED_ACTUAL]
            if not np.isfinite(squares):
                # The copies have names of their own: where one name stands for a part
                # of the input or for a copy, the loops over it are not vectorised.
                copies = _copied(left, clean[0]), _copied(right, clean[1])
                distance = _copied(distance, errors)
                if not excluded.size:
                    excluded = np.zeros(squared.size)
                _scrub(*copies, distance, start, stride, tally, inner, excluded)
                strided = strided_expected[:size], strided_actual[:size]
                block = _sum(*strided, distance, error)
                _raise(_read_only(copies[0], left), distance, start, required, tally)
            # Only a test for None drops code, and only where the argument is None.
            elif limits is not None and block[SQUARED_ERROR] == 0.0:  # no error
                _add(block, sums)
                bins[0] += np.int32(max(0, (size - first + stride - 1) // stride))
                continue
            elif limits is not None and squares < _NO_OVERFLOW:
                _raise_by_spans(left, right, distance, start, required, limits, tally)
            else:
                _raise(left, distance, start, required, tally)
            _add(block, sums)
            if together > 1:
                _square_rows(distance, inner, squared[row:])
            else:
                squared[row] += block[SQUARED_ERROR]
            _count(distance, first, stride, least, bins, places)
    bins[0] -= np.int32(sampled - tally[SAMPLED])  # zeros that `_scrub` made
    _quantiles(bins, least, tally, required[0], sums)
    _find_worst(squared, excluded, items, channels, inner, sums, tally)
