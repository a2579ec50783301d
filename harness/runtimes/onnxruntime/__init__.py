"""The declaration of ONNX Runtime, beside its conversion, sessions and messages."""

from __future__ import annotations

from dataclasses import replace

from harness.core.case import ONNX
from harness.core.runtime import EXACT, BuiltIn, Cost, Mixed, Runtime, Setting
from harness.runtimes.onnxruntime.providers import PROVIDERS

OPTIMISERS = (
    *("AttentionFusion", "BiasGeluFusion", "BiasSkipLayerNormFusion"),
    *("BiasSoftmaxFusion", "ConstantFolding", "ConvActivationFusion"),
    *("ConvAddActivationFusion", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion"),
    *("DivMulFusion", "FastGeluFusion", "GeluFusionL1", "GeluFusionL2"),
    *("GemmActivationFusion", "GemmSumFusion", "GemmTransposeFusion"),
    *("LayerNormFusionL1", "LayerNormFusionL2", "MatMulActivationFusion"),
    *("MatMulAddFusion", "MatMulScaleFusion", "MatmulTransposeFusion"),
    *("NchwcTransformer", "NhwcTransformer", "QuickGeluFusion"),
    *("SimplifiedLayerNormFusion", "SkipLayerNormFusion", "TransposeOptimizer"),
)
"""Rewrites that change arithmetic; a hint of this name with value 0 disables one."""

KEEP = "--keep="
"""Flag with the nodes that a conversion leaves in float32."""
HALVE = "--half="
"""Flag of ``int8-weights`` with the layers whose weights it stores in float16."""
SIGNED = "--signed"
"""Flag of ``int8-weights`` and ``int8-static`` that stores weights from -128 to 127."""

_RUN = Cost(
    words="running {component} in ONNX Runtime",
    base=350,
    copies=1.4,
)

RUNTIME = Runtime(
    name="onnxruntime",
    is_first=True,
    title="ONNX Runtime",
    package=__name__,
    driver=f"{__name__}.driver",
    module="onnxruntime",
    distributions=("onnxruntime-gpu", "onnxruntime"),
    order=0,
    model="model.onnx",
    weights=("weights.pb",),
    devices=tuple(PROVIDERS),
    other_devices=r"\w+ExecutionProvider",
    tf32=True,
    variants={
        EXACT: BuiltIn(tier="standard"),
        "fp16": BuiltIn(
            tier="relaxed",
            risk="half the size; numbers beyond 65504 overflow, small ones vanish",
            blames="arithmetic in float16",
            # The processor computes in float32, so memory holds weights in both dtypes.
            run=replace(_RUN, copies=2.3),
            # Weights in a file beside the graph are converted one at a time.
            make=Cost(
                words="halving {component}'s weights for ONNX Runtime",
                base=400,
                copies=0.3,
            ),
            half=True,
        ),
        "int8-weights": BuiltIn(
            tier="quantized",
            bits=8,
            risk="a quarter; an outlier takes the digits of its whole tensor",
            blames="weights in int8",
            run=replace(_RUN, copies=2.2),
        ),
        "int8-static": BuiltIn(
            tier="quantized",
            risk="activations in 8 bits: what calibration did not see saturates",
            blames="weights and activations in int8",
            run=replace(_RUN, copies=2.2),
            calibrated=True,
        ),
    },
    as_exported=(EXACT,),
    run=_RUN,
    make=Cost(words="rewriting {component} for ONNX Runtime", base=400, copies=5.0),
    session_times=1.5,
    reads=ONNX,
    settings=(
        Setting(
            name="optimization",
            value=0,
            cause="a rewrite of ONNX Runtime's optimiser",
            finer=tuple(
                Setting(name=name, value=0, cause=f"ONNX Runtime's rewrite {name}")
                for name in OPTIMISERS
            ),
        ),
    ),
    keep=KEEP,
    # A file of ``fp16`` computes everything else in float16 as well, so its layers do
    # not mix with integers. A plan stores weights in float16 and computes in float32.
    mixed=Mixed(
        bits=(32, 16, 8),
        variants={"int8-weights": 8},
        origin="int8-weights",
        rounds_inputs=True,
        fast=(SIGNED,),
        module=f"{__name__}.layers",
    ),
    falls_back={"": r".*Failed to create \w+ExecutionProvider.*"},
    preload=("harness.runtimes.onnxruntime.convert",),
)
