"""Trials of rounded weights: PyTorch's network with layers as a runtime stores them.

This module holds plain data. Worker processes run the trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.case import Component, Device
from harness.core.entry import Entry

FLOAT = 32
"""The number of bits of a weight that is not rounded."""
HALF = 16
"""The number of bits of a weight that is stored in float16."""

Bits = tuple[tuple[str, int], ...]
"""Pairs of a layer's name in the deployed file and the number of bits of its weights;
layers that are not named stay in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What to round, one trial after another.

    Attributes:
        backend: Runtime whose rounding is used.
        component: Component whose network is rounded.
        artifact: Store entry with the deployed file in float32, which names the layers.
        model: Name of the file in the store entry.
        device: Device of PyTorch.
        trials: The layers that each trial rounds.
        only: Numbers of the inputs to measure with; empty for all.

    """

    backend: str
    component: Component
    artifact: Entry
    model: str
    device: Device
    trials: tuple[Bits, ...]
    only: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """How far each trial moves each value.

    Attributes:
        rows: Name of each value: ``SAMPLE OUTPUT``; or ``condition ROLE.NAME`` before
            the first step, ``step NN`` or ``picture N``.
        powers: Mean square of each value in float32.
        errors: For each trial the mean squared error of each value, in squares of its
            own unit. It is NaN for a trial of layers that PyTorch's network lacks. A
            trial rounds those of its layers that the network has.
        parameters: Each layer of the deployed file, to the PyTorch parameters with the
            same weights; empty if the converter changed the weights.

    """

    rows: tuple[str, ...]
    powers: tuple[float, ...]
    errors: tuple[tuple[float, ...], ...]
    parameters: Mapping[str, tuple[str, ...]]
