"""Read the foreign files of a component, and adapt its cases to them.

[component.unet]
onnx = "exported/unet/model.onnx"
mnn = "exported/unet.mnn"

[component.unet.names]       # the recipe's name = the file's
timestep = "t"

Each function raises `SuiteError`, with file and line, if a table or a file is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.case import (
    ONNX,
    Component,
    ExportSettings,
    ForeignModel,
    Source,
    TensorSpec,
    symbol_of,
)
from harness.core.errors import SuiteError
from harness.core.onnx_header import read_header
from harness.core.onnx_ports import Port
from harness.core.runtime import EXACT, formats, runtime
from harness.core.toml_file import KINDS, shown
from harness.measure.name_map import Names
from harness.plugins.foreign.files.beside import lacking, weight_bytes, weight_files
from harness.plugins.foreign.files.names import match
from harness.recipes import GENERATES, describe, discover
from harness.recipes.text.folder import is_encoder
from harness.suite.files import FileReader
from harness.suite.schema import ComponentTable, ExportTable, SuiteFile
from harness.suite.tables import Binding, Planned, path_beside

if TYPE_CHECKING:
    from harness.runtimes.pytorch.export import Exported
    from harness.runtimes.pytorch.translation import TracedNetwork

_NEWEST_TRANSLATED = 25
"""The newest opset for which PyTorch 2.13's dynamo exporter translates a module."""


def _read(
    file: SuiteFile, table: ComponentTable
) -> tuple[ForeignModel | None, Source | None]:
    """Return the files of a table, and the reference without a [source].

    The reference is the ONNX file that the table names for that, or its own.
    """
    has_source = bool(file.source.named_by or table.captured)
    if not has_source and not any(one.captured for one in file.component.values()):
        _refuse_exports(file.export)
    model = _model(table)
    _refuse_export(table, model, has_source=has_source)
    if has_source:
        if table.reference:
            text = (
                "with a [source], `onnx` is compared with PyTorch; take "
                "`reference` out, or compare the two files in a suite without a "
                "[source]."
            )
            raise table.error(text, "reference")
        return model, None
    if model is None or model.onnx is None:
        text = (
            "without a [source] a component is compared with its own ONNX file; "
            'give `onnx = "path"`, or a `checkpoint` under [source].'
        )
        raise table.error(text)
    other = _file(table, ONNX, table.reference, "reference")
    return model, Source(path=other or model.onnx)


def _plans(
    table: ComponentTable, model: ForeignModel, planned: Sequence[Planned]
) -> tuple[Planned, ...]:
    """Return the plans of a component with foreign files.

    A foreign file replaces the file that would be made. ONNX Runtime's ``fp32``, or
    all of MNN's variants, become ``given``, with the profiles of ``[variant.*.given]``
    if there is one. Other variants are then made from the ONNX file. Without an ONNX
    file, ONNX Runtime has nothing to run.
    """
    plans: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        backend = plan.variant.backend
        declared = runtime(backend)
        theirs = model.of(declared.reads)
        if theirs is None and model.onnx is None:
            continue
        # A converted file comes without the file that it was made from.
        as_is = plan.variant.kind == EXACT or declared.own_format is not None
        found = plan.as_given() if as_is and theirs else plan
        plans.setdefault((backend, found.how), found)
    if not plans:
        kind = model.converted[0][0]
        reader = formats()[kind]
        title = reader.own_format.title if reader.own_format else kind
        text = (
            f"[{table.place.name}] takes an {title}, and the suite has no "
            f"[backend.{reader.name}] to run it."
        )
        raise table.error(text)
    return tuple(plans.values())


def _settings(
    component: Component, export: ExportSettings, sizes: Sequence[Binding]
) -> ExportSettings:
    """Return settings with the open axes of a foreign ONNX file."""
    if component.foreign is None or component.foreign.onnx is None:
        return export
    path = component.foreign.onnx
    file, header = f"{path.parent.name}/{path.name}", read_header(path)
    names = match(component, file, header.inputs, header.outputs, whose=whose_file)
    fixed = _fixed(component, names)
    for binding, (size, name, theirs) in product(sizes, fixed):
        wanted = TensorSpec(name=name, shape=(size,)).bind(binding.sizes)[0]
        if theirs != wanted:
            text = (
                f"{component.name} is to run at {size} = {wanted}, and its file fixes "
                f"that axis of {name!r} at {theirs}: only that can be tested. Give it "
                f"[[component.{component.name}.shapes]] of its own, or export it with "
                "this axis open."
            )
            raise binding.table.error(text)
    closed = {symbol_of(size) for size, _, _ in fixed}
    symbols = dict.fromkeys(s for spec in component.inputs for s in spec.symbols)
    return replace(
        export,
        # Which operators the exporter writes as one depends on the opset, so PyTorch's
        # module is translated for that of the file.
        opset=min(max(header.opset, ExportSettings().opset), _NEWEST_TRANSLATED),
        dynamic=tuple(s for s in symbols if s not in closed),
    )


def _export(network: TracedNetwork, folder: Path) -> Exported:
    """Put a network's file into an empty folder, and line it up with PyTorch."""
    from harness.plugins.foreign.files.lineup import take_file

    return take_file(network, folder)


def _model(table: ComponentTable) -> ForeignModel | None:
    """Return the files of ``[component.NAME]``; None if there are none."""
    onnx = _file(table, ONNX, table.onnx)
    named = {kind: table.others.get(kind, "") for kind in formats()}
    files = [(kind, _file(table, kind, file)) for kind, file in named.items()]
    converted = tuple((kind, path) for kind, path in files if path)
    if onnx or converted:
        names = tuple(sorted(table.names.items()))
        model = ForeignModel(onnx=onnx, converted=converted, names=names)
        return replace(model, weight_bytes=weight_bytes(*model.files[0]))
    if table.names:
        kinds = " or ".join(f"`{kind}`" for kind in (ONNX, *formats()))
        text = f"there are names, and no {kinds} file that has them."
        raise table.error(text, "names")
    return None


def _refuse_export(
    table: ComponentTable, model: ForeignModel | None, *, has_source: bool
) -> None:
    """Refuse settings of an export under a component whose file is finished.

    PyTorch's module is still translated to find its values in the file, so `attention`
    is of use with a [source]. Beside an ``.mnn`` file alone, nothing else says which
    axes are open and which operators the exporter knew.
    """
    if model is None:
        return
    keys = ["exporter", "external_data", "keep_paths"]
    if model.onnx:
        keys += ["opset", "dynamic_axes"]
    if not has_source:
        keys.append("attention")
    for key in keys:
        if key in table:
            kind, path = model.files[0]
            text = (
                f"{key!r} is a setting of an export, and {table.place.name} takes the "
                f"finished file {path.name} (`{kind}`), which nothing exports anew: "
                "take it out, or set it where that file is exported."
            )
            raise table.error(text, key)


def _refuse_exports(table: ExportTable) -> None:
    """Refuse ``[export]`` in a suite without a [source], which exports nothing."""
    for key in table.place.data:
        text = (
            f"{key!r} is a setting of an export, and without a [source] each component "
            "is a finished file, which nothing exports anew: take [export] out."
        )
        raise table.error(text, key)


def _file(
    table: ComponentTable, kind: str, named: object, key: str = ""
) -> Path | None:
    # In the schema, the key of a runtime's format counts as an option of the recipe.
    if not isinstance(named, str):
        text = f"{kind!r} must be {KINDS[str]}, got {shown(named)}."
        raise table.error(text, key or kind)
    if not named:
        return None
    path = path_beside(table, key or kind, named).resolve()
    with table.place.errors_at(key or kind):
        weight_files(path, kind)
    return path


def whose_file(
    component: Component, inputs: Sequence[Port], outputs: Sequence[Port]
) -> str:
    """Return another recipe of the checkpoint that has the file's names, or ""."""
    source = component.source
    try:
        recipes = [*discover(source), *(GENERATES if is_encoder(source) else ())]
        recipes = [name for name in recipes if name != component.recipe]
        others = [describe(name, name, source) for name in recipes]
    except SuiteError:  # there is no checkpoint, or it is incomplete
        return ""
    takes, gives = {port.name for port in inputs}, {port.name for port in outputs}
    return next(
        (
            other.name
            for other in others
            if {spec.name for spec in other.inputs} == takes
            and gives & {spec.name for spec in other.outputs}
        ),
        "",
    )


def _fixed(component: Component, names: Names) -> list[tuple[str, str, int]]:
    """Return each symbol's text, its input and its size, where the file fixes it."""
    specs = {spec.name: spec for spec in component.inputs}
    return [
        (size, one.name, theirs)
        for one in names.inputs
        if one.shape is not None and len(one.shape) == len(specs[one.given].shape)
        for size, theirs in zip(specs[one.given].shape, one.shape, strict=True)
        if isinstance(size, str) and isinstance(theirs, int)
    ]


FILES = FileReader(
    prepare="harness.plugins.foreign.files.onnx_reference:prepare_given",
    take="harness.plugins.foreign.files.take:take",
    read=_read,
    plans=_plans,
    settings=_settings,
    lacking=lacking,
    export=_export,
)
