"""ONNX Runtime: its declaration; beside it conversion, sessions and their messages."""

from __future__ import annotations

from dataclasses import replace

from harness.core.runtime import EXACT, ONNX, BuiltIn, Cost, Runtime, Setting

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
"""Rewrites that touch arithmetic; a hint of this name and value 0 leaves one out."""

_RUN = Cost(
    words="running {component} in ONNX Runtime",
    base=350,
    copies=1.3,
    live=16,
    scores=4,
)

RUNTIME = Runtime(
    name="onnxruntime",
    is_first=True,
    title="ONNX Runtime",
    package=__name__,
    module="onnxruntime",
    distributions=("onnxruntime-gpu", "onnxruntime"),
    order=0,
    model="model.onnx",
    weights=("weights.pb",),
    devices=("cpu", "cuda"),
    tf32=True,
    variants={
        EXACT: BuiltIn(tier="standard"),
        "fp16": BuiltIn(
            tier="relaxed",
            risk="half the size; numbers beyond 65504 overflow, small ones vanish",
            blames="arithmetic in float16",
            # The processor computes in float32: halves are widened beside themselves.
            run=replace(_RUN, copies=2.2),
            # One weight at a time, if they lie beside the graph.
            make=Cost(
                words="halving {component}'s weights for ONNX Runtime",
                base=400,
                copies=0.3,
            ),
            half=True,
        ),
        "int8-weights": BuiltIn(
            tier="quantized",
            risk="a quarter; an outlier takes the digits of its whole tensor",
            blames="weights in int8",
            run=replace(_RUN, copies=2.1),
        ),
    },
    as_exported=(EXACT,),
    run=_RUN,
    make=Cost(words="rewriting {component} for ONNX Runtime", base=400, copies=5.0),
    session_times=1.5,
    inline_twice=True,
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
    keep="--keep=",
    falls_back={"": r".*Failed to create CUDAExecutionProvider.*"},
    preload=("harness.runtimes.onnxruntime.convert",),
)
