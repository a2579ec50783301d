"""Which values of a module and a file can be paired, by their shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from harness.core.onnx_ports import port_of
from harness.core.probes import Probe
from harness.runtimes.renamed import sizes_of_axes

if TYPE_CHECKING:
    import torch

    from harness.core.case import Component

Shape = tuple[int | None, ...]
Sized = Mapping[str, Sequence[int | str]]
"""Value of a file to its sizes: numbers, names of open axes, "" where unknown."""


def sizes_in(
    path: Path, component: Component, example: Iterable[torch.Tensor]
) -> dict[str, list[int | str]]:
    """Return the sizes of a file's values, as far as its operators tell them.

    Shapes that the file states beside its operators are ignored. The sizes of the
    component's inputs in `example` replace the names of open axes.
    """
    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}
    mapped = dict(component.foreign.names) if component.foreign else {}
    fed = {
        mapped.get(spec.name, spec.name): tuple(tensor.shape)
        for spec, tensor in zip(component.inputs, example, strict=True)
    }
    known = sizes_of_axes(
        (port_of(value).shape, fed[value.name])
        for value in graph.input
        if value.name in fed
    )
    return {
        value.name: [
            dim.dim_value
            if dim.HasField("dim_value")
            else known.get(dim.dim_param, dim.dim_param)
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in graph.value_info
        if value.type.tensor_type.HasField("shape")
    }


def paired(
    probes: Iterable[Probe], shapes: Mapping[str, Shape], sized: Sized
) -> list[Probe]:
    """Return probes without those values that have another shape in the file.

    A table of positions is [1, n, w] and its sum with the tokens [batch, n, w]: the
    table is broadcast to the sum, and is not the sum.
    """
    return [
        probe
        if _fits(shapes.get(probe.name), sized.get(probe.onnx))
        else replace(probe, onnx="")
        for probe in probes
    ]


def _fits(ours: Shape | None, theirs: Sequence[int | str] | None) -> bool:
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and all(
        one == two
        for one, two in zip(ours, theirs, strict=True)
        if isinstance(two, int)
    )
