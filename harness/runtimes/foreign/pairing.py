"""Which values of a module and a file can be paired, by their parents and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from harness.core.onnx_header import port_of
from harness.core.probes import Kind, Probe
from harness.runtimes.pytorch.submodules import watched
from harness.runtimes.renamed import sizes_of_axes

if TYPE_CHECKING:
    from harness.core.case import Component

Shape = tuple[int, ...]
Sized = Mapping[str, Sequence[int | str]]
"""Value of a file to its sizes: numbers, names of open axes, "" where unknown."""


def followed(
    module: torch.nn.Module,
    example: tuple[torch.Tensor, ...],
    probes: Sequence[Probe],
) -> tuple[tuple[Probe, ...], dict[str, Shape]]:
    """Run a module, and record from which values its submodules' values are computed.

    Returns:
        The probes with their parents, and the shape of each computed value.

    """
    wanted = {probe.name for probe in probes if probe.kind is Kind.COMPUTE}
    following = _Following()
    shapes: dict[str, Shape] = {}
    parents: dict[str, tuple[str, ...]] = {}

    def after(path: str, _part: torch.nn.Module, returned: object) -> None:
        tensors = list(_tensors(returned))
        if path in wanted and len(tensors) == 1:
            shapes[path] = tuple(tensors[0].shape)
            parents[path] = tuple(following.name(tensors[0], path))

    with watched(module, None, after), torch.no_grad(), following:
        module(*example)
    # Parents are in order of execution, not in the order in which they were read.
    order = {probe.name: probe.position for probe in probes}
    return tuple(
        replace(
            probe,
            parents=tuple(sorted(parents.get(probe.name, ()), key=order.__getitem__)),
        )
        for probe in probes
    ), shapes


class _Following(TorchDispatchMode):
    """Follows from which named values each tensor was computed."""

    def __init__(self) -> None:
        super().__init__()
        self._origins = WeakTensorKeyDictionary()

    def name(self, tensor: torch.Tensor, path: str) -> frozenset[str]:
        """Give a tensor a name; return the names that it was computed from."""
        before: frozenset[str] = self._origins.get(tensor, frozenset())
        self._origins[tensor] = frozenset((path,))
        return before - {path}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,  # no public name
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = frozenset().union(
            *(self._origins.get(one, frozenset()) for one in _tensors((args, kwargs)))
        )
        for one in _tensors(result):
            self._origins[one] = made
        return result


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


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
