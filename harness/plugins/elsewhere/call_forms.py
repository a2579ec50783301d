"""The ways in which an app calls a right file wrongly, each a change of its inputs.

Nothing here runs a file. `harness.plugins.elsewhere.calls` tries each form on the
samples of a dump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np

from harness.measure.named_arrays import Arrays

_LATE = "written before the session was resized"
_STEPS = 8
"""A factor is looked for from 1/16 to 16, in so many steps on each side of 1."""

_ROUNDS = 24
"""Each round of the search makes the range of the factor 0.62 times as wide."""

_HOPELESS = 0.9
"""Error of the best coarse factor from which no factor near it explains anything."""

_Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to call a file wrongly.

    Attributes:
        words: The rest of a sentence that begins *it is what the file gives*.
        inputs: Returns the changed inputs of a sample; None where there are none.
        outputs: Returns an output as the app kept it; None where it is as the file
            gives it.

    """

    words: str
    inputs: Callable[[str], Arrays | None]
    outputs: _Change | None = None


def call_forms(feeds: Mapping[str, Arrays]) -> Iterator[Form]:
    """Yield the forms for the inputs of each sample, which are in the app's order."""
    first = next(iter(feeds.values()))
    for name in first:
        yield Form(
            words=f"with {name!r} = 0: that input was not set, or was {_LATE}",
            inputs=lambda sample, name=name: {  # type: ignore[misc]  # bound at once
                name: np.zeros_like(feeds[sample][name])
            },
        )
    if len(first) > 1:
        yield Form(
            words=f"with every input 0: none was set, or each was {_LATE}",
            inputs=lambda sample: {
                name: np.zeros_like(value) for name, value in feeds[sample].items()
            },
        )
    for name in first:
        yield from _of_neighbours(feeds, name)
    for one, two in combinations(first, 2):
        yield Form(
            words=f"with {one!r} and {two!r} exchanged",
            inputs=lambda sample, one=one, two=two: _exchanged(  # type: ignore[misc]
                feeds[sample], one, two
            ),
        )
    for how, change in _CHANGES.items():
        for name in first:
            yield Form(
                words=f"with {name!r} {how}",
                inputs=lambda sample, name=name, change=change: {  # type: ignore[misc]
                    name: change(feeds[sample][name])
                },
            )
        words = f"on right inputs, and the app keeps its outputs {how}"
        yield Form(words=words, inputs=lambda _: {}, outputs=change)


def _of_neighbours(feeds: Mapping[str, Arrays], name: str) -> Iterator[Form]:
    """Yield an input of the sample before or after, and a number that is 1 off."""
    order = list(feeds)
    ends = {
        "before": "that input was not set again, or was " + _LATE,
        "after": "that input was set too early",
    }
    for step, (where, why) in zip((-1, 1), ends.items(), strict=True):

        def neighbour(sample: str, step: int = step) -> Arrays | None:
            at = (order.index(sample) + step) % len(order)
            own, other = feeds[sample][name], feeds[order[at]].get(name)
            fits = other is not None and other.shape == own.shape
            return {name: other} if other is not None and fits else None

        yield Form(
            words=f"with {name!r} of the sample {where}: {why}", inputs=neighbour
        )

        def shared(
            sample: str, neighbour: Callable[[str], Arrays | None] = neighbour
        ) -> Arrays | None:
            """Return one number for the whole batch: an app has one timestep."""
            found = neighbour(sample)
            value = None if found is None else found[name]
            if value is None or value.ndim != 1 or not value.size:
                return None
            return {name: np.full_like(value, value[0])}

        yield Form(
            words=f"with {name!r} of the sample {where}, one number for the batch: "
            f"{why}",
            inputs=shared,
        )
    if all(_is_count(values[name]) for values in feeds.values()):
        for step, more in ((1, "more"), (-1, "less")):
            yield Form(
                words=f"with {name!r} 1 {more}",
                inputs=lambda sample, step=step: {  # type: ignore[misc]  # bound at once
                    name: (feeds[sample][name] + step).astype(feeds[sample][name].dtype)
                },
            )


def _is_count(value: np.ndarray) -> bool:
    """Whether a value is a few whole numbers, such as a timestep."""
    return value.ndim < 2 and bool((value == np.floor(value)).all())  # noqa: PLR2004


def _exchanged(feeds: Arrays, one: str, two: str) -> Arrays | None:
    a, b = feeds[one], feeds[two]
    alike = a.shape == b.shape and a.dtype == b.dtype
    return {one: b, two: a} if alike else None


def _channels_last(value: np.ndarray) -> np.ndarray:
    """Return the bytes of NHWC under the shape of NCHW."""
    if value.ndim < 3:  # noqa: PLR2004  # it has no channels beside positions
        return value
    return np.ascontiguousarray(np.moveaxis(value, 1, -1)).reshape(value.shape)


def _channels_first(value: np.ndarray) -> np.ndarray:
    """Return the bytes of NCHW as they look to a reader of NHWC."""
    if value.ndim < 3:  # noqa: PLR2004  # as above
        return value
    batch, channels, *sides = value.shape
    return np.ascontiguousarray(
        np.moveaxis(value.reshape(batch, *sides, channels), -1, 1)
    )


def _reversed(value: np.ndarray) -> np.ndarray:
    return value[::-1] if value.ndim else value


def _halves(value: np.ndarray) -> np.ndarray:
    half = len(value) // 2 if value.ndim else 0
    return np.concatenate([value[half:], value[:half]]) if half else value


_CHANGES: Mapping[str, _Change] = {
    "in another memory layout: the bytes are of NHWC, and read as NCHW": _channels_last,
    "in another memory layout: the bytes are of NCHW, and read as NHWC": (
        _channels_first
    ),
    "with the halves of its batch exchanged, as of cond and uncond": _halves,
    "with the items of its batch exchanged: they are in the opposite order": _reversed,
}


def fitted(error: Callable[[float], float]) -> float:
    """Return the factor that makes an error least, which is 1 without any factor.

    It looks along a coarse range, and then between the neighbours of the best. Where no
    coarse factor makes the error smaller, it looks around 1 alone.

    >>> round(fitted(lambda factor: abs(factor - 5.49)), 3)
    5.49
    """
    tried = [2.0 ** (step / 2) for step in range(-_STEPS, 1 + _STEPS)]
    best, least = 1.0, inf
    for factor in (*tried, -1.0):
        if (found := error(factor)) < least:
            best, least = factor, found
    if least > _HOPELESS and best != 1.0:
        return best
    low, high = sorted((best / 2**0.5, best * 2**0.5))
    golden = (5**0.5 - 1) / 2
    one, two = high - golden * (high - low), low + golden * (high - low)
    at_one, at_two = error(one), error(two)
    for _ in range(_ROUNDS):
        if at_one < at_two:
            high, two, at_two = two, one, at_one
            one = high - golden * (high - low)
            at_one = error(one)
        else:
            low, one, at_one = one, two, at_two
            two = low + golden * (high - low)
            at_two = error(two)
    return (low + high) / 2
