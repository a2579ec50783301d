"""How far a value may be from its reference, and the five built-in tiers.

This module only has bounds. `value` compares numbers with them, and `policy` chooses
among them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from msgspec import structs

from harness.core.case import GIVEN, ONNX
from harness.core.comparison import RTOL_GRID
from harness.core.errors import SpecError
from harness.core.record import SELF
from harness.core.runtime import EXACT, runtimes
from harness.core.toml_file import did_you_mean
from harness.core.toml_schema import Keys, one_of
from harness.measure.metrics import BOUNDED, METRIC, Metric

SHARES: Final = (1.0, 0.999, 0.99)
BOUNDS: Final = ("rtol", *(metric.name for metric in BOUNDED), "share", "cap")
OF_PICTURES: Final = tuple(metric.name for metric in BOUNDED if metric.of_pictures)
"""Bounds that apply only to pictures."""

GROUPS: Final = ("outputs", "layers", "latents", "image")
"""Groups of values: a component's outputs and the values within it; a pipeline's
latents after each step, whose errors feed back, and its pictures, in levels from 0 to
255."""


class BoundFields(Keys, frozen=True, kw_only=True):
    """The bounds that a tolerance may state.

    Attributes:
        rtol: Relative part, one of the rtol grid. It goes with `atol`.
        atol: Absolute part, in the unit of the value.
        floors: Most that the error's RMS may be, in noise floors.
        sqnr_db: Least ratio of signal to error, in decibels.
        cosine_distance: Most that one minus the cosine may be, from 0 to 2.
        psnr_db: Least ratio of a picture's peak to the error, in decibels.
        ssim: Least structural similarity of a picture.
        share: Share of elements that must lie within.
        cap: What `atol` is for the elements outside the share.
        within: PyTorch's own error in bfloat16 or float16 on the same sample: the
            error's RMS may be no larger. It is for outputs and pictures.

    """

    rtol: float | None = None
    atol: float | None = None
    floors: float | None = None
    sqnr_db: float | None = None
    cosine_distance: float | None = None
    psnr_db: float | None = None
    ssim: float | None = None
    share: float | None = None
    cap: float | None = None
    within: Annotated[str, one_of(SELF)] | None = None


class Tolerance(BoundFields, frozen=True, kw_only=True):
    """Bounds that must all hold; at least one is stated.

    For each element, ``|actual - expected| <= atol + rtol * |expected|``. A recorded
    comparison has the smallest atol that passes at each rtol of the grid. So it is
    judged exactly and without arrays.

    With a `share` below 1, that share of the elements must lie within `atol`, and the
    rest within `cap`. The record has a quantile of ``|error|`` for each share, and the
    quantile knows no rtol. It is therefore compared with `atol` alone, which is the
    stricter choice. (In a large array the quantile is an estimate from a sample.) rtol
    counts fully for the cap, and if all elements are within the bound.

    `cosine_distance` only bounds the direction: a value that is twice too large has a
    distance of 0. A picture's peak is 255.
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        for metric in BOUNDED:
            _check_range(metric.name, self.limit(metric), metric.least, metric.most)
        _check_range("cap", self.cap, 0.0, math.inf)
        if (self.rtol is None) != (self.atol is None):
            msg = (
                "rtol and atol go together, state both or neither; "
                f"got rtol {self.rtol}, atol {self.atol}."
            )
            raise SpecError(msg)
        if self.rtol is not None and self.rtol not in RTOL_GRID:
            msg = f"rtol must be one of {RTOL_GRID}, got {self.rtol}."
            raise SpecError(msg)
        if not self.within and all(self.limit(one) is None for one in BOUNDED):
            plain = ", ".join(name for name in BOUNDS[1:-2] if name not in OF_PICTURES)
            msg = (
                f"A tolerance must state rtol and {plain}, or of a picture "
                f"{' or '.join(OF_PICTURES)}, or within."
            )
            raise SpecError(msg)
        self._check_share()

    def _check_share(self) -> None:
        if self.share not in SHARES:
            msg = f"share must be one of {SHARES}, got {self.share}."
            raise SpecError(msg)
        if self.share == 1.0 and self.cap is not None:
            msg = f"cap bounds the elements outside share; share is 1, cap {self.cap}."
            raise SpecError(msg)
        if self.share < 1.0:
            if self.atol is None or self.cap is None:
                msg = (
                    f"share {self.share} needs rtol and atol for the elements in it "
                    "and cap for the others."
                )
                raise SpecError(msg)
            if self.cap < self.atol:
                msg = f"cap must be at least atol, got {self.cap} and {self.atol}."
                raise SpecError(msg)

    def limit(self, metric: Metric) -> float | None:
        """Return the bound of a metric; None if it is not stated."""
        bound: float | None = getattr(self, metric.name)
        return bound

    @property
    def is_exact(self) -> bool:
        """Whether only equal values pass."""
        return self.rtol == 0.0 and self.atol == 0.0 and self.share == 1.0

    def looser_bounds(
        self, other: Tolerance, *, stated_only: bool = False
    ) -> tuple[str, ...]:
        """Return the bounds that are looser here: ``floors 40 for 16``.

        A bound that only `other` states is listed as ``no floors``, or left out if
        `stated_only`.
        """
        looser = list(self._looser_within(other, stated_only=stated_only))
        for name in BOUNDS:
            here, there = getattr(self, name), getattr(other, name)
            if there is None:
                continue
            if here is None:
                # Equality needs no second bound: no error is no error in any unit.
                # If all elements lie within atol, a cap has nothing left to bound.
                if not (stated_only or self.is_exact or name == "cap"):
                    looser.append(f"no {name}")
            elif _is_looser(name, here, there):
                looser.append(f"{name} {here:g} for {there:g}")
        return tuple(looser)

    def without_within(self, group: str) -> Tolerance:
        """Return the other bounds; the loosest tier's if there are none."""
        if all(self.limit(metric) is None for metric in BOUNDED):
            return TIERS[TIER_NAMES[-1]][group]
        return structs.replace(self, within=None)

    def _looser_within(self, other: Tolerance, *, stated_only: bool) -> Iterator[str]:
        if other.within is None or self.within == other.within or self.is_exact:
            return
        if self.within is None:
            if not stated_only:
                yield "no within"
        elif list(SELF).index(self.within) < list(SELF).index(other.within):
            yield f"within {self.within} for {other.within}"

    def is_looser_than(self, other: Tolerance) -> bool:
        """Whether something may pass here that fails under `other`.

        >>> tight = Tolerance(rtol=1e-5, atol=1e-5, floors=8.0)
        >>> Tolerance(rtol=1e-5, atol=1e-5, floors=9.0).is_looser_than(tight)
        True
        >>> Tolerance(rtol=0.0, atol=0.0).is_looser_than(tight)
        False
        """
        return bool(self.looser_bounds(other))


def _check_range(name: str, bound: float | None, least: float, most: float) -> None:
    if bound is None:
        return
    if math.isinf(most):
        if not least <= bound < most:
            msg = f"{name} must be finite and not negative, got {bound}."
            raise SpecError(msg)
    elif not least <= bound <= most:
        msg = f"{name} must be from {least:g} to {most:g}, got {bound}."
        raise SpecError(msg)


def _is_looser(name: str, here: float, there: float) -> bool:
    if metric := METRIC.get(name):
        return metric.is_looser(here, there)
    # A larger share of the elements is tighter; a smaller rtol or cap is tighter.
    return here < there if name == "share" else here > there


# Measured on fixtures/digits, two runtimes on a CPU: in full precision most components
# are within 7 noise floors (a wrong GELU is at 400); weights or arithmetic in
# float16 leave 48 to 64 dB, weights in int8 33 to 60, in int4 17 to 24. Pipelines in
# full precision stay within 3.2 floors at every step, their pictures above 113 dB of
# PSNR; with weights in float16 above 49 and 60, in int8 33 and 30, in int4 13 and 18.
TIERS: Final[Mapping[str, Mapping[str, Tolerance]]] = MappingProxyType(
    {
        "exact": dict.fromkeys(GROUPS, Tolerance(rtol=0.0, atol=0.0)),
        "strict": {
            "outputs": Tolerance(rtol=1e-4, atol=5e-5, floors=4.0),
            "layers": Tolerance(floors=8.0),
            "latents": Tolerance(floors=4.0),
            "image": Tolerance(rtol=0.0, atol=0.1, psnr_db=90.0, ssim=0.99999),
        },
        "standard": {
            "outputs": Tolerance(rtol=1e-3, atol=1e-4, floors=16.0),
            "layers": Tolerance(floors=16.0),
            "latents": Tolerance(floors=16.0),
            "image": Tolerance(rtol=0.0, atol=1.0, psnr_db=70.0, ssim=0.9999),
        },
        "relaxed": {
            "outputs": Tolerance(rtol=1e-2, atol=5e-2, sqnr_db=45.0),
            "layers": Tolerance(sqnr_db=35.0),
            "latents": Tolerance(sqnr_db=40.0),
            "image": Tolerance(psnr_db=45.0, ssim=0.99),
        },
        "quantized": {
            "outputs": Tolerance(sqnr_db=15.0),
            "layers": Tolerance(sqnr_db=9.0),
            "latents": Tolerance(sqnr_db=9.0),
            "image": Tolerance(psnr_db=15.0, ssim=0.6),
        },
    }
)
"""The tolerance of each group in each tier, from tight to loose; a test checks the
order. Layers may have any magnitude, so their tolerance is stated in noise floors or
SQNR, which have no unit, and not in atol."""

TIER_NAMES: Final = tuple(TIERS)

FULL_PRECISION: Final = "standard"
"""The first tier of every variant that computes in full precision."""


@functools.cache
def first_tiers() -> Mapping[str, str]:
    """Return the first tier of each built-in variant and each foreign format.

    A foreign model starts with a tier by its format. An ONNX file starts with the tier
    of full precision. A converted file may have any precision, so it starts with
    ``relaxed``.
    """
    tiers: dict[str, str] = {}
    for runtime in runtimes().values():
        own = {name: built.tier for name, built in runtime.variants.items()}
        given = "relaxed" if runtime.own_format else own[EXACT]
        if runtime.own_format or runtime.reads == ONNX:
            own[GIVEN] = given
        tiers |= {f"{runtime.name}.{name}": tier for name, tier in own.items()}
    return MappingProxyType(tiers)


def first_tier(made: Collection[str]) -> str:
    """Return the loosest of the first tiers of built-in variants.

    They are named as in `first_tiers`.

    >>> first_tier(["mnn.fp32", "onnxruntime.fp16"]), first_tier([])
    ('relaxed', 'standard')
    """
    tiers = {first_tiers().get(name, FULL_PRECISION) for name in made}
    tiers = tiers or {FULL_PRECISION}
    return max(tiers, key=TIER_NAMES.index)


def parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Parse the values of ``--set``.

    >>> parse_changes(["rtol=1e-3", "atol=1e-4"])
    {'rtol': 0.001, 'atol': 0.0001}

    Raises:
        SpecError: A value is not ``bound=number``, or a bound occurs twice.

    """
    changes: dict[str, float] = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not equals:
            msg = f"{text!r} is not of the form bound=number, such as floors=40."
            raise SpecError(msg)
        check_word("bound", name, BOUNDS)
        if name in changes:
            msg = f"{name} is set twice, to {changes[name]:g} and to {number}."
            raise SpecError(msg)
        try:
            changes[name] = float(number)
        except ValueError:
            msg = f"{name} must be a number, got {number!r}."
            raise SpecError(msg) from None
    return changes


def check_word(kind: str, word: str, options: Collection[str]) -> None:
    """Refuse a word that is not among `options`.

    Raises:
        SpecError: The word is not among them. The message names the nearest one.

    """
    if word not in options:
        msg = f"unknown {kind} {word!r}; {did_you_mean(word, options)}"
        raise SpecError(msg)
