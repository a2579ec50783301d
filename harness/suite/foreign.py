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

from harness.core.case import (
    GIVEN,
    Case,
    Component,
    ExportSettings,
    Source,
    Taken,
    TensorSpec,
    Variant,
    symbol_of,
)
from harness.core.errors import SuiteError
from harness.core.foreign_files import weight_files
from harness.core.onnx_header import Port, read_header
from harness.core.runtime import EXACT, ONNX, formats, runtime
from harness.core.toml_file import Table
from harness.measure.name_map import Names, match
from harness.recipes import describe, discover
from harness.suite import schema
from harness.suite.tables import Binding, Planned


def read_taken(table: Table, said: schema.Component) -> Taken | None:
    """Read the files that ``[component.NAME]`` takes; None where it takes none.

    Raises:
        SuiteError: One is not there, or is no such file.

    """
    onnx = _file(table, ONNX, said.onnx)
    found = [
        (kind, _file(table, kind, table.take(kind, str, ""))) for kind in formats()
    ]
    converted = tuple((kind, path) for kind, path in found if path)
    if onnx or converted:
        names = tuple(sorted(said.names.items()))
        return Taken(onnx=onnx, converted=converted, names=names)
    if said.names:
        kinds = " or ".join(f"`{kind}`" for kind in (ONNX, *formats()))
        text = f"there are names, and no {kinds} file that has them."
        raise table.table("names").error(text)
    return None


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


def _file(table: Table, kind: str, given: str) -> Path | None:
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
    all of MNN's variants, become ``given``, with the profiles of a
    ``[variant.*.given]`` if there is one. What others are made from is then the ONNX
    file; without one, ONNX Runtime has nothing to run.

    Raises:
        SuiteError: Nothing is left.

    """
    taken = component.taken
    if taken is None:
        return made_alone(planned)
    written = {p.variant.backend: p for p in planned if p.variant.kind == GIVEN}
    plans: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        backend, kind = plan.variant.backend, plan.variant.kind
        declared = runtime(backend)
        theirs = taken.of(declared.reads)
        if theirs is None and taken.onnx is None:
            continue
        # What it is made from is not given with a converted file.
        as_is = kind in {EXACT, GIVEN} or declared.own_format is not None
        if as_is and theirs:
            variant = Variant(name=GIVEN, backend=backend, kind=GIVEN)
            plan = replace(written.get(backend, plan), variant=variant)  # noqa: PLW2901  # the same plan
        elif kind == GIVEN:
            continue
        plans.setdefault((backend, plan.variant.name), plan)
    if not plans:
        text = (
            f"[component.{component.name}] takes an {_title(taken)}, and the suite "
            f"asks for no [backend.{_reader(taken)}] to run it."
        )
        raise table.error(text)
    return tuple(plans.values())


def _reader(taken: Taken) -> str:
    (kind, _), *_ = taken.converted
    return formats()[kind].name


def _title(taken: Taken) -> str:
    own = runtime(_reader(taken)).own_format
    return own.title if own else ""


def made_alone(planned: Sequence[Planned]) -> tuple[Planned, ...]:
    """Return the plans of files that the harness makes, without those of others."""
    return tuple(plan for plan in planned if plan.variant.kind != GIVEN)


def check_given(
    variants: Table, planned: Sequence[Planned], cases: Sequence[Case]
) -> None:
    """Refuse ``[variant.*.given]`` where no component takes a file for that runtime.

    Raises:
        SuiteError: Naming the table's line.

    """
    taken = {case.backend for case in cases if case.variant.kind == GIVEN}
    for backend in {p.variant.backend for p in planned if p.variant.kind == GIVEN}:
        if backend not in taken:
            text = (
                f"{GIVEN!r} is what a file of others is called, and no [component.*] "
                f"takes one that {backend} runs; name one there, or take this out."
            )
            raise variants.table(backend).error(text, GIVEN)


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
    names = match(
        component, _called(path), header.inputs, header.outputs, whose=whose_file
    )
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


def whose_file(
    component: Component, inputs: Sequence[Port], outputs: Sequence[Port]
) -> str:
    """Return another recipe of the same checkpoint whose names a file has."""
    source = component.source
    try:
        recipes = [name for name in discover(source) if name != component.recipe]
        others = [describe(name, name, source) for name in recipes]
    except SuiteError:  # it has no checkpoint, or one that is not whole
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
