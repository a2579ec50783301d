"""ONNX to ONNX, for the variants that ONNX Runtime is deployed with."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

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
    transform = _halve if kind == "fp16" else _quantize
    logging.getLogger().setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transform(onnx.load(source), target, external=external)
    try:
        onnx.checker.check_model(str(target))
    except (onnx.checker.ValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        msg = f"The {kind} variant of {source.name} is no valid ONNX: {reason}"
        raise StageError(msg, outcome=Outcome.CONVERT, log=str(error)) from error


def _halve(model: onnx.ModelProto, target: Path, *, external: bool) -> None:
    # Shape inference serialises the whole model, which 2 GiB ends.
    halved = convert_float_to_float16(
        model, keep_io_types=True, disable_shape_infer=external
    )
    _drop_repeated_casts(halved.graph)
    sorted_ = OnnxModel(halved)
    sorted_.topological_sort()  # the tool puts its casts behind all other nodes
    onnx.save_model(
        sorted_.model,
        target,
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=WEIGHTS,
    )


def _drop_repeated_casts(graph: onnx.GraphProto) -> None:
    """Keep one of the equal casts that the tool makes for each reader of a value."""
    made: dict[str, onnx.NodeProto] = {}
    for node in list(graph.node):
        twin = made.setdefault(node.output[0], node)
        if twin is not node and (twin.op_type, twin.input) == ("Cast", node.input):
            graph.node.remove(node)


def _quantize(model: onnx.ModelProto, target: Path, *, external: bool) -> None:
    # The tool transposes weights and leaves their recorded shapes as they were.
    del model.graph.value_info[:]
    quantize_dynamic(
        model,
        target,
        op_types_to_quantize=_QUANTIZED,
        weight_type=QuantType.QInt8,
        use_external_data_format=external,
    )


def _weight_bytes(source: Path) -> int:
    return sum(
        file.stat().st_size for file in source.parent.glob("*") if file.is_file()
    )
