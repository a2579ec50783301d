"""Compare an entry of a store with the same entry, made anew here.

This runs in a child process. Another machine may have made the stored one, and other
processors round in other ways. So numbers may differ within the noise floors that were
measured here, and nothing else may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import onnx

from harness.core.entry import Entry
from harness.core.probes import load_probes
from harness.engine.export_files import MODEL, PROBES
from harness.measure.trace import OUTPUT, Trace, arrays_of, open_trace

_FLOORS: Final = 8.0
"""Distance of two float32 runs, in noise floors. Each is about one floor away from the
exact value."""

_LARGEST: Final = 64.0
"""Distance of the largest of many elements, in noise floors, which are means."""

_FLOOR_RATIO: Final = 4.0
"""Ratio of two noise floors of one value, as two processors measure it."""

_REST: Final = 1e-5
"""Relative distance of floating values that have no noise floor."""

_REFERENCE_NOTE: Final = "rewrite_max_abs"


def compare(stored: Entry, made: Entry) -> tuple[bool, str]:
    """Return whether two entries differ, and in what; or what was found equal.

    Raises:
        StoreError: One of them is damaged.

    """
    stored.check()
    by_kind: Mapping[str, Callable[[Entry, Entry], tuple[bool, str]]] = {
        "onnx": _graphs,
        "inputs": _inputs,
        "reference": _references,
    }
    return by_kind[stored.kind](stored, made)


def _inputs(stored: Entry, made: Entry) -> tuple[bool, str]:
    there, here = arrays_of(stored), arrays_of(made)
    if there.keys() != here.keys():
        return True, f"its arrays are {_few(there)}, and not {_few(here)}"
    for name, array in here.items():
        if words := _apart(there[name], array, None):
            return True, f"{name}: {words}"
    bits = all(there[name].tobytes() == here[name].tobytes() for name in here)
    return False, f"{len(here)} arrays are equal {_to_the(bits)}"


def _references(stored: Entry, made: Entry) -> tuple[bool, str]:
    there, here = open_trace(stored.path), open_trace(made.path)
    if set(there) != set(here):
        return True, f"its values are {_few(there)}, and not {_few(here)}"
    bits = True
    for name in here:
        if words := _value(there, here, name):
            return True, f"{name}: {words}"
        bits = bits and there[name].tobytes() == here[name].tobytes()
        there.forget(name)
        here.forget(name)
    one, two = (_number(entry.meta[_REFERENCE_NOTE]) for entry in (stored, made))
    outputs = (here.floor_rms(name) for name in here if name.startswith(OUTPUT))
    if not abs(one - two) <= _LARGEST * max(floor or 0.0 for floor in outputs):
        return True, f"{_REFERENCE_NOTE} is {one:.3e}, and not {two:.3e}"
    count = len(list(here))
    return False, f"{count} values and their noise floors are equal {_to_the(bits)}"


def _value(there: Trace, here: Trace, name: str) -> str:
    """Return how a recorded value differs, or nothing."""
    floors = there.floor_rms(name), here.floor_rms(name)
    if (floors[0] is None) != (floors[1] is None):
        return "it has a noise floor on one side alone"
    if there.places[name].is_mask != here.places[name].is_mask:
        return "it is a mask on one side alone"
    if words := _apart(there[name], here[name], floors[1]):
        return words
    one, two = floors
    if one is not None and two is not None and not _alike(one, two):
        return f"its noise floor is {one:.3e}, and not {two:.3e}"
    return ""


def _apart(there: np.ndarray, here: np.ndarray, floor_rms: float | None) -> str:
    """Return how an array differs by more than its floor, or nothing."""
    if (there.dtype, there.shape) != (here.dtype, here.shape):
        return (
            f"it is {there.dtype} {list(there.shape)}, and not {here.dtype} "
            f"{list(here.shape)}"
        )
    if there.tobytes() == here.tobytes():
        return ""
    if here.dtype.kind in "fc":
        return _floats_apart(there, here, floor_rms)
    count = int(np.count_nonzero(there != here))
    return f"{count:,} of {here.size:,} numbers differ"


def _floats_apart(there: np.ndarray, here: np.ndarray, floor_rms: float | None) -> str:
    one, two = (each.astype(np.complex128) for each in (there, here))
    finite = np.isfinite(two)
    if not np.array_equal(one[~finite], two[~finite], equal_nan=True):
        return "its numbers that are not finite differ"
    if not np.isfinite(one[finite]).all():
        return "it has numbers that are not finite"
    apart, size = _rms(one[finite] - two[finite]), _rms(two[finite])
    most = _REST * size if floor_rms is None else _FLOORS * floor_rms
    if apart > most:
        return f"it is {apart:.3e} away (rms), and {most:.3e} could be rounding"
    return ""


def _rms(values: np.ndarray) -> float:
    return math.sqrt(float(np.mean(np.abs(values) ** 2))) if values.size else 0.0


def _alike(one: float, two: float) -> bool:
    """Whether two measured errors are of one size; the smallest may be nothing."""
    low, high = sorted((one, two))
    return high <= max(_FLOOR_RATIO * low, float(np.finfo(np.float32).tiny))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _graphs(stored: Entry, made: Entry) -> tuple[bool, str]:
    """Compare graphs, weights and probes, but no notes about who exported them."""
    if (MODEL in stored.files) != (MODEL in made.files):
        return True, f"{MODEL} is there on one side alone"
    if MODEL in made.files:
        one, two = (
            onnx.load(entry.file(MODEL), load_external_data=False)
            for entry in (stored, made)
        )
        if words := next(_graph_differences(one, two), ""):
            return True, words
    for name in sorted({*stored.files, *made.files} - {MODEL, PROBES}):
        sides = stored.files.get(name), made.files.get(name)
        if sides[0] is None or sides[1] is None or sides[0] != sides[1]:
            return True, f"the file {name} differs"
    probes = [
        [
            (p.name, p.kind, p.op, p.onnx, p.parents, p.settings, p.arguments)
            for p in each
        ]
        for each in (load_probes(entry.file(PROBES)) for entry in (stored, made))
    ]
    if probes[0] != probes[1]:
        return True, "its probes differ, which say what is compared with what"
    return False, "graph, weights and probes are equal"


def _graph_differences(
    model_proto: onnx.ModelProto, two: onnx.ModelProto
) -> Iterator[str]:
    for model in (model_proto, two):
        _forget_notes(model)
    if list(model_proto.opset_import) != list(two.opset_import):
        yield "its opset differs"
    for nodes in zip(model_proto.graph.node, two.graph.node, strict=False):
        if nodes[0] != nodes[1]:
            yield f"the operator {nodes[1].name!r} differs"
    weights = [
        {tensor.name: tensor for tensor in model.graph.initializer}
        for model in (model_proto, two)
    ]
    for name, tensor in weights[1].items():
        if weights[0].get(name) != tensor:
            yield f"the weight {name!r} differs"
    if model_proto != two:
        yield "the graph differs"


def _forget_notes(model: onnx.ModelProto) -> None:
    """Take out what no runtime reads: who exported it, where, and when."""
    for name in ("producer_name", "producer_version", "doc_string", "domain"):
        model.ClearField(name)
    del model.metadata_props[:]
    for part in (model.graph, *model.functions):
        part.ClearField("doc_string")
        del part.metadata_props[:]
        del part.value_info[:]
        for node in part.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]


def _few(names: Iterable[str]) -> str:
    first, *rest = [*sorted(names), "nothing"]
    return f"{first!r} and {len(rest) - 1} more" if rest[1:] else repr(first)


def _to_the(bits: bool) -> str:  # noqa: FBT001
    return "to the bit" if bits else "within their noise floors"
