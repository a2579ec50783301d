"""PyTorch's own module as something to time, eager or compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch._dynamo.utils import counters

from harness.commands.bench.timing import COMPILE, Turn
from harness.core.case import REFERENCE
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


class TorchLoaded:
    """A module on its device, called as a deployed file is."""

    def __init__(self, turn: Turn, module: torch.nn.Module) -> None:
        self._turn = turn
        self._device = turn.device.device
        self._outputs = [spec.name for spec in turn.component.outputs]
        self._call = module
        if turn.how == COMPILE:
            # Its cache is the run's own: nothing is left at home, nothing found there.
            os.environ[_CACHE] = str(turn.scratch)
            os.environ[_COMPILERS] = "1"  # in this process: it is a fork itself
            self._call = torch.compile(module)
        self.ran = Ran(
            backend=REFERENCE,
            version=torch.__version__,
            device=str(next(module.parameters()).device.type),
            threads=torch.get_num_threads(),
            precision="float32",
            detail=(("how", turn.how), ("tf32", str(turn.device.tf32).lower())),
        )
        if (self.ran.device, self.ran.threads) != (self._device, turn.device.threads):
            msg = (
                f"{turn.id}: asked for {self._device} with {turn.device.threads} "
                f"threads, got {self.ran.device} with {self.ran.threads}."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run, and wait until the outputs are in host memory.

        Raises:
            StageError: PyTorch raises; compiling is what may.

        """
        try:
            with torch.no_grad():
                tensors = [torch.tensor(v, device=self._device) for v in feeds.values()]
                made = as_tuple(self._call(*tensors))
                arrays = [value.cpu().numpy() for value in made]
                if self._device == "cuda":
                    torch.cuda.synchronize()
        except Exception as error:  # a compiler brings classes of its own
            msg = (
                f"{self._turn.id}: PyTorch {torch.__version__} cannot run it "
                f"({type(error).__name__}: {first_line(error)})."
            )
            raise StageError(msg, outcome=Outcome.RUN) from error
        if self._turn.how == COMPILE and not counters["frames"]["ok"]:
            msg = (
                f"{self._turn.id}: torch.compile compiled nothing, and its time would "
                "be eager's; is TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE set?"
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        return dict(zip(self._outputs, arrays, strict=True))


def load(turn: Turn) -> tuple[TorchLoaded, int]:
    """Build a turn's module on its device; return it with the size of its weights."""
    ask_device(turn.device)
    module = recipe_module(turn.component.recipe).build(turn.component)
    module = module.to(turn.device.device)
    weights = (*module.parameters(), *module.buffers())
    size_bytes = sum(one.numel() * one.element_size() for one in weights)
    return TorchLoaded(turn, module), size_bytes
