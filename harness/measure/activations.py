"""Activations that take each other's place, in float64: by name, what they compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

GELU_PEAK, GELU_WIDTH, GELU_ERROR = 2.7, 0.8, 4.8e-4
"""Where GELU's tanh form is furthest from its erf form, |x|, and how far at most;
found numerically."""

GELU_LEAST = -0.05
"""GELU's values at x < -2 lie between this and 0."""

QUICK_ERROR = 0.0204
"""How far x·sigmoid(1.702x) is from GELU at most; found numerically."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # By tanh, which overflows nowhere.
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return x·Φ(x) (D. Hendrycks, K. Gimpel, *Gaussian error linear units*, 2016)."""
    return np.asarray(0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))))


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    """Return that paper's approximation, which BERT's first code had."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "SiLU": lambda x: x * _sigmoid(x),
    "QuickGELU, x·sigmoid(1.702x)": lambda x: x * _sigmoid(1.702 * x),
    "GELU's tanh form": _tanh_gelu,
    "GELU": _gelu,
    "the sigmoid": _sigmoid,
    "tanh": np.tanh,
}
"""The paper of `_gelu` has QuickGELU's 1.702, too."""


def gelu_form(expected: np.ndarray, error: np.ndarray) -> str:
    """Return in words which form took GELU's place, seen from GELU's own values.

    Args:
        expected: GELU's values, float64.
        error: How far the candidate is from them.

    """
    magnitude = np.abs(error)
    # Above 1 GELU's value is nearly its argument.
    at = float(expected.flat[int(magnitude.argmax())])
    near = abs(abs(at) - GELU_PEAK) <= GELU_WIDTH or GELU_LEAST < at < 0
    if near and magnitude.max() <= GELU_ERROR:
        return "the error peaks near |x| = 2.7: GELU's tanh form, not its erf form"
    if magnitude.max() <= QUICK_ERROR:
        return f"GELU as x·sigmoid(1.702x), which is off by {QUICK_ERROR} at most"
    return ""
