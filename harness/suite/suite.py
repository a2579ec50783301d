"""Read parity.toml, and return the cases to test.

Every pytest collection reads the suite, so this module imports no numpy and no
framework.

    components = ["unet", "vae_decoder"]     # left out: all that the checkpoint has
    [source]                                 # `checkpoint`, `hub` or `package`; and
                                             # perhaps `seed`, `lora`
    [export]                                 # how PyTorch becomes ONNX
    [[shapes]]                               # sizes for the symbols; one or more
    [inputs]                                 # profiles, realistic, seed, more_sizes
    [backend.mnn]                            # variants, device, threads, ...
    [target.phone]                           # command
    [variant.mnn.int4-hqq]                   # from, flags, profiles
    [pipeline.text2img]                      # prompts, steps, scheduler, ...
    [component.text_encoder]                 # export settings, recipe options, or
                                             # foreign files: onnx, mnn, names
    [limits]                                 # timeout_s, coverage, jobs, memory_gib
    [files]                                  # tolerances, known_gaps

`parity init` writes one with a comment on every key.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.core.case import (
    CAPTURED,
    GIVEN,
    Case,
    Component,
    Device,
    ExportSettings,
    Source,
)
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.errors import ParityError, SuiteError
from harness.core.runtime import formats
from harness.core.settings import SUITE_FILE
from harness.core.toml_file import TomlFile, did_you_mean
from harness.core.toml_schema import read
from harness.recipes import RECIPES, deployed_as, describe, discover
from harness.suite import schema
from harness.suite.end_to_end import end_to_end_cases, roles_of
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.extra_inputs import with_worst
from harness.suite.files import file_reader, read_files
from harness.suite.shapes import check_fit, with_more_sizes
from harness.suite.source import captured_source, check_source, read_source
from harness.suite.tables import (
    Binding,
    Planned,
    calibration_samples,
    check_used,
    chosen_of,
    file_beside,
    narrow,
    read_bindings,
    read_export,
    read_reference,
    read_variants,
    samples,
    symbols_of,
    without_sizes,
)

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

FILE: Final = SUITE_FILE
_EXPORT_KEYS: Final = frozenset(schema.ExportTable.__struct_fields__)
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A parsed parity.toml.

    Attributes:
        path: The file.
        name: The name of its folder.
        source: The origin of the weights; a hub id is resolved to its folder.
        export: The settings of ``[export]``; each case has its component's settings.
        cases: In file order: component, then backend, then variant.
        pipeline_cases: End-to-end cases, in file order.
        tolerances_path: The file of tolerances; a run fails if it does not exist.
        gaps_path: The file of known gaps; if it does not exist, there are no gaps.
        limits: Limits on time, memory, coverage and jobs.
        left_out: Component and ``backend/variant`` of what the suite runs, but not for
            this component, because the `variants` of its table leave it out.

    """

    path: Path
    name: str
    source: Source
    export: ExportSettings
    cases: tuple[Case, ...] = field(repr=False)
    pipeline_cases: tuple[EndToEndCase, ...] = field(repr=False)
    tolerances_path: Path
    gaps_path: Path
    limits: schema.Limits
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def components(self) -> tuple[Component, ...]:
        """Each component once, in order."""
        return tuple(
            {case.component.name: case.component for case in self.cases}.values()
        )

    @property
    def tested(self) -> tuple[Tested, ...]:
        """Everything that has an id: cases of components, then cases of pipelines."""
        return (*self.cases, *self.pipeline_cases)

    def select(self, patterns: Iterable[str]) -> tuple[Tested, ...]:
        """Return the cases that any of `patterns` means; all without a pattern.

        A pattern with ``*``, ``?`` or ``[`` is a shell pattern for whole ids. Any other
        pattern means the ids that have it as whole parts (``unet``, ``unet/mnn``). If
        there are none, it means the ids that contain it (``int8``). So ``unet`` does
        not mean ``controlled_unet``.

        Raises:
            SuiteError: A pattern means no case.

        """
        ids = [case.id for case in self.tested]
        chosen: set[str] = set()
        patterns = tuple(patterns)
        for pattern in patterns:
            if not (meant := _meant(pattern, ids)):
                close = difflib.get_close_matches(pattern.lower(), ids, n=3, cutoff=0.3)
                msg = (
                    f"no case of {self.path} matches {pattern!r}; the nearest are "
                    f"{', '.join(close or ids[:3])}."
                )
                raise SuiteError(msg)
            chosen |= meant
        return tuple(c for c in self.tested if not patterns or c.id in chosen)

    def checks(self, *whats: str) -> list[ParameterSet]:
        """Return parameters with ids for ``pytest.mark.parametrize``, a `Check` each.

        Without `whats`, these are all checks of all cases. With `whats`, only the named
        checks: ``layers`` and ``outputs`` of components, ``latents`` and ``image`` of
        pipelines.
        """
        import pytest

        return [
            pytest.param(check, id=check.id)
            for case in self.tested
            for what in case.whats
            if not whats or what in whats
            for check in (Check(suite=self, case=case, what=what),)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A test's parameter: one check of one case, one of the case's `whats`."""

    suite: Suite = field(repr=False)
    case: Tested
    what: str

    @property
    def id(self) -> str:
        """The id ``component/backend/variant/what``, which ``-k`` selects on."""
        return f"{self.case.id}/{self.what}"


def load_suite(path: Path) -> Suite:
    """Read parity.toml, or the one in the folder `path`.

    Raises:
        SuiteError: The file is missing or wrong. The message names file and line.

    """
    if path.is_dir():
        path /= FILE
    if not path.exists():
        msg = f"there is no suite at {path}; `parity init` writes one."
        raise SuiteError(msg)
    # All keys are checked before any is looked up, because an error about a misspelt
    # table is more useful than one about the keys that are missing because of it.
    file = read(TomlFile.load(path).root, schema.SuiteFile)
    source = read_source(file)
    roles = roles_of(file.pipeline, source)
    names = _component_names(file, source, roles)
    components = _components(file, names, source)
    # A suite that lists no components tests all that the checkpoint has.
    check_source(file.source, source, components, roles, listed="components" in file)
    usual, symbols = deployed_as(source), symbols_of(*components)
    export = read_export(file.export, usual, symbols)
    shared = read_bindings(file.shapes, symbols)
    reference = read_reference(file)
    planned = read_variants(file, names)
    cases: list[Case] = []
    left_out: list[tuple[str, str]] = []
    for component in components:
        name, table = component.name, _table(file, component.name)
        plans = planned
        if component.foreign:
            plans = file_reader().plans(table, component.foreign, planned)
        plans = tuple(plan for plan in plans if plan.is_for(name))
        ran = chosen_of(table, plans, name)
        left_out += [(name, plan.word) for plan in plans if plan not in ran]
        own = symbols_of(component)
        bindings = read_bindings(table.shapes, own) or shared
        if not own:
            bindings = (without_sizes(file),)
        if not bindings:
            text = f"no [[shapes]] gives sizes to {', '.join(own)} of {name!r}."
            raise file.error(text)
        cases += _cases(
            component,
            ran,
            bindings=bindings,
            export=read_export(table, export, own),
            inputs=file.inputs,
            reference=reference,
        )
    _check_given(file, cases)
    cases = with_more_sizes(cases, file.inputs)
    cases = with_worst(cases, path.parent / WORST_INPUTS)
    of = {case.component.recipe: case for case in reversed(cases)}

    def siblings(role: str) -> Case:
        """Return a case of the component that takes a pipeline's role."""
        if role in of:
            return of[role]
        component = describe(role, role, source)
        settings = read_export(_table(file, role), export, symbols_of(component))
        return replace(cases[0], component=component, export=settings, samples=())

    end_to_end = end_to_end_cases(file, source, siblings, planned, cases)
    tolerances, gaps = _files(file.files)
    return Suite(
        path=path,
        name=path.resolve().parent.name,
        source=source,
        export=export,
        cases=tuple(cases),
        pipeline_cases=end_to_end,
        tolerances_path=tolerances,
        gaps_path=gaps,
        limits=file.limits,
        left_out=tuple(left_out),
    )


def _cases(
    component: Component,
    planned: Sequence[Planned],
    *,
    bindings: tuple[Binding, ...],
    export: ExportSettings,
    inputs: schema.InputsTable,
    reference: Device,
) -> list[Case]:
    """Return the cases of a component, one for each plan."""
    bindings = narrow(bindings, component)
    check_fit(component, bindings)
    if component.foreign:
        export = file_reader().settings(component, export, bindings)
    cases = [
        Case(
            component=component,
            export=export,
            variant=plan.variant,
            device=plan.device,
            samples=samples(plan.profiles, bindings, inputs),
            reference=reference,
            # A scale depends on values, not on sizes, so the first shapes do.
            calibration=calibration_samples(plan.variant, bindings[0].shapes, inputs),
            where=plan.where,
        )
        for plan in planned
    ]
    drawn = [sample for case in cases for sample in case.samples]
    check_used(component.name, bindings, drawn, inputs)
    return cases


def _meant(pattern: str, ids: Collection[str]) -> set[str]:
    """Return the ids that `pattern` means, by the first rule that finds any."""
    sought = pattern.lower()
    if _GLOB.search(sought):
        return {name for name in ids if fnmatchcase(name, sought)}
    whole = {name for name in ids if f"/{sought.strip('/')}/" in f"/{name}/"}
    return whole or {name for name in ids if sought in name}


def _table(
    file: schema.SuiteFile, name: str, *where: str | int
) -> schema.ComponentTable:
    """Return ``[component.NAME]``; without it, an empty table at the place `where`."""
    empty = replace(file.place, data={}, at=where)
    return file.component.get(name) or read(empty, schema.ComponentTable)


def _component_names(
    file: schema.SuiteFile, source: Source, roles: Collection[str]
) -> tuple[str, ...]:
    """Return the listed components, or all components and those of own recipes."""
    bare = not file.source.named_by
    own = [
        name
        for name, table in file.component.items()
        if bare or table.recipe or table.captured
    ]
    found: tuple[str, ...] = ()
    try:
        found = () if bare else discover(source)
    except SuiteError as error:
        # A user's own recipe needs no diffusers folder.
        if not own or not source.path.is_dir():
            raise file.source.error(str(error), file.source.named_by) from None
    known = dict.fromkeys((*RECIPES, *own))
    file.check_options("components", known)
    names = file.components or tuple(dict.fromkeys((*found, *own)))
    for name, table in file.component.items():
        # A component of pipelines only is exported too, so its export can be set.
        is_exported = name in roles and not set(table.place.data) - _EXPORT_KEYS
        if name not in names and not is_exported:
            hint = did_you_mean(name, names)
            if name in known:
                hint = "list it in `components`, or remove this."
            text = f"there is no component {name!r} here; {hint}"
            raise table.error(text)
    return names


def _components(
    file: schema.SuiteFile, names: Sequence[str], source: Source
) -> tuple[Component, ...]:
    listed = "components" in file
    return tuple(
        _described(name, file, _table(file, name, *where), source)
        for index, name in enumerate(names)
        for where in (("components", index) if listed else ("source",),)
    )


def _described(
    name: str,
    file: schema.SuiteFile,
    table: schema.ComponentTable,
    source: Source,
) -> Component:
    recipe = table.recipe or name
    # Other keys are options of the recipe; the schema declares their types.
    options = {key: one for key, one in table.others.items() if key not in formats()}
    foreign, reference = read_files(file, table)
    if table.captured or table.module:
        recipe, source = CAPTURED, captured_source(file, name, table, source)
    elif table.folder:
        options["folder"] = table.folder
    if reference is not None:
        recipe, source = GIVEN, reference
    beside = str(table.place.file.path.parent.resolve())
    own = recipe not in RECIPES or table.module or table.patch or file.export.patch
    if own and beside not in sys.path:
        sys.path.append(beside)  # pytest finds a recipe beside the suite too
    try:
        return replace(describe(name, recipe, source, options), foreign=foreign)
    except ParityError as error:
        # Only the recipe knows its options, so the one named in its error is reported.
        wrong = next((key for key in options if repr(key) in str(error)), "")
        keys = (*table.__struct_fields__, *formats())
        text = f"{error}"
        if close := difflib.get_close_matches(wrong, keys, n=1, cutoff=0.8):
            text = f"unknown option {wrong!r}; did you mean {close[0]!r}?"
        if name not in str(error):
            text = f"{name}: {text}"
        raise table.error(text, wrong or "recipe") from None


def _check_given(file: schema.SuiteFile, cases: Sequence[Case]) -> None:
    """Refuse ``[variant.*.given]`` if no component has a file for that runtime."""
    taken = {case.backend for case in cases if case.variant.kind == GIVEN}
    for backend, tables in file.variant.items():
        if GIVEN in tables and backend not in taken:
            text = (
                f"{GIVEN!r} is what a file of others is called, and no [component.*] "
                f"takes one that {backend} runs; name one there, or take this out."
            )
            raise tables[GIVEN].error(text)


def _files(table: schema.FilesTable) -> tuple[Path, Path]:
    """Return the paths of tolerances and gaps; a named file must exist."""
    for key in table.place.data:
        file_beside(table, key, getattr(table, key))
    folder = table.place.file.path.parent
    return folder / table.tolerances, folder / table.known_gaps
