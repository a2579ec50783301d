"""Read a PyTorch program: a probe for each value, and the values as they are computed.

A program is the graph that the dynamo exporter decomposed. For the TorchScript exporter
it is the module itself, with the outputs of its `submodules` as values.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export.passes import move_to_device_pass

from harness.core.case import Device, TensorSpec
from harness.core.private import public
from harness.core.probes import Probe, Setting, ValueKind

if TYPE_CHECKING:
    import numpy as np
    from torch.export import ExportedProgram

WRAPPER = "network"
"""Attribute under which a recipe's wrapper holds the checkpoint's module. Module paths
leave it out, so that they are equal to the checkpoint's own."""

_MOVES = frozenset(
    {
        *("alias", "as_strided", "cat", "chunk", "concat", "contiguous", "detach"),
        *("expand", "flatten", "lift_fresh_copy", "movedim", "narrow", "permute"),
        *("constant_pad_nd", "pad", "repeat", "repeat_interleave", "reshape"),
        *("select", "slice", "split", "split_with_sizes"),
        *("squeeze", "stack", "swapaxes", "t", "transpose", "unbind", "unflatten"),
        *("unsafe_split", "unsafe_view", "unsqueeze", "view", "view_as"),
        "_unsafe_view",
    }
)
_IDENTITIES = frozenset(
    {"alias_copy", "clone", "dropout", "lift_fresh", "native_dropout"}
)
_CASTS = frozenset({"_to_copy", "to", "type_as", "convert_element_type"})
_LOOKS_UP = frozenset({"embedding", "gather", "index", "index_select"})
_UNFILLED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided"}
    | {"new_empty", "new_empty_strided"}
)
"""Operators whose numbers are whatever the memory held; the program has zeros, as the
exported graph has."""
_NEUTRAL = {"div": 1, "mul": 1, "add": 0, "sub": 0}
"""Operator to the second operand with which it changes nothing."""

_HOME = Path(__file__).parents[3]
_OF_TORCH = re.compile(r"(?:^|/)torch/")
_STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)

Rounding = Callable[[torch.Tensor], torch.Tensor]
"""A function that takes a computed value and returns it, rounded in another way."""


def as_computed(value: torch.Tensor) -> torch.Tensor:
    """Return a value unchanged."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program and its probes.

    Attributes:
        probes: Every value, in order of execution.
        run: A function that runs the program once, with the inputs in order, calls back
            with each computed value, and returns the outputs. With ``double`` it runs
            in float64. With ``rounding`` that function is applied to each computed
            value, and later operators read its result.
        place: A function that moves to a device the program's weights and the tensors
            that it makes itself.
        scopes: The TorchScript exporter's scope of a submodule, to its path.
        shapes: Axes of each value, with None for an open one; None if not known.

    """

    probes: tuple[Probe, ...]
    run: Callable[..., tuple[torch.Tensor, ...]]
    place: Callable[[str], object]
    scopes: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | None, ...]] | None = None


def probes_of_graph(graph: fx.Graph) -> list[Probe]:
    """Describe every tensor that `graph` makes, in order."""
    probes: list[Probe] = []
    computed: dict[fx.Node, tuple[str, ...]] = {}
    tainted: set[fx.Node] = set()
    first: dict[str, fx.Node] = {}
    same: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _is_size(node):
            # A size decides shapes, not numbers: a value that depends on sizes alone is
            # constant.
            computed[node] = ()
            if node.op == "placeholder":
                tainted.add(node)
            continue
        # `type_as` reads no numbers of its second argument.
        read = node.all_input_nodes[: 1 if _operator_name(node) == "type_as" else None]
        parents = [parent for parent in read if parent in tainted]
        key = _structure(node, same)
        twin = first.setdefault(key, node)
        same[node] = twin
        kind = _kind(node, twin=twin, depends=bool(parents))
        if kind is not ValueKind.CONSTANT:
            tainted.add(node)
        ancestors = tuple(
            dict.fromkeys(name for parent in parents for name in computed[parent])
        )
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        if kind is ValueKind.COMPUTE and is_tensor:
            computed[node] = (node.name,)
        elif kind is ValueKind.DUPLICATE:
            computed[node] = computed[twin]
        else:
            computed[node] = ancestors
        if not is_tensor:  # its parts are values, and are computed from what it reads
            continue
        made_by = _made_by(node) if kind is ValueKind.COMPUTE else node
        probes.append(
            Probe(
                name=node.name,
                position=len(probes),
                kind=kind,
                op=_PLAIN.get(_operator(made_by), _operator(made_by)),
                module=_module_path(node),
                source=_source_line(node),
                parents=ancestors,
                onnx=twin.name if kind is ValueKind.DUPLICATE else "",
                settings=tuple(_settings(made_by)),
                arguments=tuple(_arguments(made_by, same)),
            )
        )
    return probes


_PLAIN = {
    "aten._native_batch_norm_legit_no_training.default": "aten.batch_norm.default"
}
"""Name of an operator inside PyTorch to the one that its users know."""


def _made_by(node: fx.Node) -> fx.Node:
    """Return the operator of which a node is one of several values, or the node."""
    owner = node.args[0] if node.target is operator.getitem else node
    return owner if isinstance(owner, fx.Node) else node


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymBool)


def _kind(node: fx.Node, *, twin: fx.Node, depends: bool) -> ValueKind:
    if not depends:
        return ValueKind.CONSTANT
    if node.target is operator.getitem:
        owner = node.args[0]
        moved = isinstance(owner, fx.Node) and _operator_name(owner) in _MOVES
        return ValueKind.MOVE if moved else ValueKind.COMPUTE
    name = _operator_name(node)
    if name in _UNFILLED:
        return ValueKind.CONSTANT
    if name in _MOVES or _only_permutes(node, name):
        return ValueKind.MOVE
    if name in _IDENTITIES or _changes_nothing(node, name):
        return ValueKind.IDENTITY
    return ValueKind.COMPUTE if twin is node else ValueKind.DUPLICATE


def _changes_nothing(node: fx.Node, name: str) -> bool:
    if name in _NEUTRAL and len(node.args) > 1:
        return _scalar(node.args[1]) == _NEUTRAL[name]
    if name in _CASTS and node.args and isinstance(node.args[0], fx.Node):
        before, after = node.args[0].meta.get("val"), node.meta.get("val")
        return (
            isinstance(before, torch.Tensor)
            and isinstance(after, torch.Tensor)
            and before.dtype == after.dtype
        )
    return False


def _only_permutes(node: fx.Node, name: str) -> bool:
    """Whether an einsum only puts one operand's axes into another order."""
    equation = node.args[0] if name == "einsum" else None
    if not isinstance(equation, str):
        return False
    before, _, after = equation.replace(" ", "").partition("->")
    return len(set(before)) == len(before) and sorted(before) == sorted(after)


def _scalar(argument: object) -> object:
    """Return an argument's number, if it is a constant scalar."""
    if isinstance(argument, fx.Node) and _operator_name(argument) == "scalar_tensor":
        return argument.args[0]
    return argument


def _operator_name(node: fx.Node) -> str:
    """Return ``conv2d`` for ``aten.conv2d.default``."""
    target = node.target
    is_aten = isinstance(target, OpOverload)
    return str(target.overloadpacket.__name__) if is_aten else _operator(node)


def _operator(node: fx.Node) -> str:
    """Return ``aten.conv2d.default``, or the name of a Python function."""
    target = node.target
    named = None if isinstance(target, OpOverload) else target
    return getattr(named, "__name__", str(target))


def _settings(node: fx.Node) -> Iterator[tuple[str, Setting]]:
    """Yield an operator's constant arguments, defaults included; an open size is -1."""
    for at, argument in enumerate(_parameters(node)):
        value = argument.default_value if argument.has_default_value() else None
        if at < len(node.args):
            value = node.args[at]
        value = node.kwargs.get(argument.name, value)
        if isinstance(value, float) and not math.isfinite(value):
            yield argument.name, str(value)  # JSON has no such number
        elif isinstance(value, int | float | str):
            yield argument.name, value
        elif isinstance(value, list | tuple) and all(map(_is_number, value)):
            yield argument.name, [v if isinstance(v, int) else -1 for v in value]


def _parameters(node: fx.Node) -> Sequence[Any]:
    """Return the parameters of an operator's schema; none of a Python function."""
    target = node.target
    return target._schema.arguments if isinstance(target, OpOverload) else ()  # noqa: SLF001  # no public name


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, fx.Node) and _is_size(value))


def _arguments(
    node: fx.Node, same: Mapping[fx.Node, fx.Node]
) -> Iterator[tuple[str, str]]:
    """Yield each argument of an operator, and the recorded name of its tensor."""
    named = [parameter.name for parameter in _parameters(node)]
    names = named or ["input"] * len(node.args)
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    for name, argument in given.items():
        each = argument if isinstance(argument, list | tuple) else (argument,)
        for entry in each:
            if isinstance(entry, fx.Node) and not _is_size(entry):
                is_weight = entry.op == "get_attr"
                yield name, str(entry.target if is_weight else same.get(entry, entry))


def _structure(node: fx.Node, same: Mapping[fx.Node, fx.Node]) -> str:
    """Return a text that is equal for two nodes that compute the same value."""

    def named(argument: fx.Node) -> str:
        return same.get(argument, argument).name

    arguments = fx.node.map_arg((node.args, node.kwargs), named)
    return f"{_operator(node)}{arguments!r}"


def _module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return own_path(str(path))


def applied_parameters(probes: Sequence[Probe]) -> set[str] | None:
    """Return the parameters that operators apply to values made from the inputs.

    A view of a parameter, or its rows, stand for it. The others are read by nothing, or
    only by operators that an exporter computes while it exports: ``1 + weight``.

    Returns:
        Names in the checkpoint; None if the probes do not name their arguments.

    """
    if not any(probe.arguments for probe in probes):
        return None
    held: dict[str, set[str]] = {}
    applied: set[str] = set()
    for probe in probes:
        read = {
            name
            for _, argument in probe.arguments
            for name in held.get(argument, {argument})
        }
        if probe.kind is not ValueKind.CONSTANT:
            applied |= read
            continue
        name = probe.op.removeprefix("aten.").partition(".")[0]
        keeps = name in _MOVES | _IDENTITIES | _CASTS | _LOOKS_UP
        held[probe.name] = read if keeps else set()
    return {own_path(name) for name in applied}


def repeats(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors have the same shape and numbers; NaN is equal to NaN."""
    alike = one.shape == two.shape
    return alike and bool(((one == two) | (one.isnan() & two.isnan())).all())


def as_array(value: torch.Tensor) -> np.ndarray:
    """Return a value; NumPy has no bfloat16, and float32 holds each of its numbers."""
    value = value.detach()
    if value.dtype == torch.bfloat16:
        value = value.float()
    return value.cpu().numpy()


def placed(
    spec: TensorSpec, value: torch.Tensor, dtype: torch.dtype, device: Device
) -> torch.Tensor:
    """Return an input as a module in `dtype` takes it, on a device."""
    dtype = dtype if value.is_floating_point() else value.dtype
    if spec.draw == "timestep":
        # bfloat16 has steps of 4 near 999; diffusers rounds the embedding alone.
        dtype = torch.promote_types(dtype, value.dtype)
    return value.to(device.device, dtype)


def in_float32(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of fewer bits as float32, which holds each of its numbers."""
    return value.float() if value.is_floating_point() else value


def own_path(path: str) -> str:
    """Return a module path in the checkpoint's own names."""
    path = re.sub(r"@\d+", "", path)
    path = path.removeprefix("L['self'].").removeprefix("L__self__.")
    return path.removeprefix(f"{WRAPPER}.") if path != WRAPPER else ""


def _source_line(node: fx.Node) -> str:
    frames = _STACK_LINE.findall(node.meta.get("stack_trace") or "")
    if not frames:
        return ""
    file, line = frames[-1]
    for file_, line_ in reversed(frames):
        if not _OF_TORCH.search(file_):
            file, line = file_, line_
            break
    return public(f"{file}:{line}", _HOME)


class _Streaming(fx.Interpreter):
    """Runs a graph, and frees each value when no node needs it.

    `hand_over` gets each tensor by its name; what it returns is what later operators
    read.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        hand_over: Callable[[str, torch.Tensor], torch.Tensor],
        *,
        double: bool,
    ) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.hand_over = hand_over
        self.double = double

    def call_function(  # fx passes any Python value through here
        self,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self.double:
            # A weight is in float64 only while it is used: two more copies of a large
            # network would not fit. The graph also fixes dtypes that the module
            # derived from its float32 inputs.
            args = fx.node.map_aggregate(args, widened)
            kwargs = fx.node.map_aggregate(kwargs, widened)
        return super().call_function(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:  # as above
        value = super().run_node(n)
        if not isinstance(value, torch.Tensor):
            return value
        if _operator_name(n) in _UNFILLED:
            value = torch.zeros_like(value)
        return self.hand_over(n.name, value)


def widened(value: object) -> object:
    """Return float64 for a dtype of fewer bits, and a tensor of that dtype in float64.

    Anything else is returned as it is.
    """
    if isinstance(value, torch.dtype) and value in _FLOATS:
        return torch.float64
    if isinstance(value, torch.Tensor) and value.dtype in _FLOATS:
        return value.to(torch.float64)
    return value


def program_of_export(exported: ExportedProgram) -> Program:
    """Return the program that the dynamo exporter translated to ONNX."""
    graph = exported.module(check_guards=False)
    probes = tuple(probes_of_graph(graph.graph))
    kinds = {probe.name: probe.kind for probe in probes}

    def run(
        inputs: tuple[torch.Tensor, ...],
        on_value: Callable[[str, torch.Tensor], None],
        *,
        double: bool = False,
        rounding: Rounding = as_computed,
    ) -> tuple[torch.Tensor, ...]:
        def hand_over(name: str, value: torch.Tensor) -> torch.Tensor:
            kind = kinds.get(name)
            if kind is ValueKind.COMPUTE:
                value = rounding(value)
            if kind not in {None, ValueKind.DUPLICATE}:
                on_value(name, value)
            return value

        inputs = doubled(inputs) if double else inputs
        with torch.no_grad():
            runner = _Streaming(graph, hand_over, double=double)
            outputs = as_tuple(runner.run(*inputs))
        return doubled(outputs) if double else outputs

    def place(device: str) -> None:
        nonlocal graph
        if device != "cpu":  # the graph also makes tensors, on a device it names
            graph = move_to_device_pass(exported, device).module(check_guards=False)

    shapes = {
        node.name: tuple(n if isinstance(n, int) else None for n in made.shape)
        for node in graph.graph.nodes
        if isinstance(made := node.meta.get("val"), torch.Tensor)
    }
    return Program(probes=probes, run=run, place=place, shapes=shapes)


def doubled(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return values in float64; integers and booleans are not changed."""
    return tuple(
        value.to(torch.float64) if value.is_floating_point() else value
        for value in values
    )


def as_tuple(
    output: torch.Tensor | Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Return a module's outputs as a flat tuple."""
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)
