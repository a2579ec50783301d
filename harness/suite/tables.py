"""Build the matrix of a suite: variants, devices, sizes and samples.

This module reads the tables of parity.toml that multiply cases. `suite` reads the
others and combines them. Each function raises `SuiteError`, with file and line, if
a table is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import cycle, islice, product
from pathlib import Path
from typing import Final, Protocol

from harness.core.case import (
    AT,
    GIVEN,
    HERE,
    PROFILES,
    REFERENCE,
    Component,
    Device,
    ExportSettings,
    Sample,
    Target,
    Variant,
    check_name,
)
from harness.core.errors import SpecError
from harness.core.runtime import EXACT, runtime, runtimes
from harness.core.toml_file import did_you_mean
from harness.core.toml_schema import Keys, read
from harness.suite.places import target_kinds
from harness.suite.schema import (
    BackendTable,
    ExportTable,
    InputsTable,
    OwnVariantTable,
    ShapesTable,
    SuiteFile,
)

_REFERENCE_DEVICES: Final = ("cpu", "cuda")
_NARROW: Final = ("realistic",)
"""Profiles of a variant with fewer bits, if a suite names none; `parity init` writes
the same."""

_VERSION: Final = re.compile(r"\d+(\.[a-z0-9]+)*")
_CALIBRATION_SEED: Final = 1_000_003
"""It is added to a suite's seed, so that no tested input is a calibration input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Sizes by symbol, and the ``[[shapes]]`` table that they are from."""

    sizes: Mapping[str, int]
    table: ShapesTable

    @property
    def shapes(self) -> tuple[tuple[str, int], ...]:
        """The sizes as a sample holds them."""
        return tuple(sorted(self.sizes.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A variant, its device, and the profiles that it runs.

    Attributes:
        variant: The variant.
        device: Where it runs, and with which settings.
        profiles: Profiles of the inputs that it runs.
        given_profiles: Profiles that a foreign file runs in its place.
        components: Components that the variant is made for; empty for all.
        where: What follows the variant's name in ids; see `Case`.
        is_first: Whether the place and the precision are the first that are listed.

    """

    variant: Variant
    device: Device
    profiles: tuple[str, ...]
    given_profiles: tuple[str, ...]
    components: tuple[str, ...] = ()
    where: str = ""
    is_first: bool = True

    @property
    def how(self) -> str:
        """The third part of the ids of its cases."""
        return f"{self.variant.name}{self.where}"

    @property
    def word(self) -> str:
        """Its runtime and variant as a suite writes them: ``mnn/fp32``."""
        return f"{self.variant.backend}/{self.how}"

    def is_for(self, component: str) -> bool:
        """Whether the variant is made for a component."""
        return not self.components or component in self.components

    def as_given(self) -> Planned:
        """Return the plan of a foreign file that is run as it is."""
        variant = Variant(name=GIVEN, backend=self.variant.backend, kind=GIVEN)
        profiles = self.given_profiles
        return replace(self, variant=variant, profiles=profiles, components=())

    def for_component(self, name: str) -> Planned:
        """Return this plan, or for another component the variant that it starts from.

        So a pipeline has the variant where it is made, and its origin elsewhere.
        """
        if self.is_for(name):
            return self
        kind = self.variant.kind
        origin = Variant(name=kind, backend=self.variant.backend, kind=kind)
        return replace(self, variant=origin, components=())


_BELOW = "x" * 200
"""Stands for what is looked for in a folder: its path is longer than the folder's."""


def path_beside(table: Keys, key: str, named: str) -> Path:
    """Return the path that a key names, relative to the suite's folder; links stay.

    There may be nothing at the path. But it can be looked at, and so can what is below
    it, so that nobody else has to expect an error there.

    Raises:
        SuiteError: No file can have this path, or this user may not look at it. The
            message names the key's line.

    """
    try:
        path = table.place.file.path.parent.absolute() / Path(named).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            (path / _BELOW).stat()
    except (OSError, RuntimeError, ValueError) as error:
        # A NUL byte, no such home, a link to itself, or a name that is too long.
        why = getattr(error, "strerror", None) or error
        text = f"nothing can be read at this path ({why}); correct it."
        raise table.error(text, key) from error
    return path


def file_beside(table: Keys, key: str, named: str, what: str = "file") -> Path:
    """Return the path of a file that a key names, relative to the suite's folder.

    Raises:
        SuiteError: There is no such file. The message names the key's line.

    """
    path = path_beside(table, key, named).resolve()
    if not path.is_file():
        text = f"there is no {what} {path}."
        raise table.error(text, key)
    return path


def read_export(
    table: ExportTable, base: ExportSettings, symbols: Collection[str]
) -> ExportSettings:
    """Return export settings; `base` gives missing ones, `symbols` the valid axes."""
    table.check_options("dynamic_axes", symbols)
    stated = {
        field.name: value
        for field in fields(ExportSettings)
        if (value := getattr(table, field.name, None)) is not None
    }
    axes = base.dynamic if table.dynamic_axes is None else table.dynamic_axes
    dynamic = tuple(axis for axis in axes if axis in symbols)
    # The default opset depends on the exporter: dynamo writes no opset as old as 14.
    usual = base if table.exporter in {None, base.exporter} else ExportSettings()
    made = replace(base, **{"opset": usual.opset, "dynamic": dynamic, **stated})
    if made.exporter != "torchscript" or made.optimize:
        return made
    if table.optimize is False:
        text = (
            "torchscript has no optimiser of its own: take `optimize` out, or choose "
            'exporter = "dynamo".'
        )
        raise table.error(text, "optimize")
    return replace(made, optimize=True)


def symbols_of(*components: Component) -> tuple[str, ...]:
    """Return the symbols in the shapes of inputs and outputs, each once, in order."""
    specs = [spec for part in components for spec in (*part.inputs, *part.outputs)]
    return tuple(dict.fromkeys(symbol for spec in specs for symbol in spec.symbols))


def read_bindings(
    tables: Iterable[ShapesTable], symbols: Collection[str]
) -> tuple[Binding, ...]:
    """Return each ``[[shapes]]`` of the file or of one component; there may be none.

    Each size must be one of `symbols`, and no two tables may have the same sizes.
    """
    bindings: list[Binding] = []
    for table in tables:
        for symbol in table.others:
            if symbol not in symbols:
                hint = did_you_mean(symbol, symbols)
                text = f"no component has a size called {symbol!r}; {hint}"
                raise table.error(text, symbol)
        if any(table.others == earlier.sizes for earlier in bindings):
            text = "the same sizes stand in [[shapes]] twice."
            raise table.error(text)
        bindings.append(Binding(sizes=table.others, table=table))
    return tuple(bindings)


def without_sizes(file: SuiteFile) -> Binding:
    """Return the binding of a component without open sizes, which needs no table."""
    nothing = replace(file.place, data={}, at=("shapes",))
    return Binding(sizes={}, table=read(nothing, ShapesTable))


def narrow(bindings: tuple[Binding, ...], component: Component) -> tuple[Binding, ...]:
    """Keep only a component's symbols, and each set of sizes once.

    A text encoder has no height, so shapes that differ only in height are equal for it.
    An unused size would make a second, equal artifact.
    """
    symbols, kept = symbols_of(component), dict[tuple[tuple[str, int], ...], Binding]()
    for binding in bindings:
        if lacking := [symbol for symbol in symbols if symbol not in binding.sizes]:
            text = f"these shapes lack {lacking[0]!r}, which {component.name!r} needs."
            raise binding.table.error(text)
        sizes = {symbol: binding.sizes[symbol] for symbol in symbols}
        narrowed = replace(binding, sizes=sizes)
        kept.setdefault(narrowed.shapes, narrowed)
    return tuple(kept.values())


def samples(
    profiles: tuple[str, ...], bindings: tuple[Binding, ...], inputs: InputsTable
) -> tuple[Sample, ...]:
    """Return samples; realistic ones cycle through bindings, others use the widest."""
    # The widest batch with layers, because other profiles exist to find the layer.
    widest = max(bindings, key=lambda b: (b.table.layers, b.sizes.get("batch", 1)))
    turns = [*islice(cycle(bindings), inputs.realistic)]
    drawn = [
        (profile, index, binding)
        for profile in profiles
        for index, binding in enumerate(turns if profile == "realistic" else [widest])
    ]
    return tuple(
        Sample(
            profile=profile,
            index=index,
            shapes=binding.shapes,
            seed=inputs.seed,
            layers=binding.table.layers,
        )
        for profile, index, binding in drawn
    )


def calibration_samples(
    variant: Variant, shapes: tuple[tuple[str, int], ...], inputs: InputsTable
) -> tuple[Sample, ...]:
    """Return the inputs that a variant is calibrated with; none without calibration."""
    made = runtime(variant.backend).variants.get(variant.kind)
    if not made or not made.calibrated:
        return ()
    return tuple(
        Sample(
            profile="realistic",
            index=index,
            shapes=shapes,
            seed=inputs.seed + _CALIBRATION_SEED,
            layers=False,
            label=f"calibration-{index}",
        )
        for index in range(inputs.calibration)
    )


def check_used(
    name: str,
    bindings: tuple[Binding, ...],
    drawn: Collection[Sample],
    inputs: InputsTable,
) -> None:
    """Refuse shapes that no sample uses, because they would look tested."""
    used = {sample.shapes for sample in drawn}
    for binding in bindings:
        if binding.shapes not in used:
            text = (
                f"no sample of {name!r} has these shapes; list the profile "
                f"'realistic', and set realistic to {len(bindings)} or more "
                f"({inputs.place.where('realistic')})."
            )
            raise binding.table.error(text)


def read_variants(file: SuiteFile, components: Collection[str]) -> tuple[Planned, ...]:
    """Return the plans of ``[backend.*]`` and ``[variant.*.*]``, backend by backend.

    A variant that the suite defines always runs, listed or not.
    """
    targets = read_targets(file)
    for key, known in (("backend", {*runtimes(), REFERENCE}), ("variant", runtimes())):
        for name in getattr(file, key):
            if name not in known:
                text = f"unknown backend {name!r}; {did_you_mean(name, runtimes())}"
                raise file.error(text, key, name)
    candidates = [name for name in file.backend if name != REFERENCE]
    if not candidates:
        first, *_ = runtimes()
        text = f"there is no backend; add [backend.{first}] or another."
        raise file.error(text, "backend")
    for name, own in file.variant.items():
        if name not in file.backend:
            text = f"these variants need a [backend.{name}], which is not there."
            raise file.error(text, "variant", name)
        for table in own.values():
            table.check_options("components", components)
    return tuple(plan for name in candidates for plan in _plans(name, file, targets))


def read_targets(file: SuiteFile) -> dict[str, tuple[Target, ...]]:
    """Return the targets of every ``[target.*]``, by the table's name."""
    used = {name for backend in file.backend.values() for name in backend.targets}
    targets: dict[str, tuple[Target, ...]] = {}
    for name, table in file.target.items():
        if name not in used:
            text = (
                f"nothing runs on the target {name!r}; list it in `targets` of a "
                "[backend.*], or remove this."
            )
            raise table.error(text)
        kinds = target_kinds()
        table.check_options("kind", kinds)
        kind = kinds[table.kind]
        own = read(table.place, kind.table)
        with table.place.errors_at():
            check_name("target", name)
        targets[name] = tuple(kind.targets(name, own))
        with table.place.errors_at():
            for one in targets[name]:
                check_target(one)
    return targets


def check_target(target: Target) -> None:
    """Refuse the name of a target that an id cannot have, or would be misread with.

    Raises:
        SpecError: It is such a name.

    """
    name = target.name
    precisions = {word for one in runtimes().values() for word in one.precisions}
    # fp32@phone-low must be one case: phone in low precision.
    if name == HERE or {name, name.rpartition("-")[2]} & precisions:
        msg = (
            f"a target cannot be called {name!r}, because that is a word of ids "
            f"({', '.join((HERE, *sorted(precisions)))}); take another name."
        )
        raise SpecError(msg)


class Choosing(Protocol):
    """A table that may list variants."""

    @property
    def variants(self) -> tuple[str, ...] | None:
        """The listed variants; None for all."""

    def check_options(self, key: str, options: Collection[str]) -> None:
        """Refuse a value of a key that is none of the options."""


def chosen_of(
    table: Choosing,
    planned: Collection[Planned],
    component: str = "",
) -> list[Planned]:
    """Return the plans whose variants a table lists; all plans if it lists none.

    A variant is listed as in ids: ``fp32``, ``fp32@phone-low``, or ``mnn/fp32`` of one
    runtime alone. One that names its components is one of theirs without being listed,
    and of no other's.
    """
    names = dict.fromkeys(plan.how for plan in planned)
    words = dict.fromkeys(plan.word for plan in planned)
    table.check_options("variants", {**names, **words})
    wanted = table.variants or tuple(names)
    return [
        plan
        for plan in planned
        if not {plan.how, plan.word}.isdisjoint(wanted) or component in plan.components
    ]


def read_reference(file: SuiteFile) -> Device:
    """Return the reference's device: from ``[backend.pytorch]``, or else the CPU."""
    table = read(file.place.part("backend", REFERENCE), BackendTable)
    return _devices(REFERENCE, table, {})[0][0]


def _plans(
    backend: str, file: SuiteFile, targets: Mapping[str, Sequence[Target]]
) -> Iterator[Planned]:
    built_in = runtime(backend).variants
    table, tables = file.backend[backend], file.variant.get(backend, {})
    own = [name for name in tables if name not in (*built_in, GIVEN)]
    given = tables.get(GIVEN, OwnVariantTable())
    if _is_made(given):
        text = f"{GIVEN!r} is a file as it is; it takes `profiles` alone."
        raise given.error(text)
    table.check_options("variants", (*built_in, *own))
    listed = table.variants or (EXACT,)
    devices = _devices(backend, table, targets)
    for name in tables:
        if name in built_in and name not in listed:
            text = (
                f"{name!r} is not among the `variants` of [backend.{backend}]; add it "
                f"there, or remove the table [variant.{backend}.{name}]."
            )
            raise tables[name].error(text)
    for name in dict.fromkeys((*listed, *own)):
        stated = tables.get(name, OwnVariantTable())
        variant = _variant(name, stated, backend, table.converter)
        exact = variant.kind in {EXACT, GIVEN}
        usual = file.inputs.profiles or (PROFILES if exact else _NARROW)
        profiles = stated.profiles or usual
        for device, where in devices:
            yield Planned(
                variant=variant,
                device=device,
                profiles=profiles,
                given_profiles=given.profiles
                or (usual if GIVEN in tables else profiles),
                components=stated.components or (),
                where=where,
                is_first=device is devices[0][0],
            )


def _is_made(table: OwnVariantTable) -> bool:
    """Whether a table says how a file is made."""
    return any(one is not None for one in (table.kind, table.flags, table.components))


def _devices(
    backend: str, table: BackendTable, targets: Mapping[str, Sequence[Target]]
) -> list[tuple[Device, str]]:
    """Return each place and precision of a backend, and its part of the ids."""
    declared = runtimes().get(backend)
    devices = declared.devices if declared else _REFERENCE_DEVICES
    precisions = declared.precisions if declared else ()
    others = declared.other_devices if declared else ""
    apis = declared.apis if declared else ()
    # Each runtime has its own settings; a setting of another runtime is misplaced.
    has = {
        "variants": declared,
        "hints": declared,
        "targets": declared and declared.driver,
        "versions": declared and declared.driver,
        "converter": declared and declared.own_format,
        "precision": precisions,
        "tf32": not declared or declared.tf32,
        "provider_options": others,
        "cpu_nodes": others,
        "api": apis,
    }
    fields = table.__struct_fields__
    table.place.check_keys([key for key in fields if has.get(key, True)])
    device = devices[0] if table.device is None else table.device
    if not (others and re.fullmatch(others, device)):
        table.check_options("device", devices)
    if device == devices[0]:
        for key in ("provider_options", "cpu_nodes"):
            if getattr(table, key):
                text = (
                    f"{key!r} needs a `device` other than {device!r}, which ignores it."
                )
                raise table.error(text, key)
    exact = declared.precision if declared else Device().precision
    table.check_options("precision", precisions)
    # One precision for all cases tells none of them apart, so no id names it.
    plain, listed = {HERE, exact}, table.precision
    if isinstance(listed, str):
        plain, listed = {HERE, listed}, (listed,)
    if table.api:
        table.check_options("api", apis)
    table.check_options("targets", (HERE, *targets))
    versions = _versions(table, targets)
    listed_targets = [
        one
        for name in table.targets
        for one in ((None,) if name == HERE else targets[name])
    ]
    usual = Device(
        device=device,
        threads=table.threads,
        tf32=table.tf32,
        hints=tuple(sorted(table.hints.items())),
        provider_options=tuple(sorted(table.provider_options.items())),
        cpu_nodes=table.cpu_nodes,
        api=table.api,
    )
    return [
        (
            replace(
                usual,
                precision=precision,
                target=target,
                **(dict(target.device) if target else {}),
            ),
            "".join([AT, "-".join(words)] if words else []),
        )
        for target, precision in product(
            (*listed_targets, *versions), listed or (exact,)
        )
        for place in (target.name if target else HERE,)
        for words in ([word for word in (place, precision) if word not in plain],)
    ]


def _versions(
    table: BackendTable, targets: Mapping[str, Sequence[Target]]
) -> list[Target]:
    """Return a target for each of a runtime's versions."""
    for key, listed in (("versions", table.versions), ("converter", [table.converter])):
        for version in filter(None, listed):
            if not _VERSION.fullmatch(version):
                text = f'{version!r} is no version; write it as in "3.5.0".'
                raise table.error(text, key)
    names = {one.name for some in targets.values() for one in some}
    if twice := {*table.versions} & names:
        text = f"{min(twice)!r} is also a [target.*]; give that another name."
        raise table.error(text, "versions")
    return [Target(name=one, version=one) for one in table.versions]


def _variant(
    name: str, table: OwnVariantTable, backend: str, converter: str
) -> Variant:
    declared = runtime(backend)
    if name in declared.variants and _is_made(table):
        text = (
            f"{name!r} is built in; give a variant with flags a name of its own. For "
            "some components alone, set `variants` under [component.NAME]."
        )
        raise table.error(text)
    kind = name
    if name not in declared.variants:
        if table.kind is None:
            hint = did_you_mean(name, declared.variants)
            text = f"unknown variant {name!r}; {hint} One of your own needs `from`."
            raise table.error(text)
        table.place.check_option("from", table.kind, declared.variants)
        kind = table.kind
    flags = table.flags or ()
    if flags and kind in declared.as_exported:
        text = (
            f"{kind!r} in {backend} runs the exported file as it is, so flags change "
            "nothing; take them out."
        )
        raise table.error(text, "flags")
    named = declared.mixed.flag if declared.mixed else ""
    files = [flag for flag in flags if named and flag.startswith(named)]
    return Variant(
        name=name,
        backend=backend,
        kind=kind,
        flags=flags,
        files=tuple(
            (flag, file_beside(table, "flags", flag.partition("=")[2]))
            for flag in files
        ),
        converter=converter,
    )
