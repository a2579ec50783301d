"""Convert a graph to float16; weights in a file beside it are converted one at a time.

The tool that converts a graph needs all of it in memory, several times over; a network
of 10 GB then takes 47. So weights in a separate file stay there: the tool gets them as
empty tensors, and their new type tells which are to be converted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data, uses_external_data
from onnxruntime.transformers.float16 import (
    DEFAULT_OP_BLOCK_LIST,
    convert_float_to_float16,
    convert_np_to_float16,
)
from onnxruntime.transformers.onnx_model import OnnxModel

from harness.engine.export_files import MODEL, WEIGHTS

Aside = dict[str, onnx.TensorProto]
"""Name of each weight in a separate file, to the tensor that says where it is."""


def halve(source: Path, folder: Path, kept: Sequence[str]) -> None:
    """Write the model at `source` in float16 to `folder`, inputs and outputs float32.

    Nodes in `kept` stay in float32. Weights in files beside `source` are written to one
    file beside the model.
    """
    logging.getLogger().setLevel(logging.ERROR)
    model = onnx.load(source, load_external_data=False)
    model = onnx.shape_inference.infer_shapes(model)
    aside = _set_aside(model.graph)
    halved = convert_float_to_float16(
        model,
        keep_io_types=True,
        disable_shape_infer=True,  # done above, when weights still had their shapes
        op_block_list=DEFAULT_OP_BLOCK_LIST,
        node_block_list=list(kept),
    )
    _drop_repeated_casts(halved.graph)
    if kept:
        _join_kept(halved.graph, kept)
    sorted_ = OnnxModel(halved)
    sorted_.topological_sort()  # the tool puts its casts after all other nodes
    if aside:
        _bring_back(sorted_.model.graph, aside, source.parent, folder)
    onnx.save_model(sorted_.model, folder / MODEL)


def _set_aside(graph: onnx.GraphProto) -> Aside:
    """Empty the weights that are in separate files, and return them as they were."""
    aside: Aside = {}
    for tensor in graph.initializer:
        if uses_external_data(tensor):
            aside[tensor.name] = onnx.TensorProto()
            aside[tensor.name].CopyFrom(tensor)
            tensor.dims[:] = [0]
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.raw_data = b""
    return aside


def _bring_back(
    graph: onnx.GraphProto, aside: Aside, source: Path, folder: Path
) -> None:
    """Write the weights that were set aside, in the types that the graph now has."""
    # Where the tool cast a weight for one reader, it recorded the empty shape.
    casts = {f"{name}_cast_to_fp32" for name in aside}
    for value in [value for value in graph.value_info if value.name in casts]:
        graph.value_info.remove(value)
    with (folder / WEIGHTS).open("wb") as file:
        for tensor in graph.initializer:
            was = aside.pop(tensor.name, None)
            if was is None:
                continue
            data = onnx.numpy_helper.to_array(was, base_dir=str(source))
            if tensor.data_type != was.data_type:
                data = convert_np_to_float16(data)
            place = file.tell()
            data.tofile(file)
            tensor.dims[:] = was.dims
            set_external_data(tensor, WEIGHTS, offset=place, length=data.nbytes)
            tensor.ClearField("raw_data")


def _drop_repeated_casts(graph: onnx.GraphProto) -> None:
    """Keep one of the equal casts that the tool makes for each reader of a value."""
    made: dict[str, onnx.NodeProto] = {}
    for node in list(graph.node):
        twin = made.setdefault(node.output[0], node)
        same = (twin.op_type, twin.input) == ("Cast", node.input)
        if twin is not node and same:
            graph.node.remove(node)


def _join_kept(graph: onnx.GraphProto, kept: Sequence[str]) -> None:
    """Pass values from one kept node to the next in float32, not through float16.

    The tool casts the values of every kept node, even where another kept node reads
    them.
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
    """Return the type to which a Cast converts; 0 for another operator."""
    is_cast = node.op_type == "Cast"
    return int(onnx.helper.get_node_attr_value(node, "to")) if is_cast else 0
