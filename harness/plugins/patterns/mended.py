"""What a graph's operators in front of a value give with one change.

Where a file has names for modules alone, no value between two modules is compared. So
the operators between them run again, by ONNX's reference evaluator on PyTorch's values,
with one change each: an operator put in, other places of a slice or of a scatter. A
change is a cause where the graph as it is gives the candidate's value, and the changed
one gives PyTorch's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from harness.plugins.patterns.arithmetic import (
    ACTIVATIONS,
    explains,
    usual_size,
)
from harness.plugins.patterns.forms import softmax
from harness.plugins.patterns.observed import Form, halves_and_seconds, wide

Values = Mapping[str, np.ndarray]
Change = tuple[str, Values]
"""A message, and the values that another operator would have put in their place."""

MOST_NODES, MOST_ELEMENTS = 160, 2**18
"""Largest number of operators, and of elements of a value, that run again."""

_PLACES = 64
"""Largest number of places of a scatter that are tried."""

_LEFT = 1e-3
"""Largest share of an error that a change may leave."""

_ROUNDING = 1e-6
"""Share of a value's usual size that rounding may cause."""

_FUNCTIONS = {**ACTIVATIONS, "softmax": softmax}

_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast")


class Between:
    """The operators between known values and one value.

    Attributes:
        nodes: The operators, in order.
        known: The known values, by name.
        values: Every value, by its name in the graph, with the graph's constants.

    """

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        known: Values,
        constants: Values,
        opsets: Collection[onnx.OperatorSetIdProto],
    ) -> None:
        self.nodes = nodes
        self.known = known
        self._constants = constants
        self._opsets = list(opsets)
        self._evaluators: dict[str, ReferenceEvaluator] = {}
        self.values = self.run({})

    def run(self, changed: Values) -> dict[str, np.ndarray]:
        """Run the operators that read a changed value, or all if none is changed.

        An operator whose value is changed does not run.
        """
        begin = self.values if changed else {**self._constants, **self.known}
        found = {**begin, **changed}
        reached = set(changed)
        for node in self.nodes:
            if changed and (
                reached.isdisjoint(node.input)
                or not changed.keys().isdisjoint(node.output)
            ):
                continue
            read = {name: found[name] for name in node.input if name}
            made: Any = self._of(node).run(None, read)
            found.update(zip(node.output, map(np.asarray, made), strict=True))
            reached.update(node.output)
        return found

    def _of(self, node: onnx.NodeProto) -> ReferenceEvaluator:
        name = node.output[0]
        if name not in self._evaluators:
            sides = (
                [onnx.helper.make_empty_tensor_value_info(one) for one in names if one]
                for names in (node.input, node.output)
            )
            graph = onnx.helper.make_graph([node], "one", *sides)
            model = onnx.helper.make_model(graph, opset_imports=self._opsets)
            self._evaluators[name] = ReferenceEvaluator(model)
        return self._evaluators[name]


def mended(
    between: Between, value: str, expected: np.ndarray, actual: np.ndarray
) -> Iterator[Form]:
    """Yield the graph's own value of the change that gives PyTorch's value."""
    own = between.values[value]
    error, noise = actual - expected, _ROUNDING * usual_size(expected)
    if own.shape != expected.shape or not explains(own - actual, error, _LEFT, noise):
        return
    best, message = float("inf"), ""
    for words, changed in _changes(between):
        made = between.run(changed)[value]
        if made.shape != expected.shape or not np.isfinite(made).all():
            continue
        left = float(np.abs(made - expected).sum())
        if left < best and explains(made - expected, error, _LEFT, noise):
            best, message = left, words
    if message:
        yield message, wide(own)


def _changes(between: Between) -> Iterator[Change]:
    yield from _pairs(between)
    for node in between.nodes:
        if node.op_type in {"ScatterElements", "ScatterND"}:
            yield from _repeated(node, between.values)
    yield from _left_out(between)


def _pairs(between: Between) -> Iterator[Change]:
    """Yield every slice that takes half of an axis, with the other half or pairs."""
    changed: dict[str, dict[str, np.ndarray]] = {}
    for node in between.nodes:
        if node.op_type != "Slice":
            continue
        whole, made = (between.values[n] for n in (node.input[0], node.output[0]))
        if whole.dtype.kind != "f":
            continue
        for theirs, ours, words in halves_and_seconds(whole, made.shape):
            at = [np.array_equal(our, made) for our in ours]
            if any(at):
                changed.setdefault(words, {})[node.output[0]] = theirs[at.index(True)]
    yield from changed.items()


def _repeated(node: onnx.NodeProto, values: Values) -> Iterator[Change]:
    """Yield a scatter with other places for indices that are there twice."""
    data, indices = values[node.input[0]], values[node.input[1]]
    if data.dtype.kind != "f" or not indices.size:
        return
    axes = {one.name: one.i for one in node.attribute}
    parts: list[tuple[Any, int]] = [(..., axes.get("axis", 0))]
    if node.op_type == "ScatterND":
        parts = [((..., axis), axis) for axis in range(indices.shape[-1])]
    for at, axis in parts:
        size, held = data.shape[axis], indices[at] % data.shape[axis]
        for along in range(held.ndim):
            rows = np.moveaxis(held, along, 0).reshape(held.shape[along], -1)
            if (rows != rows[:, :1]).any():
                continue
            line = rows[:, 0].tolist()
            unused = [place for place in range(size) if place not in line]
            twice = [at for at, place in enumerate(line) if line.count(place) > 1]
            for place in twice[:_PLACES]:
                for other in unused[:_PLACES]:
                    changed = indices.copy()
                    np.moveaxis(changed[at], along, 0)[place] = other
                    words = (
                        f"along axis {axis} it does not write place {other}, and "
                        f"{line[place]} has what {other} gets: an index is repeated"
                    )
                    yield words, {node.input[1]: changed}


def _left_out(between: Between) -> Iterator[Change]:
    """Yield an activation or a softmax that is put in behind a value."""
    made = {node.output[0]: node for node in between.nodes}
    for name in (*between.known, *made):
        value, node = between.values[name], made.get(name)
        moves = node is not None and node.op_type in _MOVES
        if value.dtype.kind != "f" or value.ndim == 0 or moves:
            continue
        where = f"behind {node.op_type}" if node else "in front"
        for function, of in _FUNCTIONS.items():
            words = f"{function} is not in the file: {where} it gives PyTorch's value"
            yield words, {name: of(value).astype(value.dtype)}
