"""Translate a network by the dynamo exporter, once: the store keeps the program."""

from __future__ import annotations

import copy
import gc
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule

from harness.core.case import Component, ExportSettings, symbol_of
from harness.core.entry import Entry
from harness.core.private import public
from harness.engine.store import Store
from harness.engine.tasks import PROGRAM
from harness.runtimes.pytorch.program import Program, program_of_export
from harness.runtimes.pytorch.reference import check_count, refuse_changed_input
from harness.runtimes.pytorch.transformers_patches import export_patched

if TYPE_CHECKING:
    import onnx_ir
    from torch.export import ExportedProgram
    from torch.onnx import ONNXProgram

_FILE = "program.pt2"
_OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedNetwork:
    """A network, and all that an export or a translation of it needs.

    Attributes:
        module: The unmodified module.
        copy: The module that an exporter gets, in eval mode; maybe `module` itself. Its
            ``forward`` takes the component's inputs in order.
        component: The component that is tested.
        settings: Settings of the export.
        example: Inputs of the run. Sizes of open axes differ from one another.
        store: The store that keeps the exporter's translation of `copy`.

    """

    module: torch.nn.Module
    copy: torch.nn.Module
    component: Component
    settings: ExportSettings
    example: tuple[torch.Tensor, ...]
    store: Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A network's program, and the program's value behind each output, by its name."""

    program: Program
    outputs: Mapping[str, str]


def translate_once(network: TracedNetwork) -> Translated:
    """Return a network's translation from the store; make it if it is missing.

    A translation takes minutes at full size, and a network may be measured many times.
    All of the program's state is the module's, so the program is kept without it. The
    component's name and its file do not matter. `core.kinds` says why a program stays
    on the machine that made it.

    Raises:
        Exception: The exporter fails, or its program cannot be written or read. It may
            be any exception, and nothing is kept.

    """
    fresh: list[ExportedProgram] = []

    def build(folder: Path) -> Mapping[str, object]:
        made = translate(network)
        fresh.append(made.exported_program)
        return _write(made, network.component, folder)

    entry = PROGRAM.make(network.store, build, *_decides(network))
    if fresh:
        (exported,) = fresh
    else:
        exported = _read(network.store, entry)
        weights = network.copy.state_dict(keep_vars=True)
        exported._state_dict = {name: weights[name] for name in exported.state_dict}  # noqa: SLF001  # no public way
    outputs = entry.meta[_OUTPUTS]
    assert isinstance(outputs, dict)  # noqa: S101  # as `build` returned it
    return Translated(program=program_of_export(exported), outputs=outputs)


def _read(store: Store, entry: Entry) -> ExportedProgram:
    """Read a program; what cannot be read is removed, so that the next one is kept.

    The store gives a program only if nobody else can have written it, because PyTorch's
    reader can run code that is in the file.
    """
    try:
        entry.check()
        return torch.export.load(entry.file(_FILE))  # noqa: TID251  # made on this machine
    except Exception:
        store.remove(entry)
        raise


def keep(network: TracedNetwork, translated: ONNXProgram) -> None:
    """Put a network's translation into the store, so that `translate_once` finds it.

    Nothing is kept where PyTorch cannot write its own program.
    """
    write = partial(_write, translated, network.component)
    with suppress(Exception):  # PyTorch raises anything
        PROGRAM.make(network.store, write, *_decides(network))


def _decides(network: TracedNetwork) -> tuple[object, ...]:
    shapes = [list(tensor.shape) for tensor in network.example]
    return replace(network.component, foreign=None), network.settings, shapes


def _write(
    translated: ONNXProgram, component: Component, folder: Path
) -> dict[str, object]:
    # On a full disk, PyTorch's own writer aborts the process and says nothing.
    written = BytesIO()
    with _rarely_collected():
        torch.export.save(_bare(translated.exported_program), written)
    (folder / _FILE).write_bytes(written.getbuffer())
    return {_OUTPUTS: program_names(translated, component)}


def translate(network: TracedNetwork) -> ONNXProgram:
    """Return the dynamo exporter's translation of a network, in memory.

    Raises:
        StageError: The program changes its inputs, or its number of outputs is not the
            recipe's.

    """
    component, shapes = network.component, _dynamic_shapes(network)
    export = partial(
        torch.onnx.export,
        args=network.example,
        dynamo=True,
        opset_version=network.settings.opset,
        input_names=[spec.name for spec in component.inputs],
        output_names=[spec.name for spec in component.outputs],
        dynamic_shapes=shapes,
        optimize=network.settings.optimize,
        verbose=False,
    )
    with _rarely_collected(), _pairs_sought_at_slices():
        if network.settings.exporter == "transformers":
            translated = export_patched(network, export, shapes)
        else:
            translated = export(network.copy)
    if translated is None:  # only dynamo=False returns None
        raise TypeError
    _check_signature(translated, component)
    if not network.settings.keep_paths:
        _make_public(translated.exported_program)
    return translated


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let Python seldom search for garbage while an exporter fills the memory.

    What it makes stays in use, and its garbage holds no weights.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _pairs_sought_at_slices() -> Iterator[None]:
    """Let onnxscript try its rule for two Slices at each Slice, not at each node.

    The rule never matches at another node, so the graph is the same. But it lists all
    nodes of the graph before it finds that out. On a graph of 4,700 nodes that was four
    fifths of the optimiser's time.
    """
    try:
        # Where the other exporter is chosen, nothing else imports onnxscript.
        from onnxscript.rewriter.rules.common import slice_split_rule

        match = slice_split_rule.match
    except (ImportError, AttributeError):  # another version has the rule elsewhere
        yield
        return

    def match_at_slice(
        model: onnx_ir.Model,
        graph: onnx_ir.Graph | onnx_ir.Function,
        node: onnx_ir.Node,
        **options: object,
    ) -> object:
        return match(model, graph, node, **options) if node.op_type == "Slice" else None

    slice_split_rule.match = match_at_slice
    try:
        yield
    finally:
        del slice_split_rule.match


def _make_public(exported: ExportedProgram) -> None:
    """Take the paths of this machine out of the calls that a program's nodes note."""
    for module in exported.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            if stack := node.meta.get("stack_trace"):
                node.meta["stack_trace"] = public(stack)


def _bare(exported: ExportedProgram) -> ExportedProgram:
    """Return a program with zeros for weights, which need no memory: one, repeated."""
    bare = copy.copy(exported)
    zeros: dict[str, torch.Tensor] = {}
    for name, value in exported.state_dict.items():
        zero = torch.zeros((), dtype=value.dtype).expand(value.shape)
        if isinstance(value, torch.nn.Parameter):
            zero = torch.nn.Parameter(zero, requires_grad=False)
        zeros[name] = zero
    bare._state_dict = zeros  # noqa: SLF001  # no public way
    bare._example_inputs = None  # noqa: SLF001  # they are drawn again
    return bare


def _dynamic_shapes(network: TracedNetwork) -> tuple[object, ...] | None:
    """Return the open axes of each argument of ``forward``."""
    inputs = network.component.inputs
    opened = [open_axes(spec.shape, network.settings) for spec in inputs]
    if not any(opened):
        return None
    shapes = [dict.fromkeys(axes, torch.export.Dim.DYNAMIC) or None for axes in opened]
    return _arguments(network.copy, shapes)


def _arguments(module: torch.nn.Module, shapes: Sequence[object]) -> tuple[object, ...]:
    """Nest `shapes` as ``forward`` takes its inputs: ``*rest`` is one argument."""
    parameters = inspect.signature(module.forward).parameters.values()
    named = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if len(shapes) == len(named):  # an empty ``*rest`` is no argument
        return tuple(shapes)
    return (*shapes[: len(named)], tuple(shapes[len(named) :]))


_SIGNS = str.maketrans({"*": "_x_", "/": "_over_", "+": "_plus_"})
"""Signs of a size, to what stands for them in the name of an axis."""


def open_axes(shape: Sequence[int | str], settings: ExportSettings) -> dict[int, str]:
    """Return the axes of a shape that an export leaves open, with a name for each."""
    return {
        axis: str(size).translate(_SIGNS)
        for axis, size in enumerate(shape)
        if isinstance(size, str) and symbol_of(size) in settings.dynamic
    }


def _check_signature(translated: ONNXProgram, component: Component) -> None:
    """Refuse a program that changes its inputs or has another number of outputs."""
    signature = translated.exported_program.graph_signature
    for name in signature.user_inputs_to_mutate.values():
        changed = component.inputs[signature.user_inputs.index(name)].name
        refuse_changed_input(component, changed)
    check_count(component, len(signature.user_outputs))


def program_names(translated: ONNXProgram, component: Component) -> dict[str, str]:
    """Return the program's value behind each output, before any identities."""
    values = translated.exported_program.graph_signature.user_outputs
    outputs = zip(values, component.outputs, strict=True)
    return {str(value): spec.name for value, spec in outputs}
