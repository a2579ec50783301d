"""A recipe of small networks; a file of another exporter has one thing otherwise.

A suite has a copy of this file beside it. The option ``fault`` names what is otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.case import Component, Source, TensorSpec
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes, normal

if TYPE_CHECKING:
    import torch

PICTURE, TOKENS = ("batch", 4, 8, 8), ("batch", 10, 16)
OF_A_PICTURE = ("module-dropped", "another-slope")


def signature(source: Source, options: Options) -> Signature:
    """Return the signature: ``x`` to ``y`` of the same shape, float32."""
    del source
    shape = PICTURE if options.get("fault") in OF_A_PICTURE else TOKENS
    return (normal("x", *shape),), (TensorSpec(name="y", shape=shape),)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Return the right network."""
    del attention
    return network(str(dict(component.options)["fault"]), right=True)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw ``x``."""
    import numpy as np

    del step
    shape = component.inputs[0].bind(shapes)
    return {"x": rng.standard_normal(shape, dtype=np.float32)}


def network(fault: str, *, right: bool) -> torch.nn.Module:
    """Return the network, or the one that the faulty file is exported from."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Picture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.post_quant_conv = nn.Conv2d(4, 4, 1)
            self.conv = nn.Conv2d(4, 4, 3, padding=1)
            slope = 0.01 if fault == "another-slope" and not right else 0.2
            self.act = nn.LeakyReLU(slope)
            self.out = nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if right or fault != "module-dropped":
                x = self.post_quant_conv(x)
            return self.out(self.act(self.conv(x)))

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            epsilon = 1e-3 if fault == "another-epsilon" and not right else 1e-5
            self.norm = nn.LayerNorm(16, eps=epsilon)
            self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
            angles = torch.outer(torch.arange(10.0), 0.6 ** torch.arange(8.0))
            self.register_buffer("cosine", angles.cos(), persistent=False)
            self.register_buffer("sine", angles.sin(), persistent=False)
            self.rows = nn.Parameter(torch.randn(3, 16))

        def turned(self, x: torch.Tensor) -> torch.Tensor:
            halves = (x[..., :8], x[..., 8:]) if right else (x[..., ::2], x[..., 1::2])
            a, b = halves
            both = a * self.cosine - b * self.sine, b * self.cosine + a * self.sine
            return torch.cat(both, -1) if right else torch.stack(both, -1).flatten(-2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            read = x
            if fault == "rows-repeated":
                places = torch.tensor([0, 4, 9] if right else [0, 4, 4])
                rows = self.rows.expand(x.shape[0], -1, -1)
                read = torch.index_copy(x, 1, places, rows)
            read = self.norm(read)
            q, k = self.q(read), self.k(read)
            if fault == "rotary-pairs":
                q, k = self.turned(q), self.turned(k)
            made = (q @ k.transpose(1, 2) / 4).softmax(-1) @ self.v(read)
            if right and fault == "operator-dropped":
                made = torch.tanh(made)
            return x + self.o(made)

    return (Picture if fault in OF_A_PICTURE else Tokens)().eval()
