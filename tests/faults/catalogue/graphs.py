"""Surgery on exported graphs: each change returns the value that it makes wrong."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

Change = Callable[[onnx.ModelProto], str | None]
Numbers = Callable[[np.ndarray], np.ndarray]
Given = ParamSpec("Given")


def maker(model: onnx.ModelProto, value: str) -> onnx.NodeProto:
    """Return the node that makes a value."""
    return next(node for node in model.graph.node if value in node.output)


def weight(model: onnx.ModelProto, name: str) -> np.ndarray:
    """Return an initialiser's numbers, to be changed."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    return numpy_helper.to_array(tensor).copy()


def is_weight(model: onnx.ModelProto, name: str) -> bool:
    """Whether a value is an initialiser."""
    return any(tensor.name == name for tensor in model.graph.initializer)


def constant(model: onnx.ModelProto, name: str, value: np.ndarray) -> str:
    """Add an initialiser of a name that is free; return the name."""
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def change(
    function: Callable[Concatenate[onnx.ModelProto, Given], str | None],
) -> Callable[Given, Change]:
    """Turn a function of a model and more into one of the rest, that gives a change."""

    @wraps(function)
    def planned(*given: Given.args, **named: Given.kwargs) -> Change:
        return lambda model: function(model, *given, **named)

    return planned


@change
def set_attributes(model: onnx.ModelProto, value: str, **attributes: object) -> str:
    """Give the node that makes a value other attributes."""
    node = maker(model, value)
    kept = [a for a in node.attribute if a.name not in attributes]
    made = [helper.make_attribute(*pair) for pair in attributes.items()]
    del node.attribute[:]
    node.attribute.extend((*kept, *made))
    return value


@change
def at(model: onnx.ModelProto, place: str, inner: Change) -> str:
    """Do what shows at another value: inside an operator of several nodes."""
    inner(model)
    return place


@change
def nowhere(model: onnx.ModelProto, inner: Change) -> None:
    """Do what has no one place."""
    inner(model)


@change
def set_input(model: onnx.ModelProto, value: str, index: int, numbers: Numbers) -> str:
    """Give the node that makes a value another constant input; others keep theirs."""
    node = maker(model, value)
    old = weight(model, node.input[index])
    new = np.asarray(numbers(old), old.dtype)
    node.input[index] = constant(model, f"{value}/faulty", new)
    return value


@change
def set_weight(model: onnx.ModelProto, value: str, numbers: Numbers) -> str | None:
    """As `set_input`, of the node's one constant input."""
    inputs = enumerate(maker(model, value).input)
    index = next(place for place, name in inputs if is_weight(model, name))
    return set_input(value, index, numbers)(model)


@change
def reads(model: onnx.ModelProto, value: str, index: int, other: str) -> str:
    """Let the node that makes a value read another one."""
    maker(model, value).input[index] = other
    return value


@change
def swapped(model: onnx.ModelProto, value: str, one: int = 0, two: int = 1) -> str:
    """Let the node that makes a value read two of its inputs in each other's place."""
    inputs = maker(model, value).input
    inputs[one], inputs[two] = inputs[two], inputs[one]
    return value


@change
def outputs_swapped(model: onnx.ModelProto, value: str) -> str:
    """Swap the first two outputs of the node that makes a value."""
    node = maker(model, value)
    node.output[:] = [node.output[1], node.output[0], *node.output[2:]]
    return value


@change
def together(model: onnx.ModelProto, *changes: Change) -> str | None:
    """Do several changes; the last says where it shows."""
    return [inner(model) for inner in changes][-1]


@change
def replaced(model: onnx.ModelProto, value: str, text: str, **given: str) -> str:
    """Make a value by other nodes.

    Args:
        model: The exported graph.
        value: What is made; ``out`` in the text.
        text: The nodes in ONNX's own text form.
        given: Name in the text to the graph's value that it stands for.

    """
    old = maker(model, value)
    place = list(model.graph.node).index(old)
    model.graph.node.remove(old)
    _insert(model, place, text, value, {**given, "out": value})
    return value


@change
def after(model: onnx.ModelProto, value: str, text: str) -> str:
    """Change a value right after it is made: in the text ``right`` becomes ``out``."""
    node = maker(model, value)
    right = f"{value}/right"
    node.output[list(node.output).index(value)] = right
    place = list(model.graph.node).index(node) + 1
    _insert(model, place, text, value, {"right": right, "out": value})
    return value


@change
def shown_as(model: onnx.ModelProto, value: str, text: str) -> str:
    """Show a value in another form.

    In the text ``right`` becomes ``out``, under the value's name, and ``back`` is read.
    """
    for node in model.graph.node:
        node.input[:] = [
            f"{value}/back" if name == value else name for name in node.input
        ]
    return after(value, text)(model) or value


@change
def left_out(model: onnx.ModelProto, value: str, of: int = 0) -> str:
    """Take the node that makes a value away; its readers read one of its inputs."""
    node = maker(model, value)
    model.graph.node.remove(node)
    readers = [reader for reader in model.graph.node if value in reader.input]
    for reader in readers:
        reader.input[:] = [
            node.input[of] if name == value else name for name in reader.input
        ]
    return readers[0].output[0]


@change
def before(model: onnx.ModelProto, value: str, text: str, index: int = 0) -> str:
    """Change what the node that makes a value reads: ``given`` becomes ``out``."""
    node = maker(model, value)
    given, fed = node.input[index], f"{value}/fed"
    node.input[index] = fed
    place = list(model.graph.node).index(node)
    _insert(model, place, text, value, {"given": given, "out": fed})
    return value


def _insert(
    model: onnx.ModelProto, place: int, text: str, value: str, names: Mapping[str, str]
) -> None:
    nodes = parser.parse_graph(f"g () => () {{ {text} }}").node
    inner = {name for node in nodes for name in node.output}
    full = {name: f"{value}/{name}" for name in inner} | dict(names)
    for number, node in enumerate(nodes):
        for side in (node.input, node.output):
            side[:] = [full.get(name, name) for name in side]
        model.graph.node.insert(place + number, node)
