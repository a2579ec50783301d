"""Operators that compute something a little different: planted in exported graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.faults.catalogue.fault import Fault, InGraph
from tests.faults.catalogue.graphs import (
    Change,
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
    CHANNELS_ROLLED,
    CONV_WITH_EDGES,
    EIGHT_BITS,
    ITEM_0_FOR_ALL,
    KEYS_RESHAPED,
    MASK_TIMES_INFINITY,
    NAIVE_VARIANCE,
    QUICK_GELU,
    RELU,
    RESIDUAL_DROPPED,
    STATISTICS_IN_FLOAT16,
    TANH_GELU,
    TO_FLOAT16,
)

LN = "network.encoder.layers.1.layer_norm2.{}"
CONV1 = "network.decoder.up_blocks.0.resnets.1.conv1.{}"


def _operator(
    name: str, component: str, change: Change, *expects: str, **rest: Any
) -> Fault:
    return Fault(
        name=name,
        family="operator",
        component=component,
        plant=InGraph(change=change),
        expects=expects,
        **rest,
    )


def _zero_channel(weight: np.ndarray) -> np.ndarray:
    weight[5] = 0.0
    return weight


def _one_wrong(weight: np.ndarray) -> np.ndarray:
    weight.flat[7] += 1.0
    return weight


def _ten_bits(weight: np.ndarray) -> np.ndarray:
    """Round to the 10 fraction bits of TensorFloat-32."""
    mantissa, exponent = np.frexp(weight)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


def _four_bits(weight: np.ndarray) -> np.ndarray:
    scale = np.abs(weight).max() / 7
    return np.round(weight / scale) * scale


def _heads_and_width_swapped(shape: np.ndarray) -> np.ndarray:
    return shape[[0, 1, 3, 2]]


def _frequencies_shifted(weight: np.ndarray) -> np.ndarray:
    """Divide by one less than the count, which diffusers' UNet does not."""
    count = weight.size
    return 10000.0 ** (-np.arange(count) / (count - 1)).reshape(weight.shape)


ACTIVATIONS = (
    _operator(
        "gelu-tanh",
        "controlnet",
        replaced("gelu", TANH_GELU, x="split_split_1"),
        "GELU",
    ),
    _operator(
        "gelu-quick",
        "controlnet",
        replaced("gelu_3", QUICK_GELU, x="split_3_split_1"),
        "GELU",
    ),
    _operator(
        "geglu-halves-swapped",
        "controlnet",
        at("gelu", outputs_swapped("split_split_0")),
        "halves",
    ),
    _operator(
        "quick-gelu-as-silu",
        "text_encoder",
        set_weight("mul_72", np.ones_like),
        "times what it should be",
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
    ),
)

NORMS = (
    _operator(
        "layer-norm-epsilon-large",
        "text_encoder",
        set_attributes("layer_norm_1", epsilon=1e-3),
        "epsilon",
    ),
    _operator(
        "layer-norm-epsilon-small",
        "text_encoder",
        set_attributes("layer_norm", epsilon=1e-12),
        "epsilon",
    ),
    _operator(
        "group-norm-epsilon",
        "vae_decoder",
        at("group_norm", set_attributes("val_13", epsilon=1e-5)),
        "epsilon",
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
        "group",
    ),
    _operator(
        "norm-naive-variance",
        "vae_encoder",
        at("group_norm", replaced("val_13", NAIVE_VARIANCE, x="val_6")),
        "E[x²]",
    ),
    _operator(
        "norm-statistics-in-float16",
        "vae_decoder",
        at("group_norm_2", replaced("val_66", STATISTICS_IN_FLOAT16, x="val_59")),
        "float16",
    ),
    _operator(
        "norm-scale-and-bias-swapped",
        "text_encoder",
        swapped("layer_norm_2", 1, 2),
        "scale",
    ),
    _operator(
        "norm-scale-dropped",
        "vae_decoder",
        at("group_norm_4", set_weight("val_188", np.ones_like)),
        "scale",
    ),
    _operator(
        "norm-bias-dropped",
        "vae_encoder",
        set_weight("group_norm_1", np.zeros_like),
        "bias",
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
        "normalis",
    ),
)

ATTENTION = (
    _operator(
        "softmax-axis", "text_encoder", set_attributes("val_53", axis=-2), "axis"
    ),
    _operator(
        "softmax-over-heads",
        "vae_decoder",
        at("scaled_dot_product_attention", set_attributes("val_131", axis=1)),
        "axis",
    ),
    _operator(
        "attention-scale-of-the-width",
        "text_encoder",
        set_weight("mul_38", lambda s: s / 2),
        "times what it should be",
    ),
    _operator(
        "attention-scale-twice",
        "vae_decoder",
        at("scaled_dot_product_attention", set_weight("val_126", np.square)),
        "scale",
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
    ),
    _operator(
        "heads-and-width-swapped",
        "text_encoder",
        together(
            set_weight("view_2", _heads_and_width_swapped),
            set_weight("view_3", _heads_and_width_swapped),
            set_weight("view_1", _heads_and_width_swapped),
        ),
        "shape",
    ),
    _operator(
        "values-from-keys", "text_encoder", reads("view_3", 0, "linear_1"), "view"
    ),
    _operator(
        "keys-not-transposed",
        "text_encoder",
        replaced("transpose_3", KEYS_RESHAPED, x="view_2"),
        "transpose",
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

WEIGHTS = (
    _operator(
        "linear-bias-dropped",
        "text_encoder",
        set_weight("linear_4", np.zeros_like),
        "bias",
    ),
    _operator(
        "conv-bias-dropped",
        "vae_decoder",
        set_input("conv2d_2", 2, np.zeros_like),
        "bias",
    ),
    _operator(
        "bias-permuted",
        "text_encoder",
        set_weight("linear_11", lambda b: np.roll(b, 1)),
        "bias",
    ),
    _operator(
        "weight-transposed",
        "text_encoder",
        at("linear", set_weight("val_29", np.transpose)),
        "transposed",
    ),
    _operator(
        "one-weight-wrong",
        "text_encoder",
        at("linear_5", set_weight("val_67", _one_wrong)),
        "channel",
    ),
    _operator(
        "kernel-flipped",
        "vae_decoder",
        set_input("conv2d_4", 1, lambda w: w[..., ::-1, ::-1]),
        "flipped",
    ),
    _operator(
        "channel-zeroed",
        "vae_decoder",
        set_input("conv2d_5", 1, _zero_channel),
        "channel 5",
    ),
    _operator(
        "channels-rolled", "vae_decoder", after("conv2d_2", CHANNELS_ROLLED), "channels"
    ),
    _operator(
        "weights-to-ten-bits",
        "vae_decoder",
        set_input("conv2d_6", 1, _ten_bits),
        "TensorFloat-32",
    ),
    _operator(
        "weights-to-four-bits",
        "vae_decoder",
        set_input("conv2d_6", 1, _four_bits),
        "quantized",
    ),
    _operator(
        "embedding-row-shifted",
        "text_encoder",
        set_input("embedding", 0, lambda w: np.roll(w, 1, 0)),
        "shifted",
    ),
    _operator(
        "positions-one-late",
        "text_encoder",
        set_weight("add_7", lambda w: np.roll(w, 1, 1)),
        "shifted",
    ),
    _operator(
        "batch-norm-scale-misfolded",
        "vae_encoder",
        set_input("conv2d_3", 1, lambda w: w * 1.01),
        "times what it should be",
    ),
)

PLACES = (
    _operator(
        "resize-rounds-up",
        "vae_decoder",
        set_attributes("upsample_nearest2d", nearest_mode="ceil"),
        "shifted",
        backends=("onnxruntime",),  # MNN rounds down whatever it is told
    ),
    _operator(
        "resize-from-pixel-centres",
        "vae_decoder",
        set_attributes(
            "upsample_nearest2d",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
        ),
        "coordinate",
    ),
    _operator(
        "resize-linear",
        "vae_decoder",
        set_attributes(
            "upsample_nearest2d_1",
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        ),
        "mode",
    ),
    _operator(
        "padding-on-the-other-side",
        "vae_encoder",
        set_attributes("conv2d_3", pads=[1, 1, 0, 0]),
        "pads",
    ),
    _operator(
        "padding-with-the-edge",
        "vae_decoder",
        replaced(
            "conv2d_8",
            CONV_WITH_EDGES,
            x="silu_6",
            weight=CONV1.format("weight"),
            bias=CONV1.format("bias"),
        ),
    ),
    _operator(
        "residual-dropped",
        "text_encoder",
        replaced("add_135", RESIDUAL_DROPPED, x="linear_3", y="add_7"),
        "residual",
    ),
    _operator("skips-swapped", "unet", swapped("cat_2"), "swapped"),
)

TIME = (
    _operator("sine-and-cosine-swapped", "controlnet", swapped("cat"), "swapped"),
    _operator(
        "frequencies-shifted",
        "controlnet",
        set_weight("mul_9", _frequencies_shifted),
        "frequenc",
    ),
    _operator(
        "timestep-through-bfloat16",
        "controlnet",
        after("expand", EIGHT_BITS),
        "whole numbers",
    ),
    _operator(
        "ids-through-bfloat16",
        "text_encoder",
        after("view", EIGHT_BITS),
        "whole numbers",
    ),
    _operator(
        "phase-through-float16",
        "controlnet",
        after("mul_9", TO_FLOAT16),
        "float16",
    ),
    _operator(
        "activation-through-float16",
        "vae_decoder",
        after("conv2d_3", TO_FLOAT16),
        "float16",
    ),
)

FAULTS = (*ACTIVATIONS, *NORMS, *ATTENTION, *WEIGHTS, *PLACES, *TIME)
