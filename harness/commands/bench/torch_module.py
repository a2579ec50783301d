"""PyTorch's own module as something to time, eager or compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch._dynamo.utils import counters

from harness.commands.bench.timing import COMPILE, Turn
from harness.commands.bench.worker import Loaded
from harness.core.case import REFERENCE, Component
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.recipes import recipe_module
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.pytorch.program import as_tuple
from harness.runtimes.session import Ran

if TYPE_CHECKING:
    import numpy as np

_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_COMPILERS = "TORCHINDUCTOR_COMPILE_THREADS"


def load(turn: Turn, component: Component, feeds: Mapping[str, np.ndarray]) -> Loaded:
    """Build a component's module on its device, to be called as a deployed file is.

    Raises:
        StageError: The device or the number of threads is another than was asked for.

    """
    ask_device(turn.device)
    device = turn.device.device
    module = recipe_module(component.recipe).build(component).to(device)
    weights = (*module.parameters(), *module.buffers())
    ran = Ran(
        backend=REFERENCE,
        version=torch.__version__,
        device=str(next(module.parameters()).device.type),
        threads=torch.get_num_threads(),
        precision="float32",
        detail=(("how", turn.how), ("tf32", str(turn.device.tf32).lower())),
    )
    if (ran.device, ran.threads) != (device, turn.device.threads):
        msg = (
            f"{turn.id}: asked for {device} with {turn.device.threads} threads, got "
            f"{ran.device} with {ran.threads}."
        )
        raise StageError(msg, outcome=Outcome.FELL_BACK)
    call = module
    if turn.how == COMPILE:
        # Its cache is the run's own: nothing is left at home, nothing found there.
        os.environ[_CACHE] = str(turn.scratch)
        os.environ[_COMPILERS] = "1"  # in this process: it is a fork itself
        call = torch.compile(module)

    def run() -> dict[str, np.ndarray]:
        """Run, and wait until the outputs are in host memory."""
        try:
            with torch.no_grad():
                tensors = [
                    torch.tensor(value, device=device) for value in feeds.values()
                ]
                arrays = [value.cpu().numpy() for value in as_tuple(call(*tensors))]
                if device == "cuda":
                    torch.cuda.synchronize()
        except Exception as error:  # a compiler brings classes of its own
            msg = (
                f"{turn.id}: PyTorch {torch.__version__} cannot run it "
                f"({type(error).__name__}: {first_line(error)})."
            )
            raise StageError(msg, outcome=Outcome.RUN) from error
        if turn.how == COMPILE and not counters["frames"]["ok"]:
            msg = (
                f"{turn.id}: torch.compile compiled nothing, and its time would be "
                "eager's; is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        names = [spec.name for spec in component.outputs]
        return dict(zip(names, arrays, strict=True))

    size_bytes = sum(one.numel() * one.element_size() for one in weights)
    return Loaded(run, size_bytes, lambda: ran)
