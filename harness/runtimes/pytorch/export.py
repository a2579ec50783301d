"""Export from PyTorch to ONNX, by either exporter, and proof that nothing is lost."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir
import torch

from harness.core.case import Component, ExportSettings
from harness.core.contract import breach
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.core.probes import Probe, save_probes
from harness.engine.export_files import MODEL, PROBES, PROTO_LIMIT_BYTES, WEIGHTS
from harness.measure.align import link
from harness.measure.named_arrays import Run
from harness.runtimes.graph.notes import make_public
from harness.runtimes.graph.onnx_graph import (
    graph_values,
    module_scope,
    program_value,
    sides_of,
)
from harness.runtimes.pytorch.export_errors import refusal, wrong_opset
from harness.runtimes.pytorch.program import Program, program_of_export
from harness.runtimes.pytorch.submodules import program_of_module
from harness.runtimes.pytorch.translation import (
    TracedNetwork,
    keep,
    open_axes,
    program_names,
    translate,
)
from harness.runtimes.pytorch.weights import lost_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The objects that an export leaves in memory, besides its files."""

    program: Program
    probes: tuple[Probe, ...]


def export_onnx(
    network: TracedNetwork,
    folder: Path,
    *,
    run: Run | None = None,
    sizes: tuple[tuple[str, int], ...] = (),
) -> Exported:
    """Write ``model.onnx``, perhaps ``weights.pb``, and ``probes.json`` to a folder.

    `run` is PyTorch's module, which is called at `sizes` if an input is lost.

    Raises:
        StageError: The exporter refused, wrote another opset than requested, or lost a
            weight; the message names operator and source line where it can.

    """
    component, settings = network.component, network.settings
    size = sum(p.numel() * p.element_size() for p in network.copy.parameters())
    external = settings.external_data or size > PROTO_LIMIT_BYTES
    traced = settings.exporter == "torchscript"
    export = _by_torchscript if traced else _by_dynamo
    with quiet():
        try:
            exported = export(network, folder, external=external)
        except StageError:
            raise
        except Exception as error:
            raise refusal(component, settings, error) from error
        if not settings.keep_paths:
            _make_public(folder / MODEL)
        save_probes(exported.probes, folder / PROBES)
        sides = sides_of(folder / MODEL)
        if words := breach(
            component,
            settings,
            sides,
            where="the exported graph",
            run=run,
            sizes=sizes,
        ):
            _fail(words)
        _check(network, folder)
    return exported


def _make_public(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    if make_public(model):
        path.write_bytes(model.SerializeToString())


def _by_dynamo(network: TracedNetwork, folder: Path, *, external: bool) -> Exported:
    translated = translate(network)
    keep(network, translated)
    given = translated.model.opset_imports.get("")
    if given != network.settings.opset:
        raise wrong_opset(network.component, network.settings, given)
    onnx_ir.save(
        translated.model,
        str(folder / MODEL),
        external_data=WEIGHTS if external else None,
    )
    program = program_of_export(translated.exported_program)
    values = graph_values(folder / MODEL, program_value)
    outputs = program_names(translated, network.component)
    probes = link(program.probes, values, outputs, program.shapes)
    return Exported(program=program, probes=tuple(probes))


def _by_torchscript(
    network: TracedNetwork, folder: Path, *, external: bool
) -> Exported:
    component = network.component
    # PyTorch takes no number as a name, and a part of a tuple has no other.
    numbers = {
        spec.name: f"output.{spec.name}"
        for spec in component.outputs
        if spec.name.isdigit()
    }
    axes = _dynamic_axes(component, network.settings)
    torch.onnx.export(
        network.copy,
        network.example,
        str(folder / MODEL),
        dynamo=False,
        opset_version=network.settings.opset,
        do_constant_folding=True,
        input_names=[spec.name for spec in component.inputs],
        output_names=[numbers.get(one.name, one.name) for one in component.outputs],
        dynamic_axes={numbers.get(name, name): one for name, one in axes.items()},
        external_data=external,
    )
    if external:
        _gather_weights(folder)
    if numbers:
        _rename(folder / MODEL, {made: name for name, made in numbers.items()})
    program = program_of_module(network.copy, network.example)

    def module_of(node: onnx.NodeProto) -> str:
        return program.scopes.get(module_scope(node), "")

    probes = link(program.probes, graph_values(folder / MODEL, module_of), {})
    return Exported(program=program, probes=tuple(probes))


def _rename(path: Path, names: dict[str, str]) -> None:
    """Give values of a file other names."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        for held in (node.input, node.output):
            held[:] = [names.get(name, name) for name in held]
    for output in model.graph.output:
        output.name = names.get(output.name, output.name)
    path.write_bytes(model.SerializeToString())


def _gather_weights(folder: Path) -> None:
    """Join the files that the exporter writes, one for each tensor, in `WEIGHTS`."""
    model = onnx_ir.load(folder / MODEL)
    scattered = {
        value.const_value.location
        for value in model.graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    onnx_ir.save(model, str(folder / MODEL), external_data=WEIGHTS)
    for location in scattered - {WEIGHTS}:
        (folder / str(location)).unlink(missing_ok=True)


def _dynamic_axes(
    component: Component, settings: ExportSettings
) -> dict[str, dict[int, str]]:
    return {
        spec.name: axes
        for spec in (*component.inputs, *component.outputs)
        if (axes := open_axes(spec.shape, settings))
    }


def _check(network: TracedNetwork, folder: Path) -> None:
    """Refuse a file that is invalid or lost one of the module's weights."""
    component, settings = network.component, network.settings
    try:
        onnx.checker.check_model(str(folder / MODEL))
    except onnx.checker.ValidationError as error:
        _fail(
            f"{component.name}: onnx.checker refuses the export: {first_line(error)}."
        )
    model = onnx_ir.load(folder / MODEL)
    if (given := model.opset_imports.get("")) != settings.opset:
        raise wrong_opset(component, settings, given)
    _refuse_squeezed(component, settings, model)
    lost = lost_weights(network.copy, network.example, model)
    if lost:
        _fail(
            f"{component.name}: {len(lost)} weights of the module are not in the "
            f"exported file, the first is {lost[0]}. The {settings.exporter} exporter "
            "changed or dropped them; try the other exporter."
        )


def _refuse_squeezed(
    component: Component, settings: ExportSettings, model: onnx_ir.Model
) -> None:
    """Refuse a Squeeze of an axis whose size is not 1, which no runtime accepts.

    PyTorch's squeeze leaves such an axis as it is, but dynamo translates the operator.
    """
    for node in model.graph.all_nodes():
        if node.op_type != "Squeeze" or len(node.inputs) == 1:
            continue
        value, axes = node.inputs[:2]
        known = axes and onnx_ir.convenience.get_const_tensor(axes)
        if not value or value.shape is None or known is None:
            continue
        sizes = [value.shape[axis] for axis in known.numpy().reshape(-1).tolist()]
        wrong = [size for size in sizes if isinstance(size, int) and size != 1]
        if wrong:
            _fail(
                f"{component.name}: the {settings.exporter} exporter writes a squeeze "
                f"of an axis of {wrong[0]}, which changes nothing, as the operator "
                f"Squeeze ({node.name}), which every runtime refuses. Try exporter = "
                '"torchscript" with dynamic_axes = [], or rewrite that line.'
            )


def _fail(message: str) -> None:
    raise StageError(message, outcome=Outcome.EXPORT)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporters' warnings in the stage's log, where users do not see them."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
