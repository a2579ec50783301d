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

# ``MNNConvert --help`` and ``Interpreter.hpp`` document the settings of the converter
# and its sessions. A hint is tried with 0.
_TRIED_HINTS = (
    (
        "winograd_memory_level",
        "MNN convolves by Winograd's method with large tiles, which rounds more",
    ),
    ("geometry_compute_mask", "MNN merges moves of memory"),
    ("dynamic_quant_options", "MNN quantizes activations as it goes"),
    ("attention_option", "how MNN's fused attention holds keys and values"),
)
_TRIED_FLAGS = (
    (_GELU, "the converter puts an approximation in the place of GELU", ("deploy",)),
    (
        "--convertMatmulToConv=0",
        "a matrix product runs as a convolution",
        (EXACT, "fused", "deploy"),
    ),
    ("--optimizeLevel=0", "the converter rewrites the graph", _DEFAULTS),
    ("--optimizeLevel=2", "the converter holds back a rewrite", _DEFAULTS),
    ("--optimizePrefer=2", "a rewrite that prefers size", _DEFAULTS),
    ("--keepInputFormat=0", "the layout of the inputs", _DEFAULTS),
    ("--groupConvNative", "how grouped convolutions are split", _DEFAULTS),
    ("--alignDenormalizedValue=0", "denormal weights are set to zero", _DEFAULTS),
    (
        "--weightQuantBlock=32",
        "one scale serves a whole channel of weights",
        _ROUNDED,
    ),
    (
        "--weightQuantAsymmetric=1",
        "weights are rounded symmetrically about zero",
        _ROUNDED,
    ),
    ("--hqq", "weights are rounded one by one", _ROUNDED),
)
"""Flags of the converter, each with its cause and the variants to try it in."""

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
    values=f"{__name__}.file:values_in",
    model=MODEL,
    weights=(WEIGHTS,),
    devices=("cpu", "opencl", "vulkan", "cuda", "metal"),
    precisions=("high", "normal", "low"),
    apis=("session", "module"),
    precision_note='"low" computes in fp16 where it can',
    variants={
        EXACT: BuiltIn(tier="standard", flags=(_GELU,)),
        "fp16-weights": BuiltIn(
            tier="relaxed",
            bits=16,
            flags=(_GELU, "--fp16"),
            risk="half the size; weights keep 3 digits, timesteps lose most",
            blames="weights in float16",
        ),
        "int8-weights": BuiltIn(
            tier="quantized",
            bits=8,
            flags=(_GELU, "--weightQuantBits=8"),
            risk="a quarter; an outlier takes the digits of its channel",
            blames="weights in int8",
        ),
        "int4-weights": BuiltIn(
            tier="quantized",
            bits=4,
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
    run=Cost(words="running {component} in MNN", base=300, copies=2.6),
    make=Cost(words="converting {component} to MNN", base=300, copies=2.4),
    session_times=2.6,
    reads="mnn",
    own_format=OwnFormat(
        title="MNN file",
        weights=".weight",
        lacking="harness.runtimes.mnn.file:lacking_mnn",
        ports="harness.runtimes.mnn.given:ports",
        graph="harness.runtimes.mnn.given:graph",
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
    settings=(
        *(Setting(name=name, value=0, cause=cause) for name, cause in _TRIED_HINTS),
        *(
            Setting(name=n, cause=cause, kinds=kinds)
            for n, cause, kinds in _TRIED_FLAGS
        ),
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
