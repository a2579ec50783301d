"""Operators that compute something a little different: planted in exported graphs."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.faults.catalogue.fault import in_graph
from tests.faults.catalogue.graphs import (
    after,
    at,
    outputs_swapped,
    reads,
    replaced,
    set_attributes,
    set_input,
    set_weight,
    swapped,
    together,
)
from tests.faults.catalogue.texts import (
    ITEM_0_FOR_ALL,
    KEYS_RESHAPED,
    MASK_TIMES_INFINITY,
    NAIVE_VARIANCE,
    QUICK_GELU,
    RELU,
    STATISTICS_IN_FLOAT16,
    TANH_GELU,
    TEMPERATURE,
)

_operator = partial(in_graph, "operator")
LN = "network.encoder.layers.1.layer_norm2.{}"


def _heads_and_width_swapped(shape: np.ndarray) -> np.ndarray:
    return shape[[0, 1, 3, 2]]


ACTIVATIONS = (
    _operator(
        "gelu-tanh",
        "controlnet",
        replaced("gelu", TANH_GELU, x="split_split_1"),
        "GELU's tanh form",
        also=("GELU's form is tanh in the graph",),
    ),
    _operator(
        "gelu-quick",
        "controlnet",
        replaced("gelu_3", QUICK_GELU, x="split_3_split_1"),
        "sigmoid(1.702x)",
        also=("GELU's form is unknown in the graph",),
    ),
    _operator(
        "geglu-halves-swapped",
        "controlnet",
        at("gelu", outputs_swapped("split_split_0")),
        "halves",
        "in other places",
    ),
    _operator(
        "quick-gelu-as-silu",
        "text_encoder",
        set_weight("mul_72", np.ones_like),
        "everything is ",
        "SiLU",
        also=("the operator changed nothing",),
    ),
    _operator(
        "quick-gelu-as-tanh-gelu",
        "text_encoder",
        replaced("mul_147", TANH_GELU, x="linear_10"),
        "GELU",
    ),
    _operator(
        "silu-as-relu",
        "vae_decoder",
        replaced("silu_3", RELU, x="group_norm_4"),
        "SiLU",
        "ReLU",
    ),
)

NORMS = (
    _operator(
        "layer-norm-epsilon-large",
        "text_encoder",
        set_attributes("layer_norm_1", epsilon=1e-3),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _operator(
        "layer-norm-epsilon-small",
        "text_encoder",
        set_attributes("layer_norm", epsilon=1e-12),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _operator(
        "group-norm-epsilon",
        "vae_decoder",
        at("group_norm", set_attributes("val_13", epsilon=1e-5)),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _operator(
        "group-count",
        "vae_decoder",
        at(
            "group_norm_3",
            together(
                set_weight("val_149", lambda _: [0, 4, -1]),
                set_input("val_156", 1, lambda w: w[:4]),
                set_input("val_156", 2, lambda w: w[:4]),
            ),
        ),
        "groups is",
        "groups or variance",
        also=("the normalisation has 4 groups",),
    ),
    _operator(
        "norm-naive-variance",
        "vae_encoder",
        at("group_norm", replaced("val_13", NAIVE_VARIANCE, x="val_6")),
        "E[x²]",
        "variance",
    ),
    _operator(
        "norm-statistics-in-float16",
        "vae_decoder",
        at("group_norm_2", replaced("val_66", STATISTICS_IN_FLOAT16, x="val_59")),
        "float16",
        "scaled by its own factor",
    ),
    _operator(
        "norm-scale-and-bias-swapped",
        "text_encoder",
        swapped("layer_norm_2", 1, 2),
        "scale and the bias of the normalisation are exchanged",
    ),
    _operator(
        "norm-scale-dropped",
        "vae_decoder",
        at("group_norm_4", set_weight("val_188", np.ones_like)),
        "scale of the normalisation is dropped",
    ),
    _operator(
        "norm-bias-dropped",
        "vae_encoder",
        set_weight("group_norm_1", np.zeros_like),
        "a bias",
        "bias of the normalisation is dropped",
    ),
    _operator(
        "norm-statistics-frozen",
        "text_encoder",
        replaced(
            "layer_norm_3",
            "s = Mul(x, weight) out = Add(s, bias)",
            x="add_269",
            weight=LN.format("weight"),
            bias=LN.format("bias"),
        ),
        "scaled by its own factor",
    ),
)

ATTENTION = (
    _operator(
        "softmax-axis",
        "text_encoder",
        set_attributes("val_53", axis=-2),
        "another axis",
        "axis is",
    ),
    _operator(
        "softmax-temperature",
        "text_encoder",
        replaced("val_53", TEMPERATURE, x="add_96"),
        "softmax of 1.002 times its argument",
    ),
    _operator(
        "softmax-over-heads",
        "vae_decoder",
        at("scaled_dot_product_attention", set_attributes("val_131", axis=1)),
        "another axis",
        "axis of softmax is 1 in the graph",
    ),
    _operator(
        "attention-scale-of-the-width",
        "text_encoder",
        set_weight("mul_38", lambda s: s / 2),
        "everything is ",
        "scale is",
    ),
    _operator(
        "attention-scale-twice",
        "vae_decoder",
        at("scaled_dot_product_attention", set_weight("val_126", np.square)),
        "attention's scale is",
    ),
    _operator(
        "mask-too-weak", "text_encoder", set_input("where", 2, lambda _: -5.0), "mask"
    ),
    _operator(
        "mask-minus-ten-thousand",
        "text_encoder",
        set_input("where", 2, lambda _: -1e4),
        "mask",
    ),
    _operator(
        "mask-dropped",
        "text_encoder",
        replaced("add_96", "out = Identity(x)", x="mul_38"),
        "mask",
    ),
    _operator(
        "mask-one-token-late",
        "text_encoder",
        set_weight("expand", lambda m: np.tri(m.shape[-1], k=1)[None, None]),
        "mask",
    ),
    _operator(
        "mask-times-infinity",
        "text_encoder",
        replaced("where", MASK_TIMES_INFINITY, mask="expand"),
        "nonfinite",
        also=("NaN or infinite where PyTorch's are not",),
    ),
    _operator(
        "heads-and-width-swapped",
        "text_encoder",
        together(
            set_weight("view_2", _heads_and_width_swapped),
            set_weight("view_3", _heads_and_width_swapped),
            set_weight("view_1", _heads_and_width_swapped),
        ),
        "shape [",
    ),
    _operator(
        "values-from-keys",
        "text_encoder",
        reads("view_3", 0, "linear_1"),
        "another value",
    ),
    _operator(
        "keys-not-transposed",
        "text_encoder",
        replaced("transpose_3", KEYS_RESHAPED, x="view_2"),
        "in other places",
        "transposition",
    ),
    _operator(
        "batch-item-0-for-all",
        "text_encoder",
        after("matmul", ITEM_0_FOR_ALL),
        "batch item 0",
    ),
    _operator(
        "batch-item-0-in-attention",
        "vae_decoder",
        after("scaled_dot_product_attention", ITEM_0_FOR_ALL),
        "batch item 0",
    ),
)

FAULTS = (*ACTIVATIONS, *NORMS, *ATTENTION)
