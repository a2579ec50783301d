# ruff: noqa: ARG001  # the contract of a recipe names every argument
"""A recipe whose network computes in float32 alone, whatever its input is."""

import numpy as np
import torch

from harness.core.case import TensorSpec

SHAPE = ("batch", 4, 4)


def signature(source, options):
    square = TensorSpec(name="square", shape=SHAPE, draw="normal")
    return (square,), (TensorSpec(name="mixed", shape=SHAPE),)


def realistic(component, shapes, step, rng):
    return {"square": rng.standard_normal((shapes["batch"], 4, 4), np.float32)}


class Mixed(torch.nn.Module):
    def forward(self, square):
        return square @ torch.full((4, 4), 0.5)


def build(component, attention=""):
    return Mixed().eval()
