"""Read parity.toml into the cases to test. The one place that knows the file.

It is read at every pytest collection, so it imports no numpy and no framework.

    components = ["unet", "vae_decoder"]     # left out: all that the checkpoint has
    [source]                                 # `checkpoint`, `hub` or `package`; and
                                             # perhaps `seed`, `lora`
    [export]                                 # how PyTorch becomes ONNX
    [[shapes]]                               # sizes for the symbols; one or more
    [inputs]                                 # profiles, realistic, seed, more_sizes
    [backend.mnn]                            # variants, device, threads, ...
    [variant.mnn.int4-hqq]                   # from, flags, profiles
    [pipeline.text2img]                      # prompts, steps, scheduler, ...
    [component.text_encoder]                 # export settings, recipe options, or
                                             # files of others: onnx, mnn, names
    [limits]                                 # timeout_s, coverage, jobs, memory_gib
    [files]                                  # tolerances, known_gaps

`parity init` writes one with a comment on every key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from harness.core.case import GIVEN, Case, Component, ExportSettings, Source
from harness.core.errors import ParityError, SuiteError
from harness.core.pipeline import Chain
from harness.core.runtime import formats
from harness.core.toml_file import Table, TomlFile, did_you_mean
from harness.core.toml_schema import read
from harness.recipes import RECIPES, deployed_as, describe, discover
from harness.suite import schema
from harness.suite.export_table import read_export
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.extra_inputs import with_worst
from harness.suite.families import kinds_of
from harness.suite.foreign import (
    as_taken,
    check_given,
    made_alone,
    read_taken,
    source_of_file,
    taken_plans,
)
from harness.suite.pipelines import read_chains
from harness.suite.shapes import check_fit, with_more_sizes
from harness.suite.source import (
    NAMED,
    check_lora,
    check_whole,
    names_checkpoint,
    read_source,
)
from harness.suite.tables import (
    Planned,
    check_symbols,
    check_used,
    narrow,
    read_bindings,
    read_reference,
    read_variants,
    read_words,
    samples,
    symbols_of,
)

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

FILE: Final = "parity.toml"
Tested = Case | Chain
"""What has an id and a record: a component's case, or a pipeline's chain."""


def _component_keys() -> tuple[str, ...]:
    """Return the keys of ``[component.NAME]`` that are not its recipe's options."""
    return (*schema.Component.__struct_fields__, *formats())


_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A parsed parity.toml.

    Attributes:
        path: The file.
        name: Of the folder it stands in.
        source: Where weights come from; a hub id is resolved to its folder.
        export: As under ``[export]``; each case holds its component's own.
        cases: In file order: component, then backend, then variant.
        chains: End-to-end cases, in file order.
        tolerances_path: May not exist; whoever judges says so.
        gaps_path: May not exist, and then there are none.
        limits: Time, coverage, jobs.

    """

    path: Path
    name: str
    source: Source
    export: ExportSettings
    cases: tuple[Case, ...] = field(repr=False)
    chains: tuple[Chain, ...] = field(repr=False)
    tolerances_path: Path
    gaps_path: Path
    limits: schema.Limits

    @property
    def components(self) -> tuple[Component, ...]:
        """Each component once, in order."""
        return tuple(
            {case.component.name: case.component for case in self.cases}.values()
        )

    @property
    def tested(self) -> tuple[Tested, ...]:
        """Everything that has an id: components' cases, then pipelines'."""
        return (*self.cases, *self.chains)

    def select(self, patterns: Iterable[str]) -> tuple[Tested, ...]:
        """Return the cases that any of `patterns` means; all without a pattern.

        A pattern with ``*``, ``?`` or ``[`` is a shell pattern over whole ids. Any
        other means the ids it is a whole part of (``unet``, ``unet/mnn``), or failing
        that those it occurs in (``int8``): so ``unet`` is not ``controlled_unet``.

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
        """Return a `Check` each for ``pytest.mark.parametrize``, ids written out.

        All that there is to check of every case, unless only some is asked for:
        ``layers`` and ``outputs`` of components, ``latents`` and ``image`` of
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
    """One thing that is checked of one case; a test's parameter.

    Attributes:
        suite: Of the case.
        case: What is run.
        what: One of the case's `whats`.

    """

    suite: Suite = field(repr=False)
    case: Tested
    what: str

    @property
    def id(self) -> str:
        """``component/backend/variant/what``, which ``-k`` selects on."""
        return f"{self.case.id}/{self.what}"


def load_suite(path: Path) -> Suite:
    """Read parity.toml, or the one in the folder `path`.

    Raises:
        SuiteError: It is missing, or something in it is wrong; names file and line.

    """
    if path.is_dir():
        path /= FILE
    if not path.exists():
        msg = f"there is no suite at {path}; `parity init` writes one."
        raise SuiteError(msg)
    root = TomlFile.load(path).root
    # All keys are checked before any is looked up: that a table is misspelt is better
    # to know than what is therefore missing.
    file = read(root, schema.SuiteFile)
    source_table, options, backends, variants, pipelines = map(
        root.table, ("source", "component", "backend", "variant", "pipeline")
    )
    source = read_source(source_table, file)
    seats = _seats(pipelines, source)
    components = _components(root, options, source, source_table, seats)
    # Where a suite does not list them, it tests all that the checkpoint has.
    check_whole(source_table, source, components, seats, listed="components" in root)
    check_lora(source_table, source, components, seats)
    usual, symbols = deployed_as(source), symbols_of(*components)
    export = read_export(root.table("export"), file.export, usual, symbols)
    bindings = read_bindings(root)
    check_symbols(bindings, symbols)
    if not bindings:
        text = f"no [[shapes]] gives sizes to {', '.join(symbols)}."
        raise root.error(text)
    reference = read_reference(backends)
    planned = read_variants(backends, variants, file.inputs)
    cases: list[Case] = []
    realistic = root.table("inputs").where("realistic")
    for component in components:
        table = options.table(component.name)
        own = read_bindings(table)
        check_symbols(own, symbols_of(component))
        own = narrow(own or bindings, component)
        check_fit(component, own)
        said = file.component.get(component.name, schema.Component())
        settings = read_export(table, said, export, symbols_of(component))
        settings = as_taken(component, settings, own)
        chosen = [
            Case(
                component=component,
                export=settings,
                variant=plan.variant,
                device=plan.device,
                samples=samples(plan.profiles, own, file.inputs),
                reference=reference,
            )
            for plan in _chosen(table, taken_plans(table, component, planned))
        ]
        drawn = [sample for case in chosen for sample in case.samples]
        check_used(component.name, own, drawn, realistic)
        cases += chosen
    check_given(variants, planned, cases)
    planned = made_alone(planned)
    cases = with_more_sizes(cases, file.inputs)
    cases = with_worst(cases, path.parent / WORST_INPUTS)
    of = {case.component.recipe: case for case in reversed(cases)}

    def kin(seat: str) -> Case:
        """Return a case of the component that takes a pipeline's seat."""
        if seat in of:
            return of[seat]
        component = describe(seat, seat, source)
        settings = read_export(
            options.table(seat),
            file.component.get(seat, schema.Component()),
            export,
            symbols_of(component),
        )
        return replace(cases[0], component=component, export=settings, samples=())

    tolerances, gaps = _files(root.table("files"), file.files)
    return Suite(
        path=path,
        name=path.resolve().parent.name,
        source=source,
        export=export,
        cases=tuple(cases),
        chains=read_chains(
            pipelines, source, kin, planned, [part.name for part in components]
        ),
        tolerances_path=tolerances,
        gaps_path=gaps,
        limits=file.limits,
    )


def _meant(pattern: str, ids: Collection[str]) -> set[str]:
    """Return the ids that `pattern` means, by the first reading that finds any."""
    sought = pattern.lower()
    if _GLOB.search(sought):
        return {name for name in ids if fnmatchcase(name, sought)}
    whole = {name for name in ids if f"/{sought.strip('/')}/" in f"/{name}/"}
    return whole or {name for name in ids if sought in name}


def _seats(pipelines: Table, source: Source) -> set[str]:
    """Return the components that pipelines are made of, tested alone or not."""
    # Looked at and not taken: whoever reads pipelines says what is wrong with them.
    kinds = {
        str(inner.get("kind", name))
        for name, inner in pipelines.data.items()
        if isinstance(inner, dict)
    }
    family = kinds_of(source)
    return {seat for kind in kinds & family.keys() for seat in family[kind]}


def _components(
    root: Table, tables: Table, source: Source, where: Table, seats: Collection[str]
) -> tuple[Component, ...]:
    """Describe the components listed, or all there are and those of one's own."""
    bare = not names_checkpoint(where)
    own = [name for name in tables.data if bare or "recipe" in tables.table(name)]
    try:
        found = () if bare else discover(source)
    except SuiteError as error:
        # Recipes of one's own need no diffusers folder.
        if not own or not source.path.is_dir():
            key = next(key for key in NAMED if key in where)
            raise where.error(str(error), key) from None
        found = ()
    known = dict.fromkeys((*RECIPES, *own))
    names = read_words(root, "components", known, tuple(dict.fromkeys((*found, *own))))
    for name in tables.data:
        # One that only sits in a pipeline is exported all the same.
        stated = set(tables.table(name).data)
        seated = name in seats and stated <= set(schema.Export.__struct_fields__)
        if name not in names and not seated:
            hint = did_you_mean(name, names)
            if name in known:
                hint = "list it in `components`, or remove this."
            text = f"there is no component {name!r} here; {hint}"
            raise tables.error(text, name)
    described = []
    for index, name in enumerate(names):
        try:
            described.append(
                _described(name, tables.table(name), None if bare else source)
            )
        except ParityError as error:
            if tables.table(name).data:
                raise
            if "components" in root:
                raise root.error(str(error), "components", index) from None
            raise where.error(str(error)) from None
    return tuple(described)


def _described(name: str, table: Table, source: Source | None) -> Component:
    said = read(table, schema.Component)
    recipe = said.recipe or name
    # What is no setting of the harness belongs to the recipe; the schema has its types.
    options = cast(
        "dict[str, str | int | bool]",
        {key: one for key, one in table.data.items() if key not in _component_keys()},
    )
    taken = read_taken(table, said)
    if source is None:
        recipe, source = GIVEN, source_of_file(table, taken)
    try:
        return replace(describe(name, recipe, source, options), taken=taken)
    except ParityError as error:
        # Only the recipe knows its options; blame the one that it complains about.
        wrong = next((key for key in options if repr(key) in str(error)), "")
        close = difflib.get_close_matches(wrong, _component_keys(), n=1, cutoff=0.8)
        text = f"{error}"
        if close:
            text = f"unknown option {wrong!r}; did you mean {close[0]!r}?"
        if name not in str(error):
            text = f"{name}: {text}"
        if table.data:
            raise table.error(text, wrong or "recipe") from None
        raise SuiteError(text) from None


def _chosen(table: Table, planned: tuple[Planned, ...]) -> list[Planned]:
    """Return what a component runs: the variants it lists, or all."""
    names = tuple(dict.fromkeys(plan.variant.name for plan in planned))
    wanted = read_words(table, "variants", names, names)
    return [plan for plan in planned if plan.variant.name in wanted]


def _files(table: Table, files: schema.Files) -> tuple[Path, Path]:
    """Return the paths of tolerances and gaps; one that is named must be there."""
    folder = table.file.path.parent
    for key in table.data:
        path = folder / getattr(files, key)
        if not path.is_file():
            text = f"there is no file {path}."
            raise table.error(text, key)
    return folder / files.tolerances, folder / files.known_gaps
