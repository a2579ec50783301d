"""The stage that gives an excerpt other weights, inputs and sizes, all of them drawn.

ONNX's reference evaluator computes what a right runtime has to return. So the result
shows a divergence and has nothing of the user's checkpoint, inputs or names. The stage
runs in a child process.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import ValueKind, load_probes, save_probes
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.measure.align import shown
from harness.measure.compare import UNIT_ROUNDOFF
from harness.measure.named_arrays import save_arrays
from harness.measure.trace import OUTPUT, TraceWriter, arrays_of, open_trace
from harness.plugins.explain.excerpt import Redraw
from harness.runtimes.graph.onnx_graph import (
    declared,
    known_as,
    makers_of,
    nodes_between,
)

LEAST_SIZE = 5
"""Smaller sizes stay, because the same numbers may stand for axes."""

_SIZE_ATTRIBUTES = frozenset(
    {"axis_size", "group", "hidden_size", "num_groups", "num_heads", "shape", "split"}
)
_HUGE = 1e30
"""Larger numbers stand for minus infinity in a mask."""

_SIZES_FROM = {"ConstantOfShape": 0, "Range": 0} | dict.fromkeys(
    (
        *("Expand", "OneHot", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze"),
        *("Tile", "TopK", "Trilu", "Unsqueeze"),
    ),
    1,
)
"""Operators, and the first of their inputs that holds sizes, axes or positions. The
second input of a reduction holds axes too."""

_FEW = 8
"""So few integers of 64 bits may be a part of a shape, wherever they are read."""

_HUGE_SIZE = 2**31
_PEAK_EVERY = 61
_PLAIN_DIGITS = 4

Arrays = dict[str, np.ndarray]


def redraw_excerpt(folder: Path, entry: Entry, how: Redraw) -> Mapping[str, object]:
    """Write an excerpt with drawn numbers to a folder, and return its notes.

    Raises:
        StageError: ONNX's reference evaluator cannot run the graph at these sizes.

    """
    report_progress("drawing", "excerpt", f"{how.style} {how.seed}")
    try:
        return _redrawn(entry, how, folder)
    except StageError:
        raise
    except Exception as error:  # the evaluator raises whatever numpy raises
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        msg = f"ONNX's reference evaluator cannot run these operators: {why}"
        raise StageError(msg, outcome=Outcome.CONVERT) from error


def _redrawn(entry: Entry, how: Redraw, folder: Path) -> Mapping[str, object]:
    model, arrays, names = plain(entry)
    sizes, graph = dict(how.sizes), model.graph
    if how.style != "own":
        draws = _Draws(how)
        _draw_weights(graph, draws.weight)
        arrays = {name: draws.input(array) for name, array in arrays.items()}
        # Values inside the graph have sizes of their own, so they are computed first.
        arrays = _begun(model, how.begins, arrays)
        _resize(graph, sizes)
        _draw_weights(graph, partial(draws.resized, sizes))
        arrays = {name: draws.resized(sizes, old) for name, old in arrays.items()}
    del graph.input[:]
    graph.input.extend(declared(name, array) for name, array in arrays.items())
    (output,) = graph.output
    output.type.tensor_type.ClearField("shape")  # it follows from the inputs' sizes
    exact = _evaluate(_as_double(model), {n: _wide(a) for n, a in arrays.items()})
    single = _evaluate(model, arrays)[output.name]
    right = exact[output.name]
    expected = right.astype(single.dtype)
    (probe,) = load_probes(entry.file(PROBES))
    trace = open_trace(entry.path)
    is_mask = trace.places[probe.name].is_mask
    # Where the user's own values are all finite, others would show another fault.
    finite = np.isfinite(right)
    may_be_infinite = not np.isfinite(trace[probe.name]).all()
    if not finite.any() or not (finite.all() or may_be_infinite):
        msg = "the drawn numbers give no finite result."
        raise StageError(msg, outcome=Outcome.CONVERT)
    # It is compared so, and what hides a place must not set the floor.
    right, single = shown(right, single, is_mask=is_mask)
    finite = np.isfinite(right) & np.isfinite(single)
    right, single = right[finite], single[finite]
    spread = math.sqrt(float(np.mean(np.square(right.astype(np.float64)))))
    error = single.astype(np.float64) - right
    floor = max(math.sqrt(float(np.mean(np.square(error)))), UNIT_ROUNDOFF * spread)
    onnx.save_model(model, folder / MODEL)
    save_arrays(arrays, folder)
    # A value of another kind is compared under its own name alone, which it has lost.
    compared = replace(probe, onnx=output.name, kind=ValueKind.COMPUTE)
    save_probes([compared], folder / PROBES)
    writer = TraceWriter(folder)
    values = OUTPUT + output.name, probe.name
    for value in values:
        writer.add(value, expected, is_mask=is_mask)
    # Whole numbers and truths have no floor, because nothing is rounded in them.
    floors = dict.fromkeys(values, floor) if expected.dtype.kind == "f" else {}
    writer.close(floors)
    return {
        "given": {name: name for name in arrays},
        "begins": list(arrays),
        "nodes": len(graph.node),
        "inputs": [[n, list(a.shape), a.dtype.name] for n, a in arrays.items()],
        "outputs": [[output.name, list(expected.shape), expected.dtype.name]],
        "values": [name for node in graph.node[:-1] for name in node.output if name],
        "sizes": _sizes(graph, arrays),
        "kept": known_as(graph, names),
        "listing": _listing(model, arrays, expected),
    }


def plain(entry: Entry) -> tuple[onnx.ModelProto, Arrays, dict[str, str]]:
    """Return the excerpt without the user's names, its inputs, and the new names.

    Every constant is an initializer then.
    """
    model = onnx.load(entry.file(MODEL))
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    if any(one.HasField("g") for node in graph.node for one in node.attribute):
        msg = "an operator has a graph of its own, whose weights cannot be replaced."
        raise StageError(msg, outcome=Outcome.CONVERT)
    given = arrays_of(entry)
    weights, nodes = list(graph.initializer), []
    for node in graph.node:
        if node.op_type != "Constant":
            nodes.append(node)
            continue
        (attribute,) = node.attribute
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, TensorProto):
            value = numpy_helper.to_array(value)
        real = "float" in attribute.name
        array = np.array(value, np.float32) if real else np.array(value)
        weights.append(numpy_helper.from_array(array, node.output[0]))
    names = {"": ""}
    for kind, found in (
        ("x", [one.name for one in graph.input]),
        ("w", [weight.name for weight in weights]),
        ("v", [name for node in nodes for name in node.output if name]),
    ):
        names |= {name: f"{kind}{at}" for at, name in enumerate(found)}
    for node in nodes:
        del node.metadata_props[:]
        for side in (node.input, node.output):
            side[:] = [names[name] for name in side]
        # Converters know the nodes that they leave as they are by these names.
        node.name, node.doc_string = next(filter(None, node.output)), ""
    for one in (*weights, *graph.output):
        one.name = names[one.name]
    clean = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "repro", graph.input, graph.output, weights),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
    return clean, {names[name]: array for name, array in given.items()}, names


def _read_as_sizes(graph: onnx.GraphProto) -> set[str]:
    """Return the names of values that a graph reads as sizes, axes or positions."""
    found: set[str] = set()
    for node in graph.node:
        reduces = node.op_type.startswith("Reduce")
        first = 1 if reduces else _SIZES_FROM.get(node.op_type, len(node.input))
        found.update(node.input[first:])
    return found


def _draw_weights(graph: onnx.GraphProto, draw: Callable[..., np.ndarray]) -> None:
    """Put other weights into a graph; `draw` gets one, and whether it holds sizes."""
    kept = _read_as_sizes(graph)
    for tensor in graph.initializer:
        old = numpy_helper.to_array(tensor)
        is_size = tensor.name in kept or (old.dtype == np.int64 and old.size <= _FEW)
        new = draw(old, is_size=is_size)
        tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))


def _resize(graph: onnx.GraphProto, sizes: Mapping[int, int]) -> None:
    """Change sizes in attributes; those of arrays change when they are drawn."""
    for node in graph.node:
        for one in node.attribute:
            if one.name not in _SIZE_ATTRIBUTES:
                continue
            one.i = sizes.get(one.i, one.i)
            one.ints[:] = [sizes.get(i, i) for i in one.ints]


class _Draws:
    """Draws arrays like given ones, which lend their size and rough scale alone."""

    def __init__(self, how: Redraw) -> None:
        self._how = how
        self._random = np.random.default_rng(how.seed)

    def weight(self, old: np.ndarray, *, is_size: bool) -> np.ndarray:
        """Return other weights; plain numbers and tables of sizes are kept."""
        if is_size and old.dtype.kind == "i":
            return old
        real = old.dtype.kind == "f" and (is_size or old.size == 1)
        if real and all(_is_plain(float(one)) for one in old.reshape(-1)):
            return old
        return self.input(old)

    def resized(
        self, sizes: Mapping[int, int], old: np.ndarray, *, is_size: bool = False
    ) -> np.ndarray:
        """Return an array of other sizes; one that has none of them stays."""
        if is_size and old.dtype.kind == "i":
            changed = [sizes.get(int(i), int(i)) for i in old.reshape(-1)]
            return np.array(changed, old.dtype).reshape(old.shape)
        shape = tuple(sizes.get(axis, axis) for axis in old.shape)
        return old if shape == old.shape else self.input(old, shape)

    def input(
        self, old: np.ndarray, shape: tuple[int, ...] | None = None
    ) -> np.ndarray:
        """Return an array of the old one's dtype and kind of numbers."""
        shape = old.shape if shape is None else shape
        if old.size == 0:
            return np.zeros(shape, old.dtype)
        if old.dtype.kind == "b":
            return _masked(shape)
        if old.dtype.kind in "iu":
            return self._integers(old, shape)
        if not np.isfinite(old).all() or np.abs(old).max() > _HUGE:
            low = np.where(np.isfinite(old), old, -np.inf).min()
            return np.where(_masked(shape), 0, low).astype(old.dtype)
        return self._reals(old.astype(np.float64), shape).astype(old.dtype)

    def _integers(self, old: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        count = math.prod(shape)
        if np.array_equal(old.reshape(-1), np.arange(old.size)):
            return np.arange(count, dtype=old.dtype).reshape(shape)
        low, near = (_power(float(end), math.floor) for end in (old.min(), old.max()))
        # A power of two may be the one number that a fault leaves right.
        least, most = sorted((int(near), int(old.max())))
        high = int(self._random.integers(least, most, endpoint=True))
        drawn = self._random.integers(min(int(low), high), high, shape, endpoint=True)
        return drawn.astype(old.dtype)

    def _reals(self, old: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        mean, spread = float(old.mean()), float(old.std())
        mean = _power(mean) if abs(mean) > spread / 4 else 0.0
        new = mean + _power(spread) * self._random.standard_normal(shape)
        if self._how.style == "peaked":
            flat = new.reshape(-1)
            flat[::_PEAK_EVERY] = _power(float(np.abs(old).max()))
        if self._how.style == "even" and shape:
            new[...] = new[..., :1].copy()
        return np.abs(new) if old.min() >= 0 else new


def _power(number: float, towards: Any = round) -> float:
    """Return the power of two near a number, with its sign; 0 stays."""
    if number == 0.0:
        return 0.0
    return math.copysign(2.0 ** towards(math.log2(abs(number))), number)


def _is_plain(number: float) -> bool:
    """Whether a number is one that people write, or its root, and no trained weight.

    >>> _is_plain(0.1767767), _is_plain(0.044715), _is_plain(0.13481377)
    (True, True, False)
    """
    if number == 0.0 or not abs(number) <= _HUGE:
        return True
    forms = number, number**2, 1 / number, 1 / number**2
    near = ((form, float(f"{form:.{_PLAIN_DIGITS}e}")) for form in forms)
    return any(math.isclose(form, plain, rel_tol=4e-7) for form, plain in near)


def _masked(shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask that lets each position see itself and earlier ones."""
    rows, columns = (1, *shape)[-2:] if shape else (1, 1)
    seen = np.tri(rows, columns, columns - rows, dtype=bool)
    return np.broadcast_to(seen.reshape(shape[-2:]), shape).copy()


def _begun(model: onnx.ModelProto, begins: Collection[str], arrays: Arrays) -> Arrays:
    """Make values of a graph its inputs, and leave out what it no longer needs."""
    graph = model.graph
    if begins:
        known = _evaluate(model, arrays)
        arrays = arrays | {name: known[name] for name in begins}
    (output,) = graph.output
    between = nodes_between(makers_of(graph), output.name, begins)
    made = {name for node in between for name in node.output}
    nodes = [node for node in graph.node if not made.isdisjoint(node.output)]
    read = {name for node in nodes for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    graph.CopyFrom(
        onnx.helper.make_graph(nodes, graph.name, graph.input, graph.output, weights)
    )
    return {name: array for name, array in arrays.items() if name in read}


def _evaluate(model: onnx.ModelProto, arrays: Arrays) -> Arrays:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made: Any = ReferenceEvaluator(model).run(None, dict(arrays), intermediate=True)
    return {name: value for name, value in made.items() if value is not None}


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _as_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph that computes in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    real = TensorProto.FLOAT, TensorProto.FLOAT16
    attributes = [one for node in wide.graph.node for one in node.attribute]
    for tensor in (*wide.graph.initializer, *(one.t for one in attributes)):
        if tensor.data_type in real:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for one in (*wide.graph.input, *wide.graph.output):
        if one.type.tensor_type.elem_type in real:
            one.type.tensor_type.elem_type = TensorProto.DOUBLE
    for attribute in attributes:
        if attribute.name in {"to", "dtype"} and attribute.i in real:
            attribute.i = TensorProto.DOUBLE
    return wide


def _sizes(graph: onnx.GraphProto, arrays: Arrays) -> list[int]:
    shapes = [array.shape for array in arrays.values()]
    shapes += [tuple(tensor.dims) for tensor in graph.initializer]
    kept = _read_as_sizes(graph)
    shapes += [  # also what a reshape makes of a size
        tuple(int(size) for size in numpy_helper.to_array(tensor).reshape(-1))
        for tensor in graph.initializer
        if tensor.name in kept and tensor.data_type == TensorProto.INT64
    ]
    # The end of a slice may stand for infinity.
    found = {size for shape in shapes for size in shape if size < _HUGE_SIZE}
    return sorted((size for size in found if size >= LEAST_SIZE), reverse=True)


def _listing(model: onnx.ModelProto, arrays: Arrays, expected: np.ndarray) -> list[str]:
    """Return a line for each operator: what it makes, of which shapes."""
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    lines = []
    for node in model.graph.node:
        read = ", ".join(
            f"{name} {shapes[name]}" if name in shapes else name
            for name in node.input
            if name
        )
        settings = ", ".join(
            f"{one.name}={onnx.helper.get_attribute_value(one)}"
            for one in node.attribute
            if one.type in {one.INT, one.INTS, one.FLOAT}
        )
        end = f" {{{settings}}}" if settings else ""
        lines.append(f"{', '.join(node.output)} = {node.op_type}({read}){end}")
    lines[-1] += f" -> {list(expected.shape)}"
    return lines
