"""Read an exported graph: each value's origin, and the values that repeat others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from harness.core.contract import Sides
from harness.core.onnx_ports import port_of
from harness.core.probes import Probe
from harness.measure.align import Axes, GraphValue, wanted_values

if TYPE_CHECKING:
    import numpy as np

_NEUTRAL = {"Div": 1, "Mul": 1, "Add": 0, "Sub": 0}
_EITHER_SIDE = ("Mul", "Add")
_SIZES = ("Shape", "Size")
_MOVING = frozenset(
    {
        *("Cast", "CastLike", "Concat", "Constant", "ConstantOfShape", "DepthToSpace"),
        *("Expand", "Flatten", "Gather", "Identity", "Pad", "Range", "Reshape"),
        *("Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
    }
)
_FLOATING = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.BFLOAT16,
}


UNSORTED = "must be topologically sorted"
"""What onnx.checker says of nodes that stand before those whose values they read."""


def in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes so that each comes after those whose values it reads.

    ONNX asks for such an order, and ONNX Runtime's tool for float16 leaves its casts at
    the end. Nodes that are in order stay in theirs.
    """
    made = {name for node in graph.node for name in node.output}
    ready: set[str] = set()
    waiting, found = list(graph.node), []
    while waiting:
        later = []
        for node in waiting:
            if any(name in made and name not in ready for name in read_by(node)):
                later.append(node)
                continue
            ready.update(node.output)
            found.append(node)
        if len(later) == len(waiting):  # a cycle, which runtimes refuse
            return [*found, *later]
        waiting = later
    return found


def graph_values(
    path: Path, origin_of: Callable[[onnx.NodeProto], str]
) -> list[GraphValue]:
    """Return every value that the graph's nodes make, in order.

    `origin_of` returns the program's value or module for which a node was made.
    """
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    outputs = {value.name for value in graph.output}
    users: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(origin_of(node))
    types = types_of(model)
    depends = {value.name for value in graph.input}
    constants = small_constants(graph, 1)
    scalars = {n: float(one.item()) for n, one in constants.items() if not one.ndim}
    shapes = _shapes_of(graph)
    turned: set[str] = set()
    repeats: dict[str, str] = {}
    origins: dict[str, str] = {}
    nodes = in_order(graph)
    for node in nodes:
        origins.update(dict.fromkeys(node.output, origin_of(node)))
        if node.op_type == "Cast" and types.get(node.input[0]) == types.get(
            node.output[0], 0
        ):
            # A cast to the same dtype is no module's result, since PyTorch returns the
            # tensor itself. So it has the owner of the value before it.
            origins[node.output[0]] = origins.get(node.input[0], "")
            repeats[node.output[0]] = repeats.get(node.input[0], node.input[0])
        nested = any(a.HasField("g") for a in node.attribute)
        reads = nested or any(name in depends for name in node.input)
        # A size decides shapes, not numbers: a value that depends on sizes alone is
        # constant.
        if reads and node.op_type not in _SIZES:
            depends.update(node.output)
            if node.op_type == "Transpose":
                turned.add(origins[node.output[0]])
        if before := _unchanged(node, scalars):
            repeats[node.output[0]] = repeats.get(before, before)
    return [
        GraphValue(
            name=name,
            origin=origins[name],
            used_by=tuple(users.get(name, ())),
            is_output=name in outputs,
            is_constant=name not in depends,
            repeats=repeats.get(name, ""),
            shape=shapes.get(name),
            is_turned=origins[name] in turned and node.op_type != "Transpose",
        )
        for node in nodes
        for name in node.output
        if name
    ]


def _shapes_of(graph: onnx.GraphProto) -> dict[str, Axes]:
    """Return the axes of each value whose shape the file states."""
    return {
        value.name: tuple(
            axis.dim_value if axis.HasField("dim_value") else None
            for axis in value.type.tensor_type.shape.dim
        )
        for value in (*graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def read_into(path: Path) -> dict[str, list[str]]:
    """Return each value of a graph to the values that are computed from its numbers."""
    found: dict[str, list[str]] = {}
    for node in onnx.load(path, load_external_data=False).graph.node:
        if node.op_type not in _SIZES:
            for name in read_by(node):
                found.setdefault(name, []).extend(node.output)
    return found


def computing_nodes(path: Path) -> int:
    """Return the number of nodes that compute numbers, and do not only move them."""
    model = onnx.load(path, load_external_data=False)
    depends = {value.name for value in model.graph.input}
    count = 0
    for node in model.graph.node:
        reads = not depends.isdisjoint(read_by(node)) and node.op_type not in _SIZES
        if reads:
            depends.update(node.output)
        count += reads and node.op_type not in _MOVING
    return count


def read_by(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, or the nodes of graphs inside it."""
    inner = (
        name
        for attribute in node.attribute
        for graph in (attribute.g, *attribute.graphs)
        for one in graph.node
        for name in read_by(one)
    )
    return list(dict.fromkeys((*node.input, *inner)))


def makers_of(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return each value that a graph computes to the node that makes it."""
    return {name: node for node in graph.node for name in node.output}


def known_as(
    graph: onnx.GraphProto, names: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what a variant can keep in a graph: operators, and values that nodes make.

    The result gives their names in the graph. `names` leads to these from the names
    that the values had before; without it they are the same.
    """
    made = set(makers_of(graph))
    names = {name: name for name in made} if names is None else names
    values = {old: new for old, new in names.items() if new in made}
    return values | {node.op_type: node.op_type for node in graph.node}


def nodes_between(
    makers: Mapping[str, onnx.NodeProto], value: str, ends: Collection[str]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that make a value; the search stops at the values in `ends`."""
    waiting, seen = [value], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers or (name in ends and name != value):
            continue
        seen.add(name)
        yield makers[name]
        waiting += read_by(makers[name])


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """Return the element type of each value where it can be inferred."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = (*graph.input, *graph.value_info, *graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in known}


def exact_nodes(model: onnx.ModelProto) -> set[str]:
    """Return the names of the nodes that are known to make no floating-point value."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    # After a rewrite to float16 they can still say float32, and inference refuses that.
    del bare.graph.value_info[:]
    types = types_of(bare)
    return {
        node.name
        for node in model.graph.node
        if node.name and _FLOATING.isdisjoint(types.get(n, 1) for n in node.output if n)
    }


def names_of_nodes(path: Path) -> tuple[set[str], set[str]]:
    """Return the names of a file's `exact_nodes`, and those of all its nodes."""
    model = onnx.load(path, load_external_data=False)
    return exact_nodes(model), {node.name for node in model.graph.node}


def sides_of(path: Path) -> Sides:
    """Return a graph's inputs as its file states them, and its outputs as inferred.

    The file states the output sizes that the exporter was asked for. So the sizes are
    inferred from the operators instead.
    """
    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(model).graph
    return Sides(
        inputs=tuple(map(port_of, graph.input)),
        outputs=tuple(map(port_of, graph.output)),
    )


def unread_inputs(path: Path) -> list[str]:
    """Return the inputs that no output's numbers depend on."""
    graph = onnx.load(path, load_external_data=False).graph
    needed = {value.name for value in graph.output}
    for node in reversed(in_order(graph)):
        if node.op_type not in _SIZES and not needed.isdisjoint(node.output):
            needed.update(read_by(node))
    return [value.name for value in graph.input if value.name not in needed]


def program_value(node: onnx.NodeProto) -> str:
    """Return the program's value that the dynamo exporter made a node for."""
    return _note(node, "fx_node").partition(" ")[0].strip("%")


def made_in(node: onnx.NodeProto) -> str:
    """Return the path of the module that the dynamo exporter made a node in."""
    scopes = _note(node, "name_scopes").strip("[]").replace("'", "").split(", ")
    return scopes[-2] if len(scopes) > 1 else ""


def _note(node: onnx.NodeProto, about: str) -> str:
    """Return what the dynamo exporter wrote beside a node; empty if nothing."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    return notes.get(f"pkg.torch.onnx.{about}", "")


def module_scope(node: onnx.NodeProto) -> str:
    """Return ``mid_block/conv`` of the TorchScript node ``/mid_block/conv/Conv``."""
    return node.name.rpartition("/")[0].strip("/")


def origin_of(nodes: Sequence[onnx.NodeProto], probes: Sequence[Probe]) -> str:
    """Return where the first of some nodes comes from, and how many there are.

    Without probes of the same graph, the nodes' own metadata is used.
    """
    if not nodes:
        return ""
    value, made = program_value(nodes[0]), set(nodes[0].output)
    probe = next((p for p in probes if p.name == value or p.onnx in made), None)
    where = (probe and probe.module) or made_in(nodes[0]) or nodes[0].name
    called = filter(None, (probe.op, probe.source)) if probe else ()
    what = f" ({', '.join(called)})" if probe else ""
    count = f"{len(nodes)} places" if len(nodes) > 1 else "one place"
    return f"It comes from {where or nodes[0].output[0]}{what}, {count}."


def _unchanged(node: onnx.NodeProto, scalars: dict[str, float]) -> str:
    """Return the value that a node passes on unchanged; empty if there is none."""
    if node.op_type == "Identity":
        return node.input[0]
    neutral = _NEUTRAL.get(node.op_type)
    if neutral is None:
        return ""
    one, two = node.input
    if scalars.get(two) == neutral:
        return one
    return two if node.op_type in _EITHER_SIDE and scalars.get(one) == neutral else ""


def tensors_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return a graph's initialisers and the values of its Constant nodes, by name."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    return tensors


def declared(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    """Return the declaration of a graph's input or output of an array's shape."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, array.shape)


def small_constants(graph: onnx.GraphProto, most: int) -> dict[str, np.ndarray]:
    """Return the constants of at most `most` elements that are in the graph's file."""
    return {
        name: onnx.numpy_helper.to_array(tensor)
        for name, tensor in tensors_of(graph).items()
        if tensor.data_location != onnx.TensorProto.EXTERNAL
        and tensor.data_type != onnx.TensorProto.STRING
        and prod(tensor.dims) <= most
    }


def value_names(probes: Sequence[Probe]) -> dict[str, str]:
    """Return each probe's name to the exported value that carries it."""
    return {probe.name: value for value, probe in wanted_values(probes).items()}


def nodes_of(
    probe: Probe, makers: Mapping[str, onnx.NodeProto], values: Mapping[str, str]
) -> list[onnx.NodeProto]:
    """Return the nodes between a probe's value and its parents', the last first.

    `values` is what `value_names` returns. In a foreign file a parent may have no
    value. Then every value with a name ends the search, and so does a node that was
    made for another value of the program, or behind which another operator begins.
    """
    start = values.get(probe.name, "")
    if not start:
        return []
    if all(name in values for name in probe.parents):
        ends = {values[name] for name in probe.parents}
        # A module's probe has no parents: then any value with a name ends the search.
        return list(nodes_between(makers, start, ends or set(values.values())))
    found = {n.output[0]: n for n in _near(makers, start, set(values.values()))}
    return [node for name, node in reversed(list(makers.items())) if name in found]


def _near(
    makers: Mapping[str, onnx.NodeProto], start: str, ends: Collection[str]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that make a value, as far as they are of one operator."""
    waiting, seen = [start], {""}
    noted = program_value(makers[start]) if start in makers else ""
    while waiting:
        name = waiting.pop()
        if name in seen or name not in makers or (name in ends and name != start):
            continue
        seen.add(name)
        node = makers[name]
        if noted and program_value(node) not in {"", noted}:
            continue
        yield node
        if noted or node.op_type not in _WHOLE_OPERATORS:
            waiting.extend(read_by(node))


_WHOLE_OPERATORS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Gather", "Resize"),
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
    *("BatchNormalization", "RMSNormalization", "Softmax", "LogSoftmax", "CumSum"),
    *("AveragePool", "MaxPool", "GlobalAveragePool", "GRU", "LSTM", "TopK"),
    *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"),
    *("LeakyRelu", "Elu", "Celu", "Gelu", "HardSigmoid", "HardSwish", "Clip"),
)
"""Operators behind which another operator of PyTorch's begins."""
