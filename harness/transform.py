"""ONNX to ONNX, for the variants that ONNX Runtime is deployed with."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

from harness.errors import StageError
from harness.export_files import MODEL, PROTO_LIMIT_BYTES, WEIGHTS
from harness.outcome import Outcome

KINDS = ("fp16", "int8-weights")

_QUANTIZED = ["MatMul", "Gemm"]
"""Convolutions are left alone: ONNX Runtime's CPU provider has no integer
convolution for signed weights, and deployments keep them in floating point."""


def transform_onnx(source: Path, kind: str, folder: Path) -> None:
    """Write the variant `kind` of the model at `source` to `folder`.

    ``fp16`` converts the graph, inputs and outputs staying float32;
    ``int8-weights`` quantizes matrix products dynamically.

    Raises:
        StageError: The tool left no model that onnx.checker accepts.

    """
    target = folder / MODEL
    external = _weight_bytes(source) > PROTO_LIMIT_BYTES
    logging.getLogger().setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "fp16":
            # Shape inference serialises the whole model, which 2 GiB ends.
            model = convert_float_to_float16(
                onnx.load(source), keep_io_types=True, disable_shape_infer=external
            )
            onnx.save_model(
                model, target, save_as_external_data=external, location=WEIGHTS
            )
        else:
            quantize_dynamic(
                source,
                target,
                op_types_to_quantize=_QUANTIZED,
                weight_type=QuantType.QInt8,
                use_external_data_format=external,
            )
    try:
        onnx.checker.check_model(str(target))
    except (onnx.checker.ValidationError, OSError) as error:
        msg = f"The {kind} variant of {source.name} is no valid ONNX: {error}"
        raise StageError(msg, outcome=Outcome.CONVERT) from error


def _weight_bytes(source: Path) -> int:
    return sum(
        file.stat().st_size for file in source.parent.glob("*") if file.is_file()
    )
