"""Convert ONNX to ONNX, for the variants that ONNX Runtime is deployed with."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from harness.core.case import Component, Variant
from harness.core.contract import breach
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.core.probes import Probe
from harness.engine.export_files import MODEL, PROTO_LIMIT_BYTES
from harness.runtimes.graph.onnx_graph import sides_of
from harness.runtimes.onnxruntime import HALVE, KEEP, SIGNED
from harness.runtimes.onnxruntime.float16 import halve
from harness.runtimes.onnxruntime.layers import in_half, layers_of

if TYPE_CHECKING:
    import numpy as np

_QUANTIZED = ["MatMul", "Gemm"]
"""Convolutions are not quantized: ONNX Runtime's CPU provider has no integer
convolution for signed weights, and deployments keep them in floating point."""

_BITS = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT8: 8,
}
_PER_CHANNEL = "--per-channel"


def convert(
    source: Path,
    variant: Variant,
    folder: Path,
    *,
    component: Component,
    probes: Sequence[Probe],  # noqa: ARG001  # another runtime's messages name modules by them
    native: str | None,  # noqa: ARG001  # there is no other converter
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
) -> dict[str, object]:
    """Write the variant of the model at `source` to `folder`.

    Raises:
        StageError: `transform_onnx` raised it, or the variant's inputs or outputs are
            not those of the component.

    """
    transform_onnx(source, variant.kind, folder, variant.flags, calibration)
    where = f"the graph made {variant.kind}"
    if words := breach(component, None, sides_of(folder / MODEL), where=where):
        raise StageError(words, outcome=Outcome.CONVERT)
    return {"bits": _stored_bits(folder / MODEL)}


def _stored_bits(path: Path) -> dict[str, int]:
    # A bias or a scale is no layer.
    weights = [
        tensor.data_type
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
        if len(tensor.dims) > 1 and tensor.data_type in _BITS
    ]
    found = Counter(_BITS[kind] for kind in weights)
    return {str(bits): found[bits] for bits in sorted(found)}


def transform_onnx(
    source: Path,
    kind: str,
    folder: Path,
    flags: Sequence[str] = (),
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
) -> None:
    """Write the variant `kind` of the model at `source` to `folder`.

    ``fp16`` converts the graph; inputs and outputs stay float32. ``int8-weights``
    quantizes matrix products dynamically. ``int8-static`` quantizes these and
    convolutions with scales that are measured on the inputs of `calibration`, and
    writes QuantizeLinear and DequantizeLinear around them. The flag
    ``--keep=NAME,NAME`` leaves nodes unchanged: operators by type, or nodes by the name
    of a value that they make. With ``--per-channel`` each column of a quantized matrix
    has its own scale. The flag ``--half=NAME,NAME`` of ``int8-weights`` stores the
    weights of matrix products and convolutions in float16, by the name of the value
    that they make; the runtime widens them to float32 and computes in float32. A node
    that both flags name is left unchanged. Integer weights are stored from 0 to 255,
    and with ``--signed`` from -128 to 127.

    Raises:
        StageError: A flag is unknown or names nothing in the graph, or the tool wrote
            no model that onnx.checker accepts.

    """
    target = folder / MODEL
    per_channel, signed = _PER_CHANNEL in flags, SIGNED in flags
    if kind != "fp16":
        flags = [flag for flag in flags if flag not in {_PER_CHANNEL, SIGNED}]
    halved: list[str] = []
    if kind == "int8-weights":
        parts = [f.removeprefix(HALVE) for f in flags if f.startswith(HALVE)]
        halved = [name for part in parts for name in part.split(",")]
        flags = [flag for flag in flags if not flag.startswith(HALVE)]
    kept = list(_kept(onnx.load(source, load_external_data=False).graph, flags))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match kind:
            case "fp16":
                halve(source, folder, kept)
            case "int8-weights" | "int8-static":
                _quantize(
                    source,
                    target,
                    kept,
                    calibration if kind == "int8-static" else None,
                    halved,
                    per_channel=per_channel,
                    signed=signed,
                )
            case _:
                msg = f"ONNX Runtime's converter does not know the variant {kind!r}."
                raise StageError(msg, outcome=Outcome.CONVERT)
    try:
        onnx.checker.check_model(str(target))
    except (onnx.checker.ValidationError, OSError) as error:
        reason = first_line(error)
        msg = f"The {kind} variant of {source.name} is no valid ONNX: {reason}."
        raise StageError(msg, outcome=Outcome.CONVERT, log=str(error)) from error


def _kept(graph: onnx.GraphProto, flags: Sequence[str]) -> Iterator[str]:
    """Yield the names of the nodes that the flags leave unchanged."""
    for flag in flags:
        if not flag.startswith(KEEP):
            msg = (
                f"{flag!r} is no flag of this variant. All take {KEEP}NAME,NAME, "
                "operator types or values to leave as they are; int8-weights and "
                f"int8-static take {_PER_CHANNEL} and {SIGNED}, and int8-weights takes "
                f"{HALVE}NAME,NAME, values whose weights are to be in float16."
            )
            raise StageError(msg, outcome=Outcome.CONVERT)
        for name in flag.removeprefix(KEEP).split(","):
            found, others = [], set()
            for node in graph.node:
                if node.op_type == name or name in node.output:
                    found.append(node)
                else:
                    others.add(node.name)
            if not found:
                msg = f"{flag}: {name!r} is no operator and no value of the graph."
                raise StageError(msg, outcome=Outcome.CONVERT)
            # The tools know nodes by name: one of no name would keep all of no name.
            if alike := [node for node in found if node.name in others]:
                msg = (
                    f"{flag}: the node that makes {alike[0].output[0]!r} has no name "
                    "of its own, by which it could be kept; name the file's nodes."
                )
                raise StageError(msg, outcome=Outcome.CONVERT)
            yield from (node.name for node in found)


def _store_in_half(
    graph: onnx.GraphProto, names: Sequence[str], kept: Sequence[str]
) -> None:
    """Store the weights of layers in float16, and widen them before they are read.

    The tool quantizes constant weights alone, so it leaves these as they are.

    `names` are those of the values that the layers make. Nodes in `kept` stay in
    float32.

    Raises:
        StageError: A name is not that of a value that a layer makes.

    """
    layers = {layer.name: layer.weights for layer in layers_of(graph)}
    if unknown := [name for name in names if name not in layers]:
        msg = (
            f"{HALVE}{unknown[0]}: no MatMul, Gemm or Conv with float32 weights in an "
            "initializer makes this value. A Gemm needs alpha = beta = 1 and no "
            "transA."
        )
        raise StageError(msg, outcome=Outcome.CONVERT)
    stored: set[str] = set()
    for node in list(graph.node):
        name = node.output[0] if node.output else ""
        if name not in names or node.name in kept:
            continue
        tensor, half = layers[name], f"{layers[name].name}_half"
        if half not in stored:
            values = in_half(onnx.numpy_helper.to_array(tensor))
            graph.initializer.append(onnx.numpy_helper.from_array(values, half))
            stored.add(half)
        # Each layer has a Cast of its own: the tool transposes what a Gemm reads, and
        # would name two results alike.
        node.input[1] = f"{name}_weights"
        widen = onnx.helper.make_node(
            "Cast", [half], [node.input[1]], node.input[1], to=onnx.TensorProto.FLOAT
        )
        graph.node.insert(0, widen)
    read = {name for node in graph.node for name in node.input}
    for tensor in [one for one in graph.initializer if one.name not in read]:
        if f"{tensor.name}_half" in stored:
            graph.initializer.remove(tensor)


class _Calibration(CalibrationDataReader):
    """Gives ONNX Runtime's tool one set of inputs after another."""

    def __init__(self, inputs: Sequence[Mapping[str, np.ndarray]]) -> None:
        self._left = iter(inputs)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next set, or None after the last."""
        inputs = next(self._left, None)
        return None if inputs is None else dict(inputs)


def _quantize(
    source: Path,
    target: Path,
    kept: Sequence[str],
    calibration: Sequence[Mapping[str, np.ndarray]] | None,
    halved: Sequence[str],
    *,
    per_channel: bool,
    signed: bool,
) -> None:
    """Quantize a model, with static scales unless `calibration` is None."""
    logging.getLogger().setLevel(logging.ERROR)
    size = sum(one.stat().st_size for one in source.parent.glob("*") if one.is_file())
    settings: dict[str, Any] = {
        "nodes_to_exclude": list(kept),
        "weight_type": QuantType.QInt8,
        "per_channel": per_channel,
        "use_external_data_format": size > PROTO_LIMIT_BYTES,
    }
    if calibration is None:
        model = onnx.load(source)
        _store_in_half(model.graph, halved, kept)
        # The tool transposes weights and leaves their recorded shapes as they were.
        del model.graph.value_info[:]
        # It makes each Gemm a MatMul of that name before it looks for those to exclude.
        settings["nodes_to_exclude"] += [f"{name}_MatMul" for name in kept]
        quantize_dynamic(model, target, op_types_to_quantize=_QUANTIZED, **settings)
        if not signed:
            _make_unsigned(target)
        return
    # ONNX Runtime's kernels for signed weights saturate on a processor without VNNI.
    settings["weight_type"] = QuantType.QInt8 if signed else QuantType.QUInt8
    quantize_static(
        source,
        target,
        _Calibration(calibration),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=[*_QUANTIZED, "Conv"],
        activation_type=QuantType.QUInt8,
        **settings,
    )


def _make_unsigned(path: Path) -> None:
    """Store the weights of integer products from 0 to 255, with a zero of 128.

    The products are the same numbers. ONNX Runtime's kernels for signed weights add
    pairs of products in 16 bits on a processor without VNNI, where they saturate.
    """
    model = onnx.load(path)
    names = {
        name
        for node in model.graph.node
        if node.op_type == "MatMulInteger"
        for name in (node.input[1], *node.input[3:4])
    }
    large = path.with_name(f"{path.name}.data").exists()
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.data_type == onnx.TensorProto.INT8:
            signed = onnx.numpy_helper.to_array(tensor).astype("int16")
            unsigned = (signed + 128).astype("uint8")
            tensor.CopyFrom(onnx.numpy_helper.from_array(unsigned, tensor.name))
    if not large:
        onnx.save(model, path)
        return
    path.with_name(f"{path.name}.data").unlink()
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")
