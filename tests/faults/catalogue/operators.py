"""Operators that compute something a little different: planted in exported graphs."""

from __future__ import annotations

import numpy as np

from tests.faults.catalogue.fault import Fault, InGraph
from tests.faults.catalogue.graphs import (
    Change,
    after,
    at,
    before,
    reads,
    replaced,
    set_attributes,
    set_input,
    set_weight,
)

TANH_GELU = """
    half = Constant<value_float=0.5>()
    one = Constant<value_float=1.0>()
    three = Constant<value_float=3.0>()
    c = Constant<value_float=0.044715>()
    s = Constant<value_float=0.7978845608>()
    cube = Pow(x, three)
    scaled = Mul(cube, c)
    sum = Add(x, scaled)
    angle = Mul(sum, s)
    t = Tanh(angle)
    up = Add(t, one)
    gate = Mul(up, half)
    out = Mul(x, gate)
"""
QUICK_GELU = """
    k = Constant<value_float=1.702>()
    scaled = Mul(x, k)
    gate = Sigmoid(scaled)
    out = Mul(x, gate)
"""
THROUGH_FLOAT16 = "half = Cast<to=10>(right) wrong = Cast<to={}>(half)"
FLOAT32, INT64 = 1, 7


def _operator(
    name: str, component: str, change: Change, *expects: str, **rest: object
) -> Fault:
    return Fault(
        name=name,
        family="operator",
        component=component,
        plant=InGraph(change=change),
        expects=expects,
        **rest,
    )


def _zeroed(index: int, axis: int):
    def zero(weight: np.ndarray) -> np.ndarray:
        weight[(slice(None),) * axis + (index,)] = 0.0
        return weight

    return zero


FAULTS = (
    _operator("gelu-tanh", "unet", replaced("gelu", TANH_GELU, x="split_split_1"), "GELU"),
    _operator("gelu-quick", "unet", replaced("gelu_3", QUICK_GELU, x="split_split_1"), "GELU"),
    _operator("layer-norm-epsilon", "text_encoder", set_attributes("layer_norm_1", epsilon=1e-3), "epsilon"),
    _operator("softmax-axis", "text_encoder", set_attributes("val_53", axis=-2), "axis"),
    _operator("attention-scale-dropped", "text_encoder", set_weight("mul_38", np.ones_like), "times what it should be", "constant factor"),
    _operator("quick-gelu-exact", "text_encoder", at("mul_72", set_weight("mul_72", lambda w: w * 0 + 1.0)), "times what it should be"),
    _operator("bias-dropped", "text_encoder", set_weight("linear_4", np.zeros_like), "bias"),
    _operator("weight-transposed", "text_encoder", at("linear", set_weight("val_29", np.transpose)), "transposed"),
    _operator("ids-through-float16", "text_encoder", before("embedding", 1, THROUGH_FLOAT16.format(INT64)), "float16"),
    _operator("resize-half-pixel", "vae_decoder", set_attributes("upsample_nearest2d", coordinate_transformation_mode="half_pixel", nearest_mode="ceil"), "shifted"),
)
