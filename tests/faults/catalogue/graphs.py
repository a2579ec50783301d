"""Surgery on exported graphs: each change returns the value that it makes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

Change = Callable[[onnx.ModelProto], str | None]
Numbers = Callable[[np.ndarray], np.ndarray]


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


def set_attributes(value: str, **attributes: object) -> Change:
    """Give the node that makes a value other attributes."""
    return partial(_set_attributes, value=value, attributes=attributes)


def _set_attributes(
    model: onnx.ModelProto, *, value: str, attributes: dict[str, object]
) -> str:
    node = maker(model, value)
    kept = [a for a in node.attribute if a.name not in attributes]
    made = [helper.make_attribute(*pair) for pair in attributes.items()]
    del node.attribute[:]
    node.attribute.extend((*kept, *made))
    return value


def at(place: str, change: Change) -> Change:
    """Do what shows at another value: inside an operator of several nodes."""
    return partial(_at, place=place, change=change)


def _at(model: onnx.ModelProto, *, place: str, change: Change) -> str:
    change(model)
    return place


def nowhere(change: Change) -> Change:
    """Do what has no one place."""
    return partial(_nowhere, change=change)


def _nowhere(model: onnx.ModelProto, *, change: Change) -> None:
    change(model)


def set_input(value: str, index: int, numbers: Numbers) -> Change:
    """Give the node that makes a value another constant input; others keep theirs."""
    return partial(_set_input, value=value, index=index, numbers=numbers)


def _set_input(
    model: onnx.ModelProto, *, value: str, index: int, numbers: Numbers
) -> str:
    node = maker(model, value)
    old = weight(model, node.input[index])
    new = np.asarray(numbers(old), old.dtype)
    node.input[index] = constant(model, f"{value}/faulty", new)
    return value


def set_weight(value: str, numbers: Numbers) -> Change:
    """As `set_input`, of the node's one constant input."""
    return partial(_set_weight, value=value, numbers=numbers)


def _set_weight(model: onnx.ModelProto, *, value: str, numbers: Numbers) -> str:
    node = maker(model, value)
    index = next(i for i, name in enumerate(node.input) if is_weight(model, name))
    return _set_input(model, value=value, index=index, numbers=numbers)


def reads(value: str, index: int, other: str) -> Change:
    """Let the node that makes a value read another one."""
    return partial(_reads, value=value, index=index, other=other)


def _reads(model: onnx.ModelProto, *, value: str, index: int, other: str) -> str:
    maker(model, value).input[index] = other
    return value


def swapped(value: str, one: int = 0, two: int = 1) -> Change:
    """Let the node that makes a value read two of its inputs in each other's place."""
    return partial(_swapped, value=value, one=one, two=two)


def _swapped(model: onnx.ModelProto, *, value: str, one: int, two: int) -> str:
    inputs = maker(model, value).input
    inputs[one], inputs[two] = inputs[two], inputs[one]
    return value


def outputs_swapped(value: str) -> Change:
    """Swap the first two outputs of the node that makes a value."""
    return partial(_outputs_swapped, value=value)


def _outputs_swapped(model: onnx.ModelProto, *, value: str) -> str:
    node = maker(model, value)
    node.output[:] = [node.output[1], node.output[0], *node.output[2:]]
    return value


def together(*changes: Change) -> Change:
    """Do several changes; the last says where it shows."""
    return partial(_together, changes=changes)


def _together(model: onnx.ModelProto, *, changes: Sequence[Change]) -> str | None:
    return [change(model) for change in changes][-1]


def replaced(value: str, text: str, **given: str) -> Change:
    """Make a value by other nodes.

    Args:
        value: What is made; ``out`` in the text.
        text: The nodes in ONNX's own text form.
        given: Name in the text to the graph's value that it stands for.

    """
    return partial(_replaced, value=value, text=text, given=given)


def _replaced(
    model: onnx.ModelProto, *, value: str, text: str, given: Mapping[str, str]
) -> str:
    old = maker(model, value)
    place = list(model.graph.node).index(old)
    model.graph.node.remove(old)
    _insert(model, place, text, value, {**given, "out": value})
    return value


def after(value: str, text: str) -> Change:
    """Change a value right after it is made: in the text ``right`` becomes ``out``."""
    return partial(_after, value=value, text=text)


def _after(model: onnx.ModelProto, *, value: str, text: str) -> str:
    node = maker(model, value)
    right = f"{value}/right"
    node.output[list(node.output).index(value)] = right
    place = list(model.graph.node).index(node) + 1
    _insert(model, place, text, value, {"right": right, "out": value})
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
