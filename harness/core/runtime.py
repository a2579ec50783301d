"""Words of the runtimes: what they print, what they can leave out. Imports none."""

from __future__ import annotations

import re
from importlib.util import find_spec

from harness.core.case import Case
from harness.core.pipeline import Chain

MODULES = {"onnxruntime": "onnxruntime", "mnn": "MNN"}
"""Backend to the module that it needs."""

DISTRIBUTIONS = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime"),
    "mnn": ("MNN",),
}
"""Packages that bring each runtime; any one will do."""

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

OPTIMISERS = (
    *("AttentionFusion", "BiasGeluFusion", "BiasSkipLayerNormFusion"),
    *("BiasSoftmaxFusion", "ConstantFolding", "ConvActivationFusion"),
    *("ConvAddActivationFusion", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion"),
    *(
        "DivMulFusion",
        "FastGeluFusion",
        "GeluFusionL1",
        "GeluFusionL2",
        "GemmActivationFusion",
    ),
    *("GemmSumFusion", "GemmTransposeFusion", "LayerNormFusionL1"),
    *("LayerNormFusionL2", "MatMulActivationFusion", "MatMulAddFusion"),
    *("MatMulScaleFusion", "MatmulTransposeFusion", "NchwcTransformer"),
    *("NhwcTransformer", "QuickGeluFusion", "SimplifiedLayerNormFusion"),
    *("SkipLayerNormFusion", "TransposeOptimizer"),
)
"""Rewrites that touch arithmetic; a hint of this name and value 0 leaves one out."""

_OTHER_DEVICE = {
    "onnxruntime": re.compile(r".*Failed to create CUDAExecutionProvider.*"),
    "mnn": re.compile(r".*Can't Find type=\d+ backend, use \d+ instead.*"),
}
_NO_FLOAT16 = re.compile(r"The device supports:.*fp16:0.*")


def fallback(backend: str, precision: str, log: str) -> str:
    """Return the runtime's own line about another device or precision, or nothing.

    >>> fallback("mnn", "low", "The device supports: i8sdot:0, fp16:0, i8mm: 0")
    'The device supports: i8sdot:0, fp16:0, i8mm: 0'
    """
    found = _OTHER_DEVICE[backend].search(log)
    if not found and backend == "mnn" and precision == "low":
        # It computes in float32 then, bit for bit as with high precision.
        found = _NO_FLOAT16.search(log)
    return found.group().strip() if found else ""


def missing(case: Case | Chain) -> tuple[str, ...]:
    """Return the runtimes of a case that are not installed here."""
    return tuple(name for name in case.runtimes if find_spec(MODULES[name]) is None)
