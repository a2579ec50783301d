"""Give every pipeline the same noise, which is drawn once and stored.

A seed gives other noise on another device, in another dtype, and from another library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from harness.core.errors import StageError
from harness.core.outcome import Outcome

if TYPE_CHECKING:
    import numpy as np


@contextmanager
def stored_noise(noise: np.ndarray, *users: object) -> Iterator[None]:
    """Make pipelines and schedulers draw stored noise, in order.

    Args:
        noise: Noise ``[draws, batch, channels, height, width]``, float32, unit
            variance.
        users: Objects whose modules call diffusers' ``randn_tensor``.

    Raises:
        StageError: More noise is drawn than is stored, or noise of another shape.

    """
    left = iter(noise)

    def draw(
        shape: tuple[int, ...],
        generator: object = None,
        device: object = None,
        dtype: torch.dtype | None = None,
        layout: object = None,
    ) -> torch.Tensor:
        del generator, device, layout
        drawn = next(left, None)
        if drawn is None or drawn.shape != tuple(shape):
            stored = "none is left" if drawn is None else f"stored is {drawn.shape}"
            msg = f"The pipeline draws noise of shape {tuple(shape)}, and {stored}."
            raise StageError(msg, outcome=Outcome.RUN)
        return torch.from_numpy(drawn.copy()).to(dtype)

    modules: dict[str, Any] = {
        module.__name__: module
        for user in users
        for cls in type(user).__mro__
        if hasattr(module := sys.modules[cls.__module__], "randn_tensor")
    }
    with ExitStack() as stack:
        for module in modules.values():
            stack.enter_context(patch.object(module, "randn_tensor", draw))
        yield
