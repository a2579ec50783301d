"""A module of one's own, and ten faults that an exporter could make of it.

It is a transformer block behind a convolution, of about twenty operators. A fault
changes the graph that an exporter wrote, at opset 18. It returns the value of the
program that is wrong from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    import onnx

WIDTH, HEADS, SIDE = 64, 4, 32


class PlainNet(torch.nn.Module):
    """A convolution, and one block of attention and GELU."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, WIDTH, 4, stride=4)
        self.norm1 = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.norm2 = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, 10)
        for norm in (self.norm1, self.norm2):  # as after training
            torch.nn.init.normal_(norm.weight, 1.0, 0.1)
            torch.nn.init.normal_(norm.bias, 0.0, 0.1)

    def forward(self, image, scale):
        tokens = self.stem(image).flatten(2).transpose(1, 2) * scale
        q, k, v = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for one in self.qkv(self.norm1(tokens)).chunk(3, -1)
        )
        scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(mixed)
        tokens = tokens + self.down(self.act(self.up(self.norm2(tokens))))
        return self.head(tokens.mean(1))


def make():
    """Return the module, with the same weights each time."""
    torch.manual_seed(0)
    return PlainNet().eval()


def calls():
    """Return two calls, whose batches and scales differ."""
    torch.manual_seed(1)
    return [(torch.randn(n, 3, SIDE, SIDE), torch.tensor([0.5 * n])) for n in (2, 3)]


def faults():
    """Return what changes a graph, by name."""
    from tests.faults.catalogue.graphs import (
        maker,
        reads,
        replaced,
        set_attributes,
        set_input,
        set_weight,
    )
    from tests.faults.catalogue.texts import TANH_GELU

    def nth(model, kind, place):
        found = [node for node in model.graph.node if node.op_type == kind]
        return found[place]

    def in_product(numbers, place):
        """Change the matrix of a linear layer, which is wrong from its sum on."""

        def change(model: onnx.ModelProto) -> str:
            product = maker(model, place).input[0]
            set_weight(product, numbers)(model)
            return place

        return change

    def scaled_twice(model):
        scores = nth(model, "Softmax", 0).input[0]
        return set_input(scores, 1, lambda numbers: numbers**2)(model)

    def folded(model):
        import numpy as np
        from onnx import numpy_helper

        tokens = next(n for n in model.graph.node if "scale" in n.input)
        held = numpy_helper.from_array(calls()[0][1].numpy(), "folded")
        model.graph.initializer.append(held)
        assert held.dims == [1], np.shape(held)
        place = tokens.output[0]
        return reads(place, list(tokens.input).index("scale"), "folded")(model)

    def frozen(numbers: np.ndarray) -> np.ndarray:
        return [calls()[0][0].shape[0], *numbers[1:]]

    def no_channel(numbers):
        numbers[:, 7] = 0
        return numbers

    return {
        "a square weight is transposed": in_product(lambda w: w.T, "linear_1"),
        "the epsilon of a norm is 1e-6 for 1e-5": set_attributes(
            "layer_norm", epsilon=1e-6
        ),
        "a bias is left out": set_input("linear_2", 1, lambda numbers: 0 * numbers),
        "attention is scaled by 1/√d twice": scaled_twice,
        "GELU is its tanh form": replaced("gelu", TANH_GELU, x="linear_2"),
        "a weight is rounded to float16": in_product(
            lambda w: w.astype("float16"), "linear_2"
        ),
        "heads and tokens are not swapped back": set_attributes(
            "transpose_5", perm=[0, 1, 2, 3]
        ),
        "an input is folded into a constant": folded,
        "the batch is frozen at the traced one": set_input("view", 1, frozen),
        "a channel of a weight is zero": in_product(no_channel, "linear_3"),
    }
