"""Operators with wrong constants, or fed wrongly: planted in exported graphs."""

from functools import partial

import numpy as np

from tests.faults.catalogue.fault import in_graph
from tests.faults.catalogue.graphs import (
    after,
    at,
    replaced,
    set_attributes,
    set_input,
    set_weight,
    swapped,
)
from tests.faults.catalogue.texts import (
    CHANNELS_ROLLED,
    CONV_WITH_EDGES,
    EIGHT_BITS,
    FACTOR_AND_OFFSET,
    RESIDUAL_DROPPED,
    RESIDUAL_SCALED,
    TO_FLOAT16,
)

_in_text = partial(in_graph, "operator", "text_encoder")
_in_decoder = partial(in_graph, "operator", "vae_decoder")
_in_encoder = partial(in_graph, "operator", "vae_encoder")
_in_controlnet = partial(in_graph, "operator", "controlnet")
_in_controlled = partial(in_graph, "operator", "controlled_unet")
CONV1 = "network.decoder.up_blocks.0.resnets.1.conv1.{}"


def _zero_channel(weight: np.ndarray) -> np.ndarray:
    weight[5] = 0.0
    return weight


def _one_wrong(weight: np.ndarray) -> np.ndarray:
    weight.flat[7] += 1.0
    return weight


def _one_nan(weight: np.ndarray) -> np.ndarray:
    weight.flat[7] = np.nan
    return weight


def _one_wild(weight: np.ndarray) -> np.ndarray:
    weight.flat[7] = 1e30
    return weight


def _ten_bits(weight: np.ndarray) -> np.ndarray:
    """Round to the 10 fraction bits of TensorFloat-32."""
    mantissa, exponent = np.frexp(weight)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


def _four_bits(weight: np.ndarray) -> np.ndarray:
    scale = np.abs(weight).max() / 7
    return np.round(weight / scale) * scale


def _frequencies_shifted(weight: np.ndarray) -> np.ndarray:
    """Divide by one less than the count, which diffusers' UNet does not."""
    count = weight.size
    return 10000.0 ** (-np.arange(count) / (count - 1)).reshape(weight.shape)


WEIGHTS = (
    _in_text("linear-bias-dropped", set_weight("linear_4", np.zeros_like), "a bias"),
    _in_decoder("conv-bias-dropped", set_input("conv2d_2", 2, np.zeros_like), "a bias"),
    _in_text(
        "bias-permuted", set_weight("linear_11", lambda b: np.roll(b, 1)), "a bias"
    ),
    _in_text(
        "weight-transposed",
        at("linear", set_weight("val_29", np.transpose)),
        "transposed",
    ),
    _in_text(
        "one-weight-wrong",
        at("linear_5", set_weight("val_67", _one_wrong)),
        "alone is off",
    ),
    _in_decoder(
        "one-weight-nan",
        set_input("conv2d_4", 1, _one_nan),
        "numbers is NaN",
        also=("NaN or infinite where PyTorch's are not", "channel 0 of 64"),
    ),
    _in_decoder(
        "one-weight-wild",
        set_input("conv2d_4", 1, _one_wild),
        "alone is off",
        "numbers is",
    ),
    _in_decoder(
        "kernel-flipped",
        set_input("conv2d_4", 1, lambda w: w[..., ::-1, ::-1]),
        "flipped",
    ),
    _in_decoder(
        "channel-zeroed", set_input("conv2d_5", 1, _zero_channel), "channel 5 of"
    ),
    _in_decoder(
        "channels-rolled",
        after("conv2d_2", CHANNELS_ROLLED),
        "shifted by one along",
        "channels",
    ),
    _in_decoder(
        "weights-to-ten-bits",
        set_input("conv2d_6", 1, _ten_bits),
        "it was rounded to float16 or TensorFloat-32",
    ),
    _in_decoder(
        "weights-to-four-bits",
        set_input("conv2d_6", 1, _four_bits),
        "weights of few bits",
    ),
    _in_text(
        "embedding-row-shifted",
        set_input("embedding", 0, lambda w: np.roll(w, 1, 0)),
        "it is shifted by one along axis 0",
        also=("another row",),
    ),
    _in_text(
        "positions-one-late",
        set_weight("add_7", lambda w: np.roll(w, 1, 1)),
        "position_embedding.weight of the graph is not PyTorch's",
        also=("shifted by one along",),
    ),
    _in_encoder(
        "batch-norm-scale-misfolded",
        set_input("conv2d_3", 1, lambda w: w * 1.01),
        "everything is ",
    ),
)

PLACES = (
    _in_decoder(
        "resize-rounds-up",
        set_attributes("upsample_nearest2d", nearest_mode="ceil"),
        "rounding is ceil in the graph",
        also=("the nearest pixel is taken rounded up",),
        backends=("onnxruntime",),  # MNN rounds down whatever it is told
    ),
    _in_decoder(
        "resize-from-pixel-centres",
        set_attributes(
            "upsample_nearest2d",
            coordinate_transformation_mode="half_pixel",
            nearest_mode="floor",
        ),
        "coordinates is half_pixel in the graph",
        also=("the nearest pixel is taken of pixel centres",),
    ),
    _in_decoder(
        "resize-linear",
        set_attributes(
            "upsample_nearest2d_1",
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        ),
        "mode is",
        also=("coordinates is half_pixel in the graph",),
    ),
    _in_encoder(
        "padding-on-the-other-side",
        set_attributes("conv2d_3", pads=[1, 1, 0, 0]),
        "padding is",
        "edge",
        "border",
    ),
    _in_decoder(
        "padding-with-the-edge",
        replaced(
            "conv2d_8",
            CONV_WITH_EDGES,
            x="silu_6",
            weight=CONV1.format("weight"),
            bias=CONV1.format("bias"),
        ),
        "edge",
        "border",
    ),
    _in_decoder(
        "factor-and-offset", after("conv2d_2", FACTOR_AND_OFFSET), "and +0.3 off"
    ),
    _in_text(
        "residual-dropped",
        replaced("add_135", RESIDUAL_DROPPED, x="linear_3", y="add_7"),
        "add_7 is missing from it",
    ),
    _in_text(
        "residual-scaled",
        replaced("add_135", RESIDUAL_SCALED, x="linear_3", y="add_7"),
        "add_7 is scaled by 0.999 before it is added",
    ),
    _in_controlled(
        "skips-swapped", swapped("cat_2"), "are exchanged", "in other places"
    ),
)

TIME = (
    _in_controlnet("sine-and-cosine-swapped", swapped("cat"), "are exchanged"),
    _in_controlnet(
        "frequencies-shifted",
        set_weight("mul_9", _frequencies_shifted),
        "other frequencies",
    ),
    _in_controlnet("timestep-through-bfloat16", after("expand", EIGHT_BITS), "8 bits"),
    _in_text("ids-through-bfloat16", after("view", EIGHT_BITS), "8 bits"),
    _in_controlnet(
        "phase-through-float16", after("mul_9", TO_FLOAT16), "rounded to float16"
    ),
    _in_decoder(
        "activation-through-float16",
        after("conv2d_3", TO_FLOAT16),
        "rounded to float16",
    ),
)

FAULTS = (*WEIGHTS, *PLACES, *TIME)
