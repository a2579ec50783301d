"""What people hold outputs against today: each rule in its own words, and no more.

Every rule gets one output of the reference's and of the candidate's, and says whether
it accepts. None of them sees a layer.
"""

from collections.abc import Callable, Mapping

import numpy as np

Array = np.ndarray
Rule = Callable[[Array, Array, str], bool]

OPTIMUM_ATOL = {
    "text_encoder": 1e-3,
    "unet": 1e-3,
    "controlled_unet": 1e-3,
    "vae_encoder": 1e-2,
    "vae_decoder": 1e-3,
}
"""``ATOL_FOR_VALIDATION`` of optimum's exporters up to 1.20; 1e-5 where it has none."""


def allclose(expected: Array, actual: Array, _: str) -> bool:
    """``numpy.allclose`` with its defaults: rtol 1e-5, atol 1e-8."""
    return bool(np.allclose(actual, expected))


def allclose_loose(expected: Array, actual: Array, _: str) -> bool:
    """``numpy.allclose`` with rtol 1e-3 and atol 1e-5, a common habit."""
    return bool(np.allclose(actual, expected, rtol=1e-3, atol=1e-5))


def optimum(expected: Array, actual: Array, component: str) -> bool:
    """optimum: ``np.allclose(reference, candidate, atol=model's)``, in that order."""
    return bool(np.allclose(expected, actual, atol=OPTIMUM_ATOL.get(component, 1e-5)))


def polygraphy(expected: Array, actual: Array, _: str) -> bool:
    """Polygraphy: an element passes within atol 1e-5 or within rtol 1e-5."""
    off = np.abs(actual - expected)
    return bool(((off <= 1e-5) | (off / np.abs(expected) <= 1e-5)).all())


def mnn_one_percent(expected: Array, actual: Array, _: str) -> bool:
    """MNN's testMNNFromOnnx: max|error| within 1 % of max|expected|, at least 1e-4."""
    limit = 0.01 * max(float(np.abs(expected).max()), 1e-4)
    return bool(np.isfinite(actual).all() and np.abs(actual - expected).max() <= limit)


def cosine(expected: Array, actual: Array, _: str) -> bool:
    """Cosine similarity of at least 0.999, in float64."""
    one, two = expected.ravel().astype(np.float64), actual.ravel().astype(np.float64)
    return bool(one @ two / (np.linalg.norm(one) * np.linalg.norm(two)) >= 0.999)


def psnr(expected: Array, actual: Array, _: str) -> bool:
    """Apple's ml-stable-diffusion: PSNR not below 35 dB; NaN is not below anything."""
    error = float(np.sqrt(np.mean((actual.astype(np.float64) - expected) ** 2)))
    peak = float(np.abs(expected).max())
    return not 20.0 * np.log10((peak + 1e-12) / (error + 1e-12)) < 35.0


PEERS: Mapping[str, Rule] = {
    "numpy.allclose": allclose,
    "allclose rtol 1e-3, atol 1e-5": allclose_loose,
    "optimum's atol": optimum,
    "Polygraphy's default": polygraphy,
    "MNN's 1 %": mnn_one_percent,
    "cosine 0.999": cosine,
    "PSNR 35 dB": psnr,
}


def tells(
    name: str, component: str, expected: Mapping[str, Array], made: Mapping[str, Array]
) -> bool:
    """Whether a rule refuses a run: by numbers, another shape, or a lost output."""
    for output, want in expected.items():
        got = made.get(output)
        if got is None or got.shape != want.shape:
            return True
        with np.errstate(all="ignore"):
            if not PEERS[name](want, got, component):
                return True
    return False
