"""Read which files of others a component takes, and what follows for its cases.

[component.unet]
onnx = "exported/unet/model.onnx"
mnn = "exported/unet.mnn"

[component.unet.names]       # the recipe's name = the file's
timestep = "t"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.errors import SuiteError
from harness.files.onnx_header import read_header
from harness.matrix import Binding, Planned
from harness.names import Names, match
from harness.spec import (
    GIVEN,
    Component,
    ExportSettings,
    Source,
    Taken,
    TensorSpec,
    Variant,
    symbol_of,
)
from harness.taken.files import weight_files
from harness.toml_file import Table

TAKEN_KEYS: Final = ("onnx", "mnn", "names")


def read_taken(table: Table) -> Taken | None:
    """Read the files that ``[component.NAME]`` takes; None where it takes none.

    Raises:
        SuiteError: One is not there, or is no such file.

    """
    paths = {kind: _file(table, kind) for kind in ("onnx", "mnn")}
    names = table.table("names")
    pairs = tuple(sorted((name, names.take(name, str)) for name in names.data))
    if not any(paths.values()):
        if pairs:
            text = "there are names, and no `onnx` or `mnn` file that has them."
            raise names.error(text)
        return None
    return Taken(onnx=paths["onnx"], mnn=paths["mnn"], names=pairs)


def are_given(components: Table) -> bool:
    """Whether there are files to test that need no checkpoint to be held against."""
    return any("onnx" in components.table(name) for name in components.data)


def source_of_file(table: Table, taken: Taken | None) -> Source:
    """Return the ONNX file itself as what a component is held against.

    Raises:
        SuiteError: There is none.

    """
    if taken is None or taken.onnx is None:
        text = (
            "without a [source] a component is held against its own ONNX file; give "
            '`onnx = "path"`, or a `checkpoint` under [source].'
        )
        raise table.error(text)
    return Source(path=taken.onnx)


def _file(table: Table, kind: str) -> Path | None:
    given = table.take(kind, str, "")
    if not given:
        return None
    path = (table.file.path.parent / Path(given).expanduser()).resolve()
    try:
        weight_files(path, kind)
    except SuiteError as error:
        raise table.error(str(error), kind) from None
    return path


def taken_plans(
    table: Table, component: Component, planned: Sequence[Planned]
) -> tuple[Planned, ...]:
    """Return what runs of a component whose files are taken, `planned` without.

    A file as it is takes the place of what would be made: ONNX Runtime's ``fp32``, or
    all of MNN's variants, become ``given``. What others are made from is then the ONNX
    file; without one, ONNX Runtime has nothing to run.

    Raises:
        SuiteError: Nothing is left.

    """
    taken = component.taken
    if taken is None:
        return tuple(planned)
    plans: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        backend, kind = plan.variant.backend, plan.variant.kind
        if backend == "onnxruntime" and taken.onnx is None:
            continue
        as_is = kind == "fp32" if backend == "onnxruntime" else taken.mnn is not None
        if as_is:
            variant = Variant(name=GIVEN, backend=backend, kind=GIVEN)
            plan = replace(plan, variant=variant)  # noqa: PLW2901  # the same plan
        plans.setdefault((backend, plan.variant.name), plan)
    if not plans:
        text = (
            f"[component.{component.name}] takes an MNN file, and the suite asks for "
            "no [backend.mnn] to run it."
        )
        raise table.error(text)
    return tuple(plans.values())


def as_taken(
    component: Component, settings: ExportSettings, bindings: Sequence[Binding]
) -> ExportSettings:
    """Return settings whose open axes are those that a taken ONNX file leaves open.

    Raises:
        SuiteError: The file's names are not the recipe's, or it fixes other sizes than
            the suite asks for.

    """
    if component.taken is None or component.taken.onnx is None:
        return settings
    path = component.taken.onnx
    header = read_header(path)
    names = match(component, _called(path), header.inputs, header.outputs)
    for binding in bindings:
        _check_sizes(component, names, binding)
    fixed = {
        symbol
        for spec, _, size in _sides(component, names)
        if isinstance(size, int)
        for symbol in (symbol_of(spec),)
    }
    symbols = dict.fromkeys(s for spec in component.inputs for s in spec.symbols)
    return replace(settings, dynamic=tuple(s for s in symbols if s not in fixed))


def _sides(
    component: Component, names: Names
) -> Collection[tuple[str, str, int | str]]:
    """Return each symbol's text, the input it is in, and the file's size there."""
    specs = {spec.name: spec for spec in component.inputs}
    return [
        (size, one.name, theirs)
        for one in names.inputs
        if one.shape is not None and len(one.shape) == len(specs[one.given].shape)
        for size, theirs in zip(specs[one.given].shape, one.shape, strict=True)
        if isinstance(size, str)
    ]


def _check_sizes(component: Component, names: Names, binding: Binding) -> None:
    """Refuse sizes that the file does not take: an axis that it fixes stays so."""
    for size, name, theirs in _sides(component, names):
        asked = TensorSpec(name=name, shape=(size,)).bind(binding.sizes)[0]
        if isinstance(theirs, int) and theirs != asked:
            text = (
                f"{component.name} is asked for {size} = {asked}, and its file fixes "
                f"that axis of {name!r} at {theirs}: only that can be tested. Give it "
                f"[[component.{component.name}.shapes]] of its own, or export it with "
                "this axis open."
            )
            raise binding.table.error(text)


def _called(path: Path) -> str:
    """Return a path as short as it tells files apart: ``unet/model.onnx``."""
    return f"{path.parent.name}/{path.name}"
