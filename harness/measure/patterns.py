"""What is said of an error that is far beyond noise: which values, and in which words.

Plug-ins recognise what an error looks like. This module says when they are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.comparison import Comparison
from harness.core.plugins import answers
from harness.core.probes import Probe

if TYPE_CHECKING:
    import numpy as np

    from harness.measure.trace import Trace

RIGHT = 32.0
"""Number of noise floors within which a part of a value is right."""

NOISE = "spread like noise"
"""Beginning of the most general description of an error."""

FEWER_BITS = "its weight is PyTorch's but for"
NOT_THE_GRAPHS = "it computes with other weights than the graph's"
"""Beginnings of descriptions of weights that were found to fit an error."""

_ONNX = {
    "conv": "conv2d",
    "gemm": "linear",
    "layernormalization": "layer_norm",
    "groupnormalization": "group_norm",
    "instancenormalization": "instance_norm",
    "batchnormalization": "batch_norm",
    "attention": "scaled_dot_product_attention",
    "upsample": "resize",
    "concat": "cat",
    "gather": "embedding",
}
"""ONNX's operators in lower case to PyTorch's names, where the two differ."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Isolated:
    """One sample whose operators ran on the reference's own values.

    Attributes:
        trace: The reference's values.
        probes: All values of the program.
        feeds: Inputs of the component, by name.
        graph: Path of the exported graph.

    """

    trace: Trace
    probes: Sequence[Probe]
    feeds: Mapping[str, np.ndarray]
    graph: Path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Off:
    """A value whose error is far beyond noise.

    Attributes:
        expected: Value of the reference.
        actual: Value of the candidate, which may have another shape.
        floor_rms: Noise floor of the value, in its own unit; None if it is not known.
        op: PyTorch operator that computed the value; ``output`` for an output, and
            empty where it is not known.
        near: Other values of the reference, by name: the operator's inputs, or the
            other outputs.
        probe: The value in the program; None for an output.
        isolated: Where the operator ran on the reference's values; None if it ran on
            the candidate's own.

    """

    expected: np.ndarray
    actual: np.ndarray
    floor_rms: float | None
    op: str
    near: Mapping[str, np.ndarray]
    probe: Probe | None = None
    isolated: Isolated | None = None


def pattern_of(off: Off) -> str:
    """Return what the error of a value looks like; empty if no plug-in knows it."""
    return next(filter(None, answers("patterns", off)), "")


def beyond_noise(found: Comparison) -> bool:
    """Whether an error is large enough to look for a pattern, or a shape is another."""
    other_shape = found.expected_shape != found.actual_shape
    if found.nonfinite_mismatched or found.floor_multiple is None:
        return bool(other_shape or found.nonfinite_mismatched or found.max_abs)
    return other_shape or found.floor_multiple > RIGHT


def how_general(words: str) -> int:
    """Return 0 for a specific description, 2 for noise, and 1 for others.

    >>> how_general("values are cut off at 6"), how_general(f"{NOISE}, 1e-2")
    (0, 2)
    """
    if words.startswith(NOISE):
        return 2
    fits_many = "parts is scaled by its own factor" in words
    return int(fits_many or words.startswith((FEWER_BITS, NOT_THE_GRAPHS)))


def plain_name(op: str) -> str:
    """Return an operator's name without namespace and overload, as PyTorch's.

    >>> plain_name("aten.gelu.default"), plain_name("Gelu"), plain_name("Gemm")
    ('gelu', 'gelu', 'linear')
    """
    name = op.removeprefix("aten.").partition(".")[0].lower()
    return _ONNX.get(name, name)
