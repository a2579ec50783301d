"""The declaration of MNN, beside its conversion, sessions and file format."""

from __future__ import annotations

from harness.core.runtime import (
    EXACT,
    BuiltIn,
    Cost,
    Mixed,
    OwnFormat,
    Runtime,
    Setting,
)

HINTS = (
    "max_tuning_number",
    "strict_check_model",
    "mem_allocator_type",
    "winograd_memory_level",
    "geometry_compute_mask",
    "dynamic_quant_options",
    "cpu_littlecore_decrease_rate",
    "attention_option",
    "kvcache_size_limit",
    "op_encoder_number_for_commit",
)
"""MNN's session hints in the order of ``Interpreter::HintMode`` in Interpreter.hpp."""

MODEL = "model.mnn"
WEIGHTS = "model.mnn.weight"

_GELU = "--useGeluApproximation=0"
_ROUNDED = ("int8-weights", "int4-weights")
_DEFAULTS = (EXACT, "deploy")

_WINOGRAD = """\
# MNN convolves by Winograd's method in large tiles, which rounds more: the decoder of a
# healthy VAE was 62 floors off, and is 3 with this hint. The app must give it as well
# (Interpreter::WINOGRAD_MEMORY_LEVEL); where yours does not, take it out here too.
hints = { winograd_memory_level = 0 }"""

RUNTIME = Runtime(
    name="mnn",
    is_first=True,
    title="MNN",
    package=__name__,
    module="MNN",
    distributions=("MNN",),
    order=1,
    driver=f"{__name__}.driver",
    model=MODEL,
    weights=(WEIGHTS,),
    devices=("cpu", "opencl", "vulkan", "cuda", "metal"),
    precisions=("high", "normal", "low"),
    precision_note='"low" computes in fp16 where it can',
    variants={
        EXACT: BuiltIn(tier="standard", flags=(_GELU,)),
        "fp16-weights": BuiltIn(
            tier="relaxed",
            flags=(_GELU, "--fp16"),
            risk="half the size; weights keep 3 digits, timesteps lose most",
            blames="weights in float16",
        ),
        "int8-weights": BuiltIn(
            tier="quantized",
            flags=(_GELU, "--weightQuantBits=8"),
            risk="a quarter; an outlier takes the digits of its channel",
            blames="weights in int8",
        ),
        "int4-weights": BuiltIn(
            tier="quantized",
            flags=(_GELU, "--weightQuantBits=4"),
            risk="an eighth; 16 steps a channel: most networks need more bits",
            blames="weights in int4",
        ),
        "int8-static": BuiltIn(
            tier="quantized",
            flags=(_GELU,),
            risk="activations in 8 bits: what calibration did not see saturates",
            blames="weights and activations in int8",
            calibrated=True,
        ),
        "fused": BuiltIn(
            tier="standard",
            flags=(_GELU, "--transformerFuse"),
            risk="--transformerFuse: MNN 3.6.1 gets all but batch item 0 wrong",
            blames="the fused operators of --transformerFuse",
        ),
        "deploy": BuiltIn(
            tier="relaxed",
            risk="the converter's own defaults; GELU may become an approximation",
            blames="the converter's default rewrites",
        ),
    },
    run=Cost(
        words="running {component} in MNN", base=300, copies=2.6, live=16, scores=4
    ),
    make=Cost(words="converting {component} to MNN", base=300, copies=2.4),
    session_times=2.6,
    reads="mnn",
    own_format=OwnFormat(
        title="MNN file",
        weights=".weight",
        lacking="harness.runtimes.mnn.file:lacking_mnn",
        take="harness.runtimes.mnn.given:take_mnn",
    ),
    # ``--fp16`` is not among these: it makes every layer float16, whatever the file
    # of a plan says (MNN 3.6.1).
    mixed=Mixed(
        bits=(32, 8, 7, 6, 5, 4, 3, 2),
        variants={"int8-weights": 8, "int4-weights": 4},
        origin="int8-weights",
        flag="--compressionParamsFile=",
        module=f"{__name__}.layers",
    ),
    # ``MNNConvert --help`` and ``Interpreter.hpp`` document the settings of the
    # converter and its sessions.
    settings=(
        Setting(
            name="winograd_memory_level",
            value=0,
            cause="MNN convolves by Winograd's method with large tiles, which rounds "
            "more",
        ),
        Setting(
            name="geometry_compute_mask", value=0, cause="MNN merges moves of memory"
        ),
        Setting(
            name="dynamic_quant_options",
            value=0,
            cause="MNN quantizes activations as it goes",
        ),
        Setting(
            name="attention_option",
            value=0,
            cause="how MNN's fused attention holds keys and values",
        ),
        Setting(
            name=_GELU,
            cause="the converter puts an approximation in the place of GELU",
            kinds=("deploy",),
        ),
        Setting(
            name="--convertMatmulToConv=0",
            cause="a matrix product runs as a convolution",
            kinds=(EXACT, "fused", "deploy"),
        ),
        Setting(
            name="--optimizeLevel=0",
            cause="the converter rewrites the graph",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--optimizeLevel=2",
            cause="the converter holds back a rewrite",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--optimizePrefer=2",
            cause="a rewrite that prefers size",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--keepInputFormat=0",
            cause="the layout of the inputs",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--groupConvNative",
            cause="how grouped convolutions are split",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--alignDenormalizedValue=0",
            cause="denormal weights are set to zero",
            kinds=_DEFAULTS,
        ),
        Setting(
            name="--weightQuantBlock=32",
            cause="one scale serves a whole channel of weights",
            kinds=_ROUNDED,
        ),
        Setting(
            name="--weightQuantAsymmetric=1",
            cause="weights are rounded symmetrically about zero",
            kinds=_ROUNDED,
        ),
        Setting(name="--hqq", cause="weights are rounded one by one", kinds=_ROUNDED),
    ),
    rename="--bizCode=",
    features=r"The device supports?\b.*fp16:.*",
    # With low precision but without float16, MNN computes in float32, bit for bit as
    # with high precision. Up to version 2.9 it writes "The device support i8sdot:0".
    falls_back={
        "": r".*Can't Find type=\d+ backend, use \d+ instead.*",
        "low": r"The device supports?\b.*fp16:0.*",
    },
    preload=("MNN", "onnx"),
    # Both functions were measured over -8 to 8 in steps of 1e-4, against float64, by
    # `MNN.expr`. In small networks with drawn weights GELU's error was up to 59 floors,
    # and that of a convolution after tanh up to 44.
    first_bounds={
        "after tanh": (
            '{ tier = "standard", floors = 128.0 }',
            "the values are made from MNN's tanh, whose error is below",
        ),
        "tanh": (
            "{ rtol = 1e-3, atol = 1e-6 }",
            "MNN's tanh is off by up to 1.9e-7, also where it is small",
        ),
        "gelu": (
            '{ tier = "standard", floors = 128.0 }',
            "MNN's GELU in its tanh form is off by up to 1.8e-4 between 3 and 4",
        ),
    },
    first_hint=tuple(_WINOGRAD.splitlines()),
    example=(
        "# A variant of your own, with flags as MNN's converter takes them:",
        "# [variant.mnn.int4-hqq]",
        '# from = "int4-weights"',
        '# flags = ["--hqq"]',
        "# It needs a table in tolerances.toml too: [mnn.int4-hqq].",
    ),
)
