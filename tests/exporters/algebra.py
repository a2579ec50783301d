"""Rewrites of ONNX graphs by exact algebra: other operators, the same outputs.

Each is what an optimiser, a converter or a person does to a file. A name may stand for
another value afterwards: a product without its bias, scores with their factor in them.
Exact here means in real numbers; a sum that is made in another order rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter

import numpy as np
import onnx
from onnx import helper, numpy_helper

Rewrite = Callable[["Graph"], Iterator[None]]
"""Changes a graph; yields once for each place that it found."""

_ELEMENTWISE = ("Sigmoid", "Tanh", "Erf", "Relu", "Sqrt")


class Graph:
    """An ONNX graph, with its weights in it, that is changed in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.graph = model.graph
        del self.graph.value_info[:]  # shapes that held before
        self._count = 0

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes as they are now, to be changed while they are gone over."""
        return list(self.graph.node)

    @property
    def outputs(self) -> set[str]:
        return {value.name for value in self.graph.output}

    def maker(self, value: str) -> onnx.NodeProto | None:
        return next((n for n in self.graph.node if value in n.output), None)

    def readers(self, value: str) -> list[onnx.NodeProto]:
        return [node for node in self.graph.node if value in node.input]

    def constant(self, value: str) -> np.ndarray | None:
        """Return the numbers of an initialiser or of a Constant; None of others."""
        for tensor in self.graph.initializer:
            if tensor.name == value:
                return numpy_helper.to_array(tensor)
        node = self.maker(value)
        if node is not None and node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    return numpy_helper.to_array(attribute.t)
        return None

    def floats(self, value: str) -> np.ndarray | None:
        found = self.constant(value)
        return found if found is not None and found.dtype == np.float32 else None

    def add(self, numbers: np.ndarray, like: str = "rewritten") -> str:
        """Add an initialiser; return its name."""
        self._count += 1
        name = f"{like}/by_algebra_{self._count}"
        self.graph.initializer.append(
            numpy_helper.from_array(np.ascontiguousarray(numbers), name)
        )
        return name

    def put(self, op: str, inputs: list[str], output: str, **attributes: object) -> str:
        """Add a node; `sort` finds its place."""
        node = helper.make_node(op, inputs, [output], name=output, **attributes)
        self.graph.node.append(node)
        return output

    def fresh(self, like: str) -> str:
        self._count += 1
        return f"{like}/by_algebra_{self._count}"

    def split(self, node: onnx.NodeProto, names: tuple[str, ...]) -> tuple[str, str]:
        """Return a node's one constant input among `names` of ops, and the other."""
        if node.op_type not in names or len(node.input) < 2:
            return "", ""
        one, two = node.input[:2]
        if self.floats(two) is not None:
            return two, one
        return (one, two) if self.floats(one) is not None else ("", "")

    def sort(self) -> None:
        """Put the nodes into an order of execution."""
        nodes = self.nodes
        made = {n: at for at, node in enumerate(nodes) for n in node.output if n}
        reads = {
            at: [made[name] for name in node.input if made.get(name, at) != at]
            for at, node in enumerate(nodes)
        }
        order = TopologicalSorter(reads).static_order()
        self.graph.CopyFrom(
            helper.make_graph(
                [nodes[at] for at in order],
                self.graph.name,
                self.graph.input,
                self.graph.output,
                self.graph.initializer,
            )
        )


def _linears(graph: Graph) -> Iterator[tuple[onnx.NodeProto, str, str]]:
    """Yield each addition of a bias to a product: the node, the product, the bias."""
    for node in graph.nodes:
        bias, product = graph.split(node, ("Add",))
        maker = graph.maker(product) if bias else None
        if maker is not None and maker.op_type == "MatMul":
            numbers = graph.floats(bias)
            if numbers is not None and numbers.ndim == 1:
                yield node, product, bias


def bias_moved(graph: Graph) -> Iterator[None]:
    """Add a linear layer's bias after the residual sum that reads it: names stay."""
    for node, product, bias in _linears(graph):
        value = node.output[0]
        readers = graph.readers(value)
        if len(readers) != 1 or readers[0].op_type != "Add" or value in graph.outputs:
            continue
        (total,) = readers
        if total.output[0] in graph.outputs:
            continue
        before = graph.fresh(total.output[0])
        graph.put("Add", [before, bias], total.output[0])
        total.output[0] = before
        graph.graph.node.remove(node)
        _rename_made(graph, product, value)
        yield


def _rename_made(graph: Graph, old: str, new: str) -> None:
    for node in graph.nodes:
        node.output[:] = [new if name == old else name for name in node.output]
        node.input[:] = [new if name == old else name for name in node.input]


def _scores(graph: Graph) -> Iterator[tuple[onnx.NodeProto, str, np.ndarray]]:
    """Yield each product of two activations that one number scales."""
    for node in graph.nodes:
        if node.op_type not in {"Mul", "Div"}:
            continue
        factor, scores = graph.split(node, ("Mul", "Div"))
        numbers = graph.floats(factor) if factor else None
        maker = graph.maker(scores)
        if numbers is None or numbers.size != 1 or maker is None:
            continue
        if node.op_type == "Div" and factor != node.input[1]:
            continue
        one = len(graph.readers(scores)) == 1
        if maker.op_type == "MatMul" and one and graph.floats(maker.input[1]) is None:
            yield node, scores, numbers if node.op_type == "Mul" else 1 / numbers


def factor_into_q(graph: Graph) -> Iterator[None]:
    """Scale q in the place of the scores; the scores keep the name of the product."""
    for node, scores, factor in _scores(graph):
        maker = graph.maker(scores)
        q = graph.fresh(maker.input[0])
        graph.put("Mul", [maker.input[0], graph.add(factor)], q)
        maker.input[0] = q
        _pass_on(node, scores)
        yield


def factor_into_q_weights(graph: Graph) -> Iterator[None]:
    """Scale the weights and the bias that make q; its views and the scores differ."""
    for node, scores, factor in _scores(graph):
        maker = graph.maker(scores)
        value = maker.input[0]
        while (before := graph.maker(value)) is not None and before.op_type in {
            "Transpose",
            "Reshape",
        }:
            if len(graph.readers(value)) != 1:
                break
            value = before.input[0]
        if before is None or len(graph.readers(value)) != 1:
            continue
        bias, product = graph.split(before, ("Add",))
        linear = graph.maker(product) if bias else None
        if linear is None or linear.op_type != "MatMul":
            continue
        weight = graph.floats(linear.input[1])
        if weight is None:
            continue
        linear.input[1] = graph.add(weight * factor)
        at = list(before.input).index(bias)
        before.input[at] = graph.add(graph.floats(bias) * factor)
        _pass_on(node, scores)
        yield


def _pass_on(node: onnx.NodeProto, value: str) -> None:
    """Let a node pass on a value as it is, by its own name."""
    del node.attribute[:]
    node.op_type = "Identity"
    node.input[:] = [value]


def gemm_split(graph: Graph) -> Iterator[None]:
    """Make a product and a sum of each Gemm; the product gets the Gemm's name."""
    for node in graph.nodes:
        flags = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = flags.get("alpha", 1.0) == flags.get("beta", 1.0) == 1.0
        if node.op_type != "Gemm" or not plain or flags.get("transA"):
            continue
        weight = graph.floats(node.input[1])
        value = node.output[0]
        if weight is None or len(node.input) < 3:
            continue
        weight = weight.T if flags.get("transB") else weight
        readers = [] if value in graph.outputs else graph.readers(value)
        summed = graph.fresh(value)
        for reader in readers:
            reader.input[:] = [summed if n == value else n for n in reader.input]
        product, out = (value, summed) if readers else (summed, value)
        graph.put("MatMul", [node.input[0], graph.add(weight)], product)
        graph.put("Add", [product, node.input[2]], out)
        graph.graph.node.remove(node)
        yield


def gemm_made(graph: Graph) -> Iterator[None]:
    """Hold linear layers' weights transposed, and turn them where they are read."""
    for node in graph.nodes:
        weight = graph.floats(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None or weight.ndim != 2:
            continue
        turned = graph.fresh(node.input[1])
        graph.put("Transpose", [graph.add(weight.T)], turned, perm=[1, 0])
        node.input[1] = turned
        yield


def transposes_pushed(graph: Graph) -> Iterator[None]:
    """Add a linear layer's bias behind the change of axes that reads the layer."""
    for node, product, bias in _linears(graph):
        chain, value = [], node.output[0]
        while len(graph.readers(value)) == 1 and graph.readers(value)[0].op_type in {
            "Reshape",
            "Transpose",
        }:
            (reader,) = graph.readers(value)
            chain.append(reader)
            value = reader.output[0]
        turned = [n for n in chain if n.op_type == "Transpose"]
        perm = [list(a.ints) for n in turned for a in n.attribute]
        # [batch, tokens, heads, width] to [batch, heads, tokens, width], and no more.
        if len(chain) != 2 or chain[0].op_type != "Reshape" or perm != [[0, 2, 1, 3]]:
            continue
        shape = graph.constant(chain[0].input[1])
        if shape is None or len(shape) != 4 or min(shape[2:]) < 1:
            continue
        heads = graph.floats(bias).reshape(int(shape[2]), 1, int(shape[3]))
        before = graph.fresh(value)
        chain[1].output[0] = before
        graph.put("Add", [before, graph.add(heads)], value)
        chain[0].input[0] = product
        graph.graph.node.remove(node)
        _rename_made(graph, product, node.output[0])
        yield


def activations_before_transposes(graph: Graph) -> Iterator[None]:
    """Do what is done element by element before a change of axes, not behind it."""
    for node in graph.nodes:
        maker = graph.maker(node.input[0]) if node.input else None
        if maker is None or maker.op_type not in {"Transpose", "Reshape"}:
            continue
        factor, _ = graph.split(node, ("Mul",))
        numbers = graph.floats(factor) if factor else None
        scales = numbers is not None and numbers.size == 1
        if node.op_type not in _ELEMENTWISE and not scales:
            continue
        if len(graph.readers(maker.output[0])) != 1:
            continue
        done = graph.fresh(node.output[0])
        inputs = [maker.input[0], *node.input[1:]]
        graph.put(node.op_type, inputs, done)
        maker.input[0] = done
        _pass_on(node, maker.output[0])
        yield


def identities_inserted(graph: Graph) -> Iterator[None]:
    """Let every value pass through an Identity that has its name."""
    for node in graph.nodes:
        if node.op_type in {"Constant", "Split"} or node.output[0] in graph.outputs:
            continue
        value = node.output[0]
        node.output[0] = graph.fresh(value)
        graph.put("Identity", [node.output[0]], value)
        yield


def norms_folded(graph: Graph) -> Iterator[None]:
    """Multiply a norm's scale and bias into the linear layers that read it."""
    for node in graph.nodes:
        if node.op_type != "LayerNormalization" or len(node.input) < 3:
            continue
        value = node.output[0]
        scale, bias = graph.floats(node.input[1]), graph.floats(node.input[2])
        readers = graph.readers(value)
        if value in graph.outputs or not readers or scale is None or bias is None:
            continue
        if any(
            r.op_type != "MatMul"
            or r.input[0] != value
            or graph.floats(r.input[1]) is None
            for r in readers
        ):
            continue
        node.input[1] = graph.add(np.ones_like(scale))
        node.input[2] = graph.add(np.zeros_like(bias))
        for reader in readers:
            weight = graph.floats(reader.input[1])
            reader.input[1] = graph.add(scale[:, None] * weight)
            product = reader.output[0]
            before = graph.fresh(product)
            reader.output[0] = before
            graph.put("Add", [before, graph.add(bias @ weight)], product)
        yield


def convolutions_scaled(graph: Graph) -> Iterator[None]:
    """Double a convolution that another one reads, and halve the other's weights."""
    for node in graph.nodes:
        value = node.output[0]
        readers = graph.readers(value)
        if node.op_type != "Conv" or len(node.input) < 3 or value in graph.outputs:
            continue
        if not readers or any(
            r.op_type != "Conv" or r.input[0] != value for r in readers
        ):
            continue
        for at in (1, 2):
            node.input[at] = graph.add(graph.floats(node.input[at]) * np.float32(2))
        for reader in readers:
            weight = graph.floats(reader.input[1])
            reader.input[1] = graph.add(weight / np.float32(2))
        yield


def values_scaled_in_attention(graph: Graph) -> Iterator[None]:
    """Double the values that attention mixes, and halve what projects the mixture."""
    for node, product, bias in list(_linears(graph)):
        linear = graph.maker(product)
        weight = graph.floats(linear.input[1])
        path = [node]
        while len(graph.readers(path[-1].output[0])) == 1:
            path.append(graph.readers(path[-1].output[0])[0])
            if path[-1].op_type not in {"Reshape", "Transpose", "MatMul"}:
                break
        last = path[-2] if len(path) > 1 else node
        mixed = [n for n in path if n.op_type == "MatMul"]
        if last.op_type != "MatMul" or len(mixed) != 2 or weight is None:
            continue
        out = graph.floats(last.input[1])
        if out is None:
            continue
        linear.input[1] = graph.add(weight * np.float32(2))
        at = list(node.input).index(bias)
        node.input[at] = graph.add(graph.floats(bias) * np.float32(2))
        last.input[1] = graph.add(out / np.float32(2))
        yield


def initialisers_duplicated(graph: Graph) -> Iterator[None]:
    """Give every reader of a shared tensor a copy of its own."""
    held = {tensor.name: tensor for tensor in graph.graph.initializer}
    copies = []
    for node in graph.nodes:
        for at, name in enumerate(node.input):
            if name in held:
                copy = onnx.TensorProto()
                copy.CopyFrom(held[name])
                copy.name = node.input[at] = graph.fresh(name)
                copies.append(copy)
                yield
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(copies)


def constants_in_nodes(graph: Graph) -> Iterator[None]:
    """Hold every tensor in a Constant node, as some exporters write them."""
    tensors = list(graph.graph.initializer)
    del graph.graph.initializer[:]
    for tensor in tensors:
        name = tensor.name
        node = helper.make_node("Constant", [], [name], name=name, value=tensor)
        graph.graph.node.append(node)
        yield


def projections_joined(graph: Graph) -> Iterator[None]:
    """Multiply once for q, k and v, and split what comes out under their names."""
    by_input: dict[str, list[tuple[onnx.NodeProto, str, str]]] = {}
    for node, product, bias in _linears(graph):
        maker = graph.maker(product)
        if graph.floats(maker.input[1]) is not None:
            by_input.setdefault(maker.input[0], []).append((node, product, bias))
    for value, three in by_input.items():
        if len(three) != 3:
            continue
        weights = [graph.floats(graph.maker(p).input[1]) for _, p, _ in three]
        biases = [graph.floats(bias) for _, _, bias in three]
        product, total = graph.fresh(value), graph.fresh(value)
        joined = graph.add(np.concatenate(weights, 1))
        graph.put("MatMul", [value, joined], product)
        graph.put("Add", [product, graph.add(np.concatenate(biases))], total)
        sizes = graph.add(np.array([w.shape[1] for w in weights], np.int64))
        names = [node.output[0] for node, _, _ in three]
        place = graph.fresh(value)
        split = helper.make_node("Split", [total, sizes], names, name=place, axis=-1)
        graph.graph.node.append(split)
        for node, p, _ in three:
            graph.graph.node.remove(graph.maker(p))
            graph.graph.node.remove(node)
        yield


def reshapes_merged(graph: Graph) -> Iterator[None]:
    """Let who reads a value that was reshaped twice be reshaped once."""
    for node in graph.nodes:
        before = graph.maker(node.input[0]) if node.op_type == "Reshape" else None
        shape = graph.constant(node.input[1]) if before is not None else None
        if before is None or before.op_type != "Reshape" or shape is None:
            continue
        first = graph.constant(before.input[1])
        # A 0 copies an axis of what is before it; that of the batch is the same one.
        if first is None or 0 in shape[1:] or (shape[0] == 0 and first[0] > 0):
            continue
        node.input[0] = before.input[0]
        yield


def sums_turned(graph: Graph) -> Iterator[None]:
    """Exchange the sides of every sum and product of two."""
    for node in graph.nodes:
        if node.op_type in {"Add", "Mul"}:
            node.input[:] = [node.input[1], node.input[0]]
            yield


def notes_dropped(graph: Graph) -> Iterator[None]:
    """Drop what the exporter noted beside its nodes, as many tools do."""
    for node in graph.nodes:
        if node.metadata_props:
            del node.metadata_props[:]
            yield


def names_stripped(graph: Graph) -> Iterator[None]:
    """Call every value and tensor a number; inputs and outputs keep their names."""
    yield from notes_dropped(graph)
    kept = graph.outputs | {value.name for value in graph.graph.input} | {""}
    names: dict[str, str] = {}

    def short(name: str) -> str:
        if name in kept:
            return name
        return names.setdefault(name, f"t{len(names)}")

    for tensor in graph.graph.initializer:
        tensor.name = short(tensor.name)
    for number, node in enumerate(graph.nodes):
        node.name = f"n{number}"
        node.doc_string = ""
        node.input[:] = map(short, node.input)
        node.output[:] = map(short, node.output)
        yield


def stripped_and_moved(graph: Graph) -> Iterator[None]:
    """Strip the names of a graph whose biases were moved and norms folded before."""
    if [*bias_moved(graph), *factor_into_q_weights(graph)]:
        yield from names_stripped(graph)


REWRITES: dict[str, Rewrite] = {
    "bias-moved": bias_moved,
    "factor-into-q": factor_into_q,
    "factor-into-q-weights": factor_into_q_weights,
    "gemm-split": gemm_split,
    "weights-transposed": gemm_made,
    "transposes-pushed": transposes_pushed,
    "activations-before-transposes": activations_before_transposes,
    "identities-inserted": identities_inserted,
    "norms-folded": norms_folded,
    "convolutions-scaled": convolutions_scaled,
    "values-scaled-in-attention": values_scaled_in_attention,
    "initialisers-duplicated": initialisers_duplicated,
    "constants-in-nodes": constants_in_nodes,
    "projections-joined": projections_joined,
    "reshapes-merged": reshapes_merged,
    "sums-turned": sums_turned,
    "notes-dropped": notes_dropped,
    "names-stripped": names_stripped,
    "stripped-and-moved": stripped_and_moved,
}


def rewrite(model: onnx.ModelProto, name: str) -> int:
    """Rewrite a model in place; return how many places were found, 0 for none."""
    graph = Graph(model)
    found = len(list(REWRITES[name](graph)))
    if found:
        graph.sort()
    return found
