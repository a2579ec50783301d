"""Predict from the float32 reference which values float16 would lose.

The largest number of float16 (IEEE 754 binary16) is 65504. It has a precision of 11
bits, and numbers below 2^-25 become 0. Each value of the reference is rounded to
float16, and the loss is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.probes import Probe
from harness.measure.patterns import plain_name
from harness.measure.trace import Trace

LARGEST = 65504.0
SQUARED = math.sqrt(LARGEST)
"""Largest magnitude whose square float16 can hold. A normalisation that squares a
larger value in float16 overflows."""

LEAST_DB = 50.0
"""Smallest acceptable ratio of signal to rounding error, in decibels. Rounding to 11
bits leaves some 73 dB; less means that small values are lost."""

PHASE_RAD = 0.01
"""Largest acceptable rounding error of a sine's or cosine's argument, in radians."""

_BITS = 11
_WAVES = {"sin", "cos"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A value that float16 would not preserve.

    Attributes:
        probe: Probe of the value.
        largest: Largest magnitude of the value over the samples. If its inputs are
            lost, the largest magnitude of these inputs.
        snr_db: Ratio of signal to rounding error after rounding to float16, in
            decibels.
        overflows: Whether a number in it certainly becomes infinite.
        keep: Names of the values to leave in float32.
        reason: Message with numbers.

    """

    probe: Probe
    largest: float
    snr_db: float
    overflows: bool
    keep: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Extent:
    largest: float
    snr_db: float


def scan(probes: Sequence[Probe], traces: Iterable[Trace]) -> tuple[Loss, ...]:
    """Return the values that float16 would lose, in order of execution.

    The worst sample counts.
    """
    extents: dict[str, _Extent] = {}
    for trace in traces:
        for probe in probes:
            if probe.name not in trace or trace.places[probe.name].is_mask:
                continue
            found = _extent(trace[probe.name])
            trace.forget(probe.name)
            if found is None:
                continue
            before = extents.get(probe.name, found)
            extents[probe.name] = _Extent(
                max(before.largest, found.largest), min(before.snr_db, found.snr_db)
            )
    losses = (_loss(probe, extents) for probe in probes if probe.name in extents)
    return tuple(loss for loss in losses if loss is not None)


def kept_values(losses: Iterable[Loss]) -> tuple[str, ...]:
    """Return the values to leave in float32, each once, in order."""
    return tuple(dict.fromkeys(value for loss in losses for value in loss.keep))


def _extent(value: np.ndarray) -> _Extent | None:
    if value.dtype.kind != "f" or not value.size:
        return None
    finite = value[np.isfinite(value)].astype(np.float64)
    if not finite.size or not finite.any():
        return None
    with np.errstate(over="ignore"):
        halved = finite.astype(np.float16).astype(np.float64)
    kept = np.isfinite(halved)
    noise = float(np.sum((halved[kept] - finite[kept]) ** 2))
    signal = float(np.sum(finite[kept] ** 2))
    ratio = 10 * math.log10(signal / noise) if noise and signal else math.inf
    return _Extent(float(np.abs(finite).max()), ratio)


def _loss(probe: Probe, extents: Mapping[str, _Extent]) -> Loss | None:
    own = extents[probe.name]
    parents = [extents[name] for name in probe.parents if name in extents]
    fed = max((parent.largest for parent in parents), default=0.0)
    step = fed * 2.0**-_BITS
    overflows, largest = False, own.largest
    keep: tuple[str, ...] = (probe.name,)
    if own.largest > LARGEST:
        overflows, reason = True, f"{own.largest:.3g} is beyond {LARGEST:g}"
    elif "norm" in plain_name(probe.op) and fed > SQUARED:
        largest = fed
        reason = (
            f"it reads {fed:.3g}: squared beyond {LARGEST:g}, if a runtime takes the "
            "variance in float16"
        )
    elif plain_name(probe.op) in _WAVES and step > PHASE_RAD:
        largest, keep = fed, (*probe.parents, probe.name)
        reason = f"its argument reaches {fed:.3g}, rounded by up to {step:.2g} rad"
    elif own.snr_db < LEAST_DB:
        reason = f"rounding leaves {own.snr_db:.1f} dB: its values are too small"
    else:
        return None
    return Loss(
        probe=probe,
        largest=largest,
        snr_db=own.snr_db,
        overflows=overflows,
        keep=keep,
        reason=reason,
    )
