"""PyTorch's own module as a subject to time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import torch

from harness.core.case import REFERENCE, Component, Device
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.plugins.bench.timing import Loaded, Turn
from harness.recipes import recipe_module
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.pytorch.program import as_tuple
from harness.runtimes.session import Ran

if TYPE_CHECKING:
    import numpy as np


@contextmanager
def on_device(
    device: Device, loading: AbstractContextManager[Loaded]
) -> Iterator[Loaded]:
    """Load with a device's threads and TF32, and give PyTorch back what it had.

    Raises:
        StageError: CUDA was requested and PyTorch has none.

    """
    threads = torch.get_num_threads()
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn)
    had = [kind.allow_tf32 for kind in kinds]
    try:
        # Weights may be drawn, and pytest's own process may draw too.
        with torch.random.fork_rng(devices=[]):
            ask_device(device)
            with loading as loaded:
                yield loaded
    finally:
        torch.set_num_threads(threads)
        for one, allowed in zip(kinds, had, strict=True):
            one.allow_tf32 = allowed


@contextmanager
def module_of(
    turn: Turn, component: Component, feeds: Mapping[str, np.ndarray]
) -> Iterator[Loaded]:
    """Build a component's module on its device; it is called like a deployed file.

    Raises:
        StageError: The device or the number of threads is not the requested one.

    """
    device = turn.device.device
    module = recipe_module(component.recipe).build(component).to(device)
    weights = (*module.parameters(), *module.buffers())
    ran = Ran(
        backend=REFERENCE,
        version=str(torch.__version__),
        device=str(next(module.parameters()).device.type),
        threads=torch.get_num_threads(),
        precision="float32",
        detail=(("tf32", str(turn.device.tf32).lower()),),
    )
    if (ran.device, ran.threads) != (device, turn.device.threads):
        msg = (
            f"{turn.id}: asked for {device} with {turn.device.threads} threads, got "
            f"{ran.device} with {ran.threads}."
        )
        raise StageError(msg, outcome=Outcome.FELL_BACK)

    def run() -> dict[str, np.ndarray]:
        """Run, and wait until the outputs are in host memory."""
        try:
            with torch.no_grad():
                tensors = [torch.tensor(feed, device=device) for feed in feeds.values()]
                arrays = [one.cpu().numpy() for one in as_tuple(module(*tensors))]
                if device == "cuda":
                    torch.cuda.synchronize()
        except Exception as error:  # a module may raise anything
            msg = (
                f"{turn.id}: PyTorch {torch.__version__} cannot run it "
                f"({type(error).__name__}: {first_line(error)})."
            )
            raise StageError(msg, outcome=Outcome.RUN) from error
        names = [spec.name for spec in component.outputs]
        return dict(zip(names, arrays, strict=True))

    size_bytes = sum(weight.numel() * weight.element_size() for weight in weights)
    yield Loaded(run, lambda: ran, size_bytes)
