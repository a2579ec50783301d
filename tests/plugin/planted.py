"""A recipe of small networks, in which one block bears no rounding; and their suite.

The suite has a copy of this file beside it. Options of a component say what is planted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import torch

LARGE = 60_000.0
"""A common part of what a block reads; its weights cancel it."""
OUTLIER = 1000.0
"""An input channel has weights so much larger, and values so much smaller."""
BOUND = "sqnr_db=25"
_TOLERANCES = """\
[{backend}.fp32]
outputs = "standard"
layers = "standard"

[{backend}.int8-weights]
outputs = "quantized"
layers = "quantized"

"""


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``x`` to ``out``, float32 ``[batch, width]``."""
    del source
    shape = ("batch", int(options.get("width", 32)))
    return (TensorSpec(name="x", shape=shape, draw="normal"),), (
        TensorSpec(name="out", shape=shape),
    )


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return three linear blocks in residuals; the options say what is planted where.

    The option ``plant`` has ``activations``, ``outlier``, both or nothing, ``at`` is
    the number of the block, and ``seed`` draws the weights and the outlier's channel.
    """
    import torch
    from torch import nn

    del attention
    options = dict(component.options)
    width, seed = int(options.get("width", 32)), int(options.get("seed", 0))
    plant, at = str(options.get("plant", "")), int(options.get("at", 0))
    rng = torch.Generator().manual_seed(seed)

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
            gain, shift = torch.ones(3, width), torch.zeros(3, width)
            for number, block in enumerate(self.blocks):
                assert isinstance(block, nn.Linear)
                weight = torch.randn(width, width, generator=rng, dtype=torch.float64)
                weight /= width**0.5
                channel = int(torch.randint(width, (), generator=rng))
                rest = torch.arange(width) != channel
                if number == at and "activations" in plant:
                    weight[:, rest] -= weight[:, rest].mean(1, keepdim=True)
                    weight /= 100
                    gain[number] *= 100
                    shift[number, rest] = LARGE
                if number == at and "outlier" in plant:
                    weight[:, channel] *= OUTLIER
                    gain[number, channel] /= OUTLIER
                block.weight.data = weight.float()
                block.bias.data = torch.randn(width, generator=rng) / 10
            self.register_buffer("gain", gain)
            self.register_buffer("shift", shift)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for number, block in enumerate(self.blocks):
                read = x * self.gain[number] + self.shift[number]  # type: ignore[index]
                x = (x + nn.functional.gelu(block(read))) * 0.75
            return x

    return Blocks().eval().requires_grad_(requires_grad=False)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw ``x``."""
    import numpy as np

    del step
    shape = component.inputs[0].bind(shapes)
    return {"x": rng.standard_normal(shape, dtype=np.float32)}


def write_planted(
    folder: Path,
    components: dict[str, dict[str, str | int]],
    backends: tuple[str, ...] = ("onnxruntime", "mnn"),
    batch: int = 8,
) -> Path:
    """Write a suite of such networks, each with its options."""
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "config.json").write_text("{}")
    (folder / "planted.py").write_text(Path(__file__).read_text(encoding="utf-8"))
    lines = [f"components = {[*components]}", '[source]\ncheckpoint = "checkpoint"']
    lines += ['[export]\nexporter = "torchscript"\ndynamic_axes = []']
    for name, options in components.items():
        lines += [f"[component.{name}]", 'recipe = "planted"']
        lines += [f"{key} = {value!r}" for key, value in options.items()]
    for backend in backends:
        lines += [f"[backend.{backend}]", 'variants = ["fp32", "int8-weights"]']
        lines += ["threads = 1"]  # of small networks, others would wait for each other
    lines += [f"[[shapes]]\nbatch = {batch}", '[inputs]\nprofiles = ["realistic"]']
    lines += ["realistic = 1"]
    (folder / "parity.toml").write_text("\n".join(lines) + "\n")
    text = "".join(_TOLERANCES.format(backend=one) for one in backends)
    (folder / "tolerances.toml").write_text(text)
    return folder
