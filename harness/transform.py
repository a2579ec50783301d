"""ONNX to ONNX, for the variants that ONNX Runtime is deployed with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import (
    DEFAULT_OP_BLOCK_LIST,
    convert_float_to_float16,
)
from onnxruntime.transformers.onnx_model import OnnxModel

from harness.errors import StageError
from harness.export_files import MODEL, PROTO_LIMIT_BYTES, WEIGHTS
from harness.outcome import Outcome

KINDS = ("fp16", "int8-weights")

_QUANTIZED = ["MatMul", "Gemm"]
"""Convolutions are left alone: ONNX Runtime's CPU provider has no integer
convolution for signed weights, and deployments keep them in floating point."""

_KEEP = "--keep="
_PER_CHANNEL = "--per-channel"


def transform_onnx(
    source: Path, kind: str, folder: Path, flags: Sequence[str] = ()
) -> None:
    """Write the variant `kind` of the model at `source` to `folder`.

    ``fp16`` converts the graph, inputs and outputs staying float32;
    ``int8-weights`` quantizes matrix products dynamically. The flag
    ``--keep=NAME,NAME`` leaves nodes as they are: operators by type, or nodes by the
    name of a value that they make. With ``--per-channel`` each column of a quantized
    matrix has a scale of its own.

    Raises:
        StageError: A flag is unknown or names nothing in the graph, or the tool left
            no model that onnx.checker accepts.

    """
    target = folder / MODEL
    external = _weight_bytes(source) > PROTO_LIMIT_BYTES
    per_channel = kind != "fp16" and _PER_CHANNEL in flags
    if per_channel:
        flags = [flag for flag in flags if flag != _PER_CHANNEL]
    logging.getLogger().setLevel(logging.ERROR)
    model = onnx.load(source)
    kept = list(_kept(model.graph, flags))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "fp16":
            _halve(model, target, kept, external=external)
        else:
            _quantize(model, target, kept, external=external, per_channel=per_channel)
    try:
        onnx.checker.check_model(str(target))
    except (onnx.checker.ValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        msg = f"The {kind} variant of {source.name} is no valid ONNX: {reason}"
        raise StageError(msg, outcome=Outcome.CONVERT, log=str(error)) from error


def _kept(graph: onnx.GraphProto, flags: Sequence[str]) -> Iterator[str]:
    """Yield the names of the nodes that the flags keep as they are."""
    for flag in flags:
        if not flag.startswith(_KEEP):
            msg = (
                f"onnxruntime's variants take no flag {flag!r}; the one there is reads "
                f"{_KEEP}NAME,NAME, operator types or values to leave as they are. Of "
                f"int8-weights there is {_PER_CHANNEL} too."
            )
            raise StageError(msg, outcome=Outcome.CONVERT)
        for name in flag.removeprefix(_KEEP).split(","):
            found = [
                node
                for node in graph.node
                if node.op_type == name or name in node.output
            ]
            if not found:
                msg = f"{flag}: {name!r} is no operator and no value of the graph."
                raise StageError(msg, outcome=Outcome.CONVERT)
            yield from (node.name for node in found)


def _halve(
    model: onnx.ModelProto, target: Path, kept: Sequence[str], *, external: bool
) -> None:
    # Shape inference serialises the whole model, which 2 GiB ends.
    halved = convert_float_to_float16(
        model,
        keep_io_types=True,
        disable_shape_infer=external,
        op_block_list=DEFAULT_OP_BLOCK_LIST,
        node_block_list=list(kept),
    )
    _drop_repeated_casts(halved.graph)
    if kept:
        _join_kept(halved.graph, kept)
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


def _join_kept(graph: onnx.GraphProto, kept: Sequence[str]) -> None:
    """Hand values from one kept node to the next in float32, not through float16.

    The tool casts what every kept node makes, even where another kept one reads it.
    """
    exact = {name for node in graph.node if node.name in kept for name in node.output}
    types = {name: _cast_to(node) for node in graph.node for name in node.output}
    made_from = {
        name: node.input[0]
        for node in graph.node
        for name in node.output
        if node.op_type == "Cast"
    }
    for node in graph.node:
        for place, name in enumerate(node.input):
            before = made_from.get(name, "")
            through = (types.get(before), types.get(name))
            halved = through == (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)
            if halved and made_from[before] in exact:
                node.input[place] = made_from[before]


def _cast_to(node: onnx.NodeProto) -> int:
    """Return the type that a Cast makes, 0 for another operator."""
    if node.op_type != "Cast":
        return 0
    return int(onnx.helper.get_node_attr_value(node, "to"))


def _quantize(
    model: onnx.ModelProto,
    target: Path,
    kept: Sequence[str],
    *,
    external: bool,
    per_channel: bool,
) -> None:
    # The tool transposes weights and leaves their recorded shapes as they were.
    del model.graph.value_info[:]
    quantize_dynamic(
        model,
        target,
        op_types_to_quantize=_QUANTIZED,
        nodes_to_exclude=list(kept),
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
        use_external_data_format=external,
    )


def _weight_bytes(source: Path) -> int:
    return sum(
        file.stat().st_size for file in source.parent.glob("*") if file.is_file()
    )
