"""PyTorch to ONNX, by either exporter, and proof that nothing was lost on the way."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir
import torch
import xxhash

from harness.align import GraphValue, link
from harness.errors import StageError
from harness.export_files import MODEL, PROBES, PROTO_LIMIT_BYTES, WEIGHTS
from harness.outcome import Outcome
from harness.probes import Probe, save_probes
from harness.program import Program, program_of_export, program_of_module
from harness.spec import Component, ExportSettings, symbol_of

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

_OPSETS = {"dynamo": "18 or newer", "torchscript": "14 to 20"}
_MISSING_OP = re.compile(r"OpOverload\(op='([^']+)'|No ONNX function found for (\S+)")
_TS_MISSING_OP = re.compile(r"operator '?([\w:]+)'?")
_USER_LINE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export leaves behind in memory, besides its files."""

    program: Program
    probes: tuple[Probe, ...]


def export_onnx(
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
    folder: Path,
) -> Exported:
    """Write ``model.onnx``, perhaps ``weights.pb``, and ``probes.json`` to `folder`.

    Args:
        module: In eval mode; its ``forward`` takes `component.inputs` in order.
        component: Names of inputs and outputs.
        settings: Exporter, opset, open axes, attention.
        example: Inputs to trace with; sizes of open axes differ from one another.
        folder: Empty.

    Raises:
        StageError: The exporter refused, gave another opset than asked, or lost a
            weight; the message names operator and source line where it can.

    """
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    external = settings.external_data or size > PROTO_LIMIT_BYTES
    export = _by_dynamo if settings.exporter == "dynamo" else _by_torchscript
    with _quiet():
        try:
            exported = export(module, component, settings, example, folder, external)
        except StageError:
            raise
        except Exception as error:
            raise _refusal(component, settings, error) from error
        save_probes(exported.probes, folder / PROBES)
        _check(module, component, settings, folder)
    return exported


def _by_dynamo(  # one signature for both exporters
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
    folder: Path,
    external: bool,  # noqa: FBT001  # private, and both exporters take it
) -> Exported:
    translated = torch.onnx.export(
        module,
        example,
        dynamo=True,
        opset_version=settings.opset,
        input_names=[spec.name for spec in component.inputs],
        output_names=[spec.name for spec in component.outputs],
        dynamic_shapes=_dynamic_shapes(module, component, settings),
        verbose=False,
    )
    assert translated is not None  # the return is optional only for dynamo=False
    given = translated.model.opset_imports.get("")
    if given != settings.opset:
        _wrong_opset(component, settings, given)
    onnx_ir.save(
        translated.model,
        str(folder / MODEL),
        external_data=WEIGHTS if external else None,
    )
    program = program_of_export(translated.exported_program)
    values = _graph_values(folder / MODEL, _program_value)
    probes = link(program.probes, values, _output_names(translated, component))
    return Exported(program=program, probes=tuple(probes))


def _by_torchscript(  # one signature for both exporters
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
    folder: Path,
    external: bool,  # noqa: FBT001  # private, and both exporters take it
) -> Exported:
    torch.onnx.export(
        module,
        example,
        str(folder / MODEL),
        dynamo=False,
        opset_version=settings.opset,
        do_constant_folding=True,
        input_names=[spec.name for spec in component.inputs],
        output_names=[spec.name for spec in component.outputs],
        dynamic_axes=_dynamic_axes(component, settings),
        external_data=external,
    )
    if external:
        _gather_weights(folder)
    program = program_of_module(module, example)
    probes = link(program.probes, _graph_values(folder / MODEL, _module_scope), {})
    return Exported(program=program, probes=tuple(probes))


def _gather_weights(folder: Path) -> None:
    """Put a file a tensor, as that exporter writes them, into one `WEIGHTS`."""
    model = onnx_ir.load(folder / MODEL)
    scattered = {
        value.const_value.location
        for value in model.graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    onnx_ir.save(model, str(folder / MODEL), external_data=WEIGHTS)
    for location in scattered - {WEIGHTS}:
        (folder / str(location)).unlink(missing_ok=True)


def _dynamic_shapes(
    module: torch.nn.Module, component: Component, settings: ExportSettings
) -> Any:
    """Return, for each argument of ``forward``, its open axes."""
    open_axes = [_open_axes(spec.shape, settings) for spec in component.inputs]
    if not any(open_axes):
        return None
    shapes = [
        dict.fromkeys(axes, torch.export.Dim.DYNAMIC) or None for axes in open_axes
    ]
    return _arguments(module, shapes)


def _arguments(module: torch.nn.Module, shapes: list[Any]) -> tuple[Any, ...]:
    """Nest `shapes` as ``forward`` takes its inputs: ``*rest`` is one argument."""
    parameters = inspect.signature(module.forward).parameters.values()
    named = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if len(named) == len(list(parameters)):
        return tuple(shapes)
    return (*shapes[: len(named)], tuple(shapes[len(named) :]))


def _dynamic_axes(
    component: Component, settings: ExportSettings
) -> dict[str, dict[int, str]]:
    return {
        spec.name: axes
        for spec in (*component.inputs, *component.outputs)
        if (axes := _open_axes(spec.shape, settings))
    }


def _open_axes(shape: Sequence[int | str], settings: ExportSettings) -> dict[int, str]:
    return {
        axis: str(size).replace("*", "_x_").replace("/", "_over_")
        for axis, size in enumerate(shape)
        if isinstance(size, str) and symbol_of(size) in settings.dynamic
    }


def _output_names(translated: ONNXProgram, component: Component) -> dict[str, str]:
    """Return the program's value behind each output, identities looked through."""
    node = next(iter(reversed(translated.exported_program.graph.nodes)))
    names = {}
    for value, spec in zip(node.args[0], component.outputs, strict=True):
        names[value.name] = spec.name
    return names


def _graph_values(
    path: Path, origin_of: Callable[[onnx.NodeProto], str]
) -> list[GraphValue]:
    graph = onnx.load(path, load_external_data=False).graph
    outputs = {value.name for value in graph.output}
    users: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(origin_of(node))
    return [
        GraphValue(
            name=name,
            origin=origin_of(node),
            used_by=tuple(users.get(name, ())),
            is_output=name in outputs,
        )
        for node in graph.node
        for name in node.output
        if name
    ]


def _program_value(node: onnx.NodeProto) -> str:
    """Return the program's value that the dynamo exporter made a node for."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.fx_node":
            return entry.value.partition(" ")[0].strip("%")
    return ""


def _module_scope(node: onnx.NodeProto) -> str:
    """Return ``mid_block.conv`` of the TorchScript node ``/mid_block/conv/Conv``."""
    return node.name.rpartition("/")[0].strip("/").replace("/", ".")


def _check(
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    folder: Path,
) -> None:
    """Hold the file against the checker, the contract and the module's weights."""
    try:
        onnx.checker.check_model(str(folder / MODEL))
    except onnx.checker.ValidationError as error:
        _fail(f"{component.name}: onnx.checker refuses the export: {_first(error)}.")
    model = onnx_ir.load(folder / MODEL)
    if (given := model.opset_imports.get("")) != settings.opset:
        _wrong_opset(component, settings, given)
    for side, promised, found in (
        ("inputs", component.inputs, model.graph.inputs),
        ("outputs", component.outputs, model.graph.outputs),
    ):
        names, actual = [s.name for s in promised], [v.name for v in found]
        if names != actual:
            _fail(
                f"{component.name}: the exported graph has the {side} {actual}, the "
                f"component promises {names}. An input that the network does not use "
                "is dropped by the exporter."
            )
    lost = lost_weights(module, model)
    if lost:
        _fail(
            f"{component.name}: {len(lost)} weights of the module are not in the "
            f"exported file, the first is {lost[0]}. The {settings.exporter} exporter "
            "changed or dropped them; try the other exporter."
        )


def lost_weights(module: torch.nn.Module, model: onnx_ir.Model) -> list[str]:
    """Return parameters whose values no initialiser or constant holds.

    Equal by digest of the bytes; a matrix may be transposed. A parameter that no
    part of ``forward`` reads is in no graph, so only parameters with a gradient path
    to the outputs would have to be there; exporters keep names of unused ones out.
    """
    held = {_digest(data) for data in _tensors(model)}
    lost = []
    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        if _digest(array.tobytes()) in held:
            continue
        flipped = array.ndim == 2 and _digest(array.T.tobytes()) in held  # noqa: PLR2004  # a matrix
        if not flipped:
            lost.append(name)
    return lost


def _digest(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def _tensors(model: onnx_ir.Model) -> Iterator[bytes]:
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value.tobytes()
    for node in model.graph:
        if node.op_type == "Constant" and "value" in node.attributes:
            yield node.attributes["value"].as_tensor().tobytes()


def _wrong_opset(
    component: Component, settings: ExportSettings, given: int | None
) -> None:
    _fail(
        f"{component.name}: the {settings.exporter} exporter cannot write opset "
        f"{settings.opset} (it wrote {given}); it takes {_OPSETS[settings.exporter]}. "
        "Change `opset` or `exporter` under [export] in parity.toml."
    )


def _refusal(
    component: Component, settings: ExportSettings, error: Exception
) -> StageError:
    """Say which operator an exporter stopped at, and which line called it."""
    chain = list(_causes(error))
    text = "\n".join(str(cause) for cause in chain)
    if "opset" in text.lower() and "support" in text.lower():
        _wrong_opset(component, settings, None)
    operator = ""
    for pattern in (_MISSING_OP, _TS_MISSING_OP):
        if found := pattern.search(text):
            operator = next(group for group in found.groups() if group)
            break
    place = ""
    for file, line in _USER_LINE.findall(text):
        if "/torch/" not in file:
            place = f"{file.rpartition('site-packages/')[2]}:{line}"
    what = f" at {operator}" if operator else ""
    where = f" ({place})" if place else ""
    other = "torchscript" if settings.exporter == "dynamo" else "dynamo"
    reason = "" if operator else f": {_first(chain[-1])}"
    return StageError(
        f"{component.name} cannot be exported by the {settings.exporter} exporter: it "
        f'stops{what}{where}{reason}. Try exporter = "{other}", or rewrite that line.',
        outcome=Outcome.EXPORT,
        log=text,
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _first(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]


def _fail(message: str) -> None:
    raise StageError(message, outcome=Outcome.EXPORT)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' warnings in the stage's log, out of the user's way."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
