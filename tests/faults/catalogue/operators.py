"""Operators that compute something a little different: planted in exported graphs."""

from functools import partial

import numpy as np
import onnx

from tests.faults.catalogue.fault import in_graph
from tests.faults.catalogue.graphs import (
    after,
    at,
    before,
    maker,
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
    FROM_0_TO_1,
    ITEM_0_FOR_ALL,
    KEYS_RESHAPED,
    MASK_TIMES_INFINITY,
    NAIVE_VARIANCE,
    OUTSIDE_THE_ROOT,
    QUICK_GELU,
    RELU,
    SCALED_A_LITTLE,
    SCALED_TWICE,
    SMALLER,
    STATISTICS_IN_FLOAT16,
    TANH_GELU,
    TEMPERATURE,
)

_in_text = partial(in_graph, "operator", "text_encoder")
_in_encoder = partial(in_graph, "operator", "vae_encoder")
_in_decoder = partial(in_graph, "operator", "vae_decoder")
_in_controlnet = partial(in_graph, "operator", "controlnet")
LN = "network.encoder.layers.1.layer_norm2.{}"


def _heads_and_width_swapped(shape: np.ndarray) -> np.ndarray:
    return shape[[0, 1, 3, 2]]


def _silu_of_a_scaled_value(model: onnx.ModelProto) -> str | None:
    """Scale what both nodes of a SiLU read."""
    sigmoid = maker(model, "silu_3").input[1]
    before(sigmoid, SCALED_A_LITTLE)(model)
    return before("silu_3", SCALED_A_LITTLE)(model)


def _linear_of_a_scaled_value(model: onnx.ModelProto) -> str | None:
    """Scale what the product of a linear layer reads, and not its bias."""
    before(maker(model, "linear_4").input[0], SCALED_A_LITTLE)(model)
    return "linear_4"


ACTIVATIONS = (
    _in_controlnet(
        "gelu-tanh",
        replaced("gelu", TANH_GELU, x="split_split_1"),
        "GELU's tanh form",
        also=("GELU's form is tanh in the graph",),
    ),
    _in_controlnet(
        "gelu-quick",
        replaced("gelu_3", QUICK_GELU, x="split_3_split_1"),
        "sigmoid(1.702x)",
        also=("GELU's form is unknown in the graph",),
    ),
    _in_controlnet(
        "geglu-halves-swapped",
        at("gelu", outputs_swapped("split_split_0")),
        "halves",
        "in other places",
    ),
    _in_text(
        "quick-gelu-as-silu",
        set_weight("mul_72", np.ones_like),
        "everything is ",
        "SiLU",
        also=("the operator changed nothing", "constant is 1 in the graph"),
    ),
    _in_text(
        "quick-gelu-as-tanh-gelu", replaced("mul_147", TANH_GELU, x="linear_10"), "GELU"
    ),
    _in_decoder(
        "silu-as-relu", replaced("silu_3", RELU, x="group_norm_4"), "SiLU", "ReLU"
    ),
)

IN_FRONT = (
    _in_decoder(
        "latents-scaled-twice",
        before("conv2d", SCALED_TWICE),
        "its input is 5.49 (1/0.18215) times",
    ),
    _in_encoder(
        "picture-from-0-to-1",
        before("conv2d", FROM_0_TO_1),
        "its input is 0.5 times PyTorch's, and +0.5 off",
    ),
    _in_decoder(
        "activation-of-a-scaled-value",
        _silu_of_a_scaled_value,
        "its input is 1.1 (1/0.90909) times",
    ),
    _in_text(
        "linear-of-a-scaled-value",
        _linear_of_a_scaled_value,
        "its input is 1.1 (1/0.90909) times",
    ),
)

NORMS = (
    _in_text(
        "layer-norm-epsilon-large",
        set_attributes("layer_norm_1", epsilon=1e-3),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _in_text(
        "layer-norm-epsilon-small",
        set_attributes("layer_norm", epsilon=1e-12),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _in_decoder(
        "group-norm-epsilon",
        at("group_norm", set_attributes("val_13", epsilon=1e-5)),
        "epsilon, groups or variance",
        "epsilon is",
    ),
    _in_decoder(
        "group-count",
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
    _in_encoder(
        "norm-naive-variance",
        at("group_norm", replaced("val_13", NAIVE_VARIANCE, x="val_6")),
        "E[x²]",
        "variance",
    ),
    _in_encoder(
        "norm-epsilon-outside-the-root",
        at("group_norm", replaced("val_13", OUTSIDE_THE_ROOT, x="val_6")),
        "outside the root",
    ),
    _in_decoder(
        "norm-statistics-in-float16",
        at("group_norm_2", replaced("val_66", STATISTICS_IN_FLOAT16, x="val_59")),
        "float16",
        "scaled by its own factor",
    ),
    _in_text(
        "norm-scale-and-bias-swapped",
        swapped("layer_norm_2", 1, 2),
        "scale and the bias of the normalisation are exchanged",
    ),
    _in_decoder(
        "norm-scale-dropped",
        at("group_norm_4", set_weight("val_188", np.ones_like)),
        "scale of the normalisation is dropped",
    ),
    _in_encoder(
        "norm-bias-dropped",
        set_weight("group_norm_1", np.zeros_like),
        "a bias",
        "bias of the normalisation is dropped",
    ),
    _in_text(
        "norm-statistics-frozen",
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
    _in_text(
        "softmax-axis", set_attributes("val_53", axis=-2), "another axis", "axis is"
    ),
    _in_text(
        "softmax-temperature",
        replaced("val_53", TEMPERATURE, x="add_96"),
        "softmax of 1.002 times its argument",
    ),
    _in_decoder(
        "softmax-over-heads",
        at("scaled_dot_product_attention", set_attributes("val_131", axis=1)),
        "another axis",
        "axis of softmax is 1 in the graph",
    ),
    _in_text(
        "attention-scale-of-the-width",
        set_weight("mul_38", lambda s: s / 2),
        "everything is ",
        "scale is",
        "constant is ",
    ),
    _in_decoder(
        "attention-scale-twice",
        at("scaled_dot_product_attention", set_weight("val_126", np.square)),
        "attention's scale is",
    ),
    _in_text(
        "scores-beside-the-mask-scaled",
        after("add_96", SMALLER),
        "everything is 0.95 times",
    ),
    _in_text(
        "scores-beside-the-mask-scaled-in-decibels",
        after("add_96", SMALLER),
        "everything is 0.9",
        variant="fp16-weights",
        backends=("mnn",),
    ),
    _in_text(
        "scores-scaled-between-modules",
        after("/network/encoder/layers.1/self_attn/Mul_output_0", SMALLER),
        "between q_proj, k_proj, v_proj (agree) and",
        also=("more than float32 rounds",),
        exporter="torchscript",
        backends=("onnxruntime",),
    ),
    _in_text(
        "another-residual-between-modules",
        reads(
            "/network/encoder/layers.1/Add_1_output_0",
            0,
            "/network/encoder/layers.0/Add_1_output_0",
        ),
        "first diverges at encoder.layers.1 (CLIPEncoderLayer)",
        also=("is missing from it",),
        exporter="torchscript",
        backends=("onnxruntime",),
    ),
    _in_text("mask-too-weak", set_input("where", 2, lambda _: -5.0), "mask"),
    _in_text("mask-minus-ten-thousand", set_input("where", 2, lambda _: -1e4), "mask"),
    _in_text(
        "mask-dropped", replaced("add_96", "out = Identity(x)", x="mul_38"), "mask"
    ),
    _in_text(
        "mask-one-token-late",
        set_weight("expand", lambda m: np.tri(m.shape[-1], k=1)[None, None]),
        "mask",
    ),
    _in_text(
        "mask-times-infinity",
        replaced("where", MASK_TIMES_INFINITY, mask="expand"),
        "nonfinite",
        also=("NaN or infinite where PyTorch's are not",),
    ),
    _in_text(
        "heads-and-width-swapped",
        together(
            set_weight("view_2", _heads_and_width_swapped),
            set_weight("view_3", _heads_and_width_swapped),
            set_weight("view_1", _heads_and_width_swapped),
        ),
        "shape [",
    ),
    _in_text("values-from-keys", reads("view_3", 0, "linear_1"), "another value"),
    _in_text(
        "keys-not-transposed",
        replaced("transpose_3", KEYS_RESHAPED, x="view_2"),
        "in other places",
        "transposition",
    ),
    _in_text("batch-item-0-for-all", after("matmul", ITEM_0_FOR_ALL), "batch item 0"),
    _in_decoder(
        "batch-item-0-in-attention",
        after("scaled_dot_product_attention", ITEM_0_FOR_ALL),
        "batch item 0",
    ),
)

FAULTS = (*IN_FRONT, *ACTIVATIONS, *NORMS, *ATTENTION)
