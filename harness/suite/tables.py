"""Lay out the matrix of a suite: variants, devices, sizes and samples.

Reads the tables of parity.toml that multiply; `suite` reads the others and joins them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from harness.core.case import (
    GIVEN,
    PROFILES,
    REFERENCE,
    Component,
    Device,
    Sample,
    Variant,
)
from harness.core.runtime import runtime, runtimes
from harness.core.toml_file import Table, did_you_mean
from harness.suite.schema import Inputs

_REFERENCE_DEVICES: Final = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One ``[[shapes]]``: sizes by symbol, and where that is written."""

    sizes: Mapping[str, int]
    layers: bool
    table: Table

    @property
    def shapes(self) -> tuple[tuple[str, int], ...]:
        """As a sample holds them."""
        return tuple(sorted(self.sizes.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A variant, where it runs, and the profiles it runs."""

    variant: Variant
    device: Device
    profiles: tuple[str, ...]


def read_words(
    table: Table,
    key: str,
    options: Collection[str] | None,
    default: tuple[str, ...],
    *,
    may_be_empty: bool = False,
) -> tuple[str, ...]:
    """Return a list of words, each one of `options` unless that is None.

    Raises:
        SuiteError: Naming the word's line.

    """
    words = table.take_list(key, str, default)
    for index, word in enumerate(words):
        if options is not None and word not in options:
            text = f"unknown {word!r} in {key!r}; {did_you_mean(word, options)}"
            raise table.error(text, key, index)
    if not words and not may_be_empty:
        text = f"{key!r} is empty, so there would be nothing to test."
        raise table.error(text, key)
    return words


def read_count(table: Table, key: str, default: int | None = None) -> int:
    """Return a whole number of 1 or more.

    Raises:
        SuiteError: It is missing without a default, no whole number, or less.

    """
    # Without a default, `take` itself complains about a missing key.
    count = table.take(key, int) if default is None else table.take(key, int, default)
    if count < 1:
        text = f"{key!r} must be 1 or more, got {count}."
        raise table.error(text, key)
    return count


def symbols_of(*components: Component) -> tuple[str, ...]:
    """Return the symbols in the shapes of inputs and outputs, each once, in order."""
    specs = [spec for part in components for spec in (*part.inputs, *part.outputs)]
    return tuple(dict.fromkeys(symbol for spec in specs for symbol in spec.symbols))


def read_bindings(parent: Table) -> tuple[Binding, ...]:
    """Read each ``[[shapes]]`` of the file or of one component; maybe none."""
    bindings: list[Binding] = []
    for table in parent.tables("shapes"):
        layers = table.take("layers", bool, default=True)
        sizes = {key: table.take(key, int) for key in table.data if key != "layers"}
        if any(sizes == earlier.sizes for earlier in bindings):
            text = "the same sizes stand in [[shapes]] twice."
            raise table.error(text)
        bindings.append(Binding(sizes=sizes, layers=layers, table=table))
    return tuple(bindings)


def check_symbols(bindings: tuple[Binding, ...], symbols: Collection[str]) -> None:
    """Refuse sizes of symbols that there are not.

    Raises:
        SuiteError: Naming the size's line.

    """
    for binding in bindings:
        for symbol in binding.sizes:
            if symbol not in symbols:
                hint = did_you_mean(symbol, symbols)
                text = f"no component has a size called {symbol!r}; {hint}"
                raise binding.table.error(text, symbol)


def narrow(bindings: tuple[Binding, ...], component: Component) -> tuple[Binding, ...]:
    """Keep a component's own symbols, and each set of sizes once.

    A text encoder has no height, so shapes that differ in height are one to it; and
    an unused size would make two artifacts of one.

    Raises:
        SuiteError: Shapes give no size to a symbol of the component.

    """
    kept: dict[tuple[tuple[str, int], ...], Binding] = {}
    for binding in bindings:
        sizes = {}
        for symbol in symbols_of(component):
            if symbol not in binding.sizes:
                text = f"these shapes lack {symbol!r}, which {component.name!r} needs."
                raise binding.table.error(text)
            sizes[symbol] = binding.sizes[symbol]
        narrowed = Binding(sizes=sizes, layers=binding.layers, table=binding.table)
        kept.setdefault(narrowed.shapes, narrowed)
    return tuple(kept.values())


def samples(
    profiles: tuple[str, ...], bindings: tuple[Binding, ...], inputs: Inputs
) -> tuple[Sample, ...]:
    """Realistic samples go round the bindings; other profiles take the widest batch."""
    # Widest where layers are compared: those profiles are there to find the layer.
    widest = max(bindings, key=lambda b: (b.layers, b.sizes.get("batch", 1)))
    drawn: list[tuple[str, int, Binding]] = []
    for profile in profiles:
        if profile == "realistic":
            indices = range(inputs.realistic)
            drawn += [(profile, i, bindings[i % len(bindings)]) for i in indices]
        else:
            drawn.append((profile, 0, widest))
    return tuple(
        Sample(
            profile=profile,
            index=index,
            shapes=binding.shapes,
            seed=inputs.seed,
            layers=binding.layers,
        )
        for profile, index, binding in drawn
    )


def check_used(
    name: str,
    bindings: tuple[Binding, ...],
    drawn: Collection[Sample],
    where: str,
) -> None:
    """Refuse shapes that nothing runs with: they would look tested.

    Raises:
        SuiteError: Naming the shapes' line.

    """
    used = {sample.shapes for sample in drawn}
    for binding in bindings:
        if binding.shapes not in used:
            text = (
                f"no sample of {name!r} has these shapes; list the profile "
                f"'realistic', and set realistic to {len(bindings)} or more "
                f"({where})."
            )
            raise binding.table.error(text)


def read_variants(
    backends: Table, variants: Table, inputs: Inputs
) -> tuple[Planned, ...]:
    """Read ``[backend.*]`` and ``[variant.*.*]``, in the order of the backends.

    Variants of one's own run because they are written, listed or not.

    Raises:
        SuiteError: An unknown or missing backend, variant, device or profile.

    """
    for parent in (backends, variants):
        for name in parent.data:
            if name not in runtimes() and (name, parent) != (REFERENCE, backends):
                hint = did_you_mean(name, runtimes())
                text = f"unknown backend {name!r}; {hint}"
                raise parent.error(text, name)
    candidates = [name for name in backends.data if name != REFERENCE]
    if not candidates:
        first, *_ = runtimes()
        text = f"no backend is asked for; add [backend.{first}] or another."
        raise backends.error(text)
    for name in variants.data:
        if name not in backends.data:
            text = f"these variants need a [backend.{name}], which is not there."
            raise variants.error(text, name)
    return tuple(
        planned
        for backend in candidates
        for planned in _of_backend(
            backend, backends.table(backend), variants.table(backend), inputs
        )
    )


def read_reference(backends: Table) -> Device:
    """Read ``[backend.pytorch]``: where the reference runs; the CPU when left out."""
    return _device(backends.table(REFERENCE), REFERENCE)


def _of_backend(
    backend: str, table: Table, named: Table, inputs: Inputs
) -> list[Planned]:
    built_in = tuple(runtime(backend).variants)
    own = [name for name in named.data if name not in built_in and name != GIVEN]
    listed = read_words(table, "variants", (*built_in, *own), ("fp32",))
    device = _device(table, backend)
    for name in named.data:
        if name in built_in and name not in listed:
            text = f"{name!r} is not among the `variants` of [backend.{backend}]."
            raise named.error(text, name)
    return [
        _planned(named, name, backend, device, inputs)
        for name in dict.fromkeys((*listed, *own, *(GIVEN,) * (GIVEN in named)))
    ]


def _device(table: Table, backend: str) -> Device:
    declared = runtimes().get(backend)
    has_tf32 = declared is None or declared.tf32
    devices = declared.devices if declared else _REFERENCE_DEVICES
    device = Device(
        device=table.choice("device", devices, devices[0]),
        threads=read_count(table, "threads", 2),
        # Each runtime has settings of its own; those of another are misplaced.
        precision=(
            table.choice("precision", declared.precisions, declared.precision)
            if declared and declared.precisions
            else Device().precision
        ),
        tf32=table.take("tf32", bool, default=False) if has_tf32 else False,
        hints=_hints(table.table("hints")) if declared else (),
    )
    table.done()
    return device


def _hints(table: Table) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, table.take(name, int)) for name in table.data))


def _planned(
    named: Table, name: str, backend: str, device: Device, inputs: Inputs
) -> Planned:
    table = named.table(name)
    kind = name
    if name == GIVEN:  # a file of others as it is: there is nothing to make it from
        if "from" in table or "flags" in table:
            text = f"{name!r} is a file as it is; it takes `profiles` alone."
            raise named.error(text, name)
    elif name not in runtime(backend).variants:
        if "from" not in table:
            hint = did_you_mean(name, runtime(backend).variants)
            text = f"unknown variant {name!r}; {hint} One of your own needs `from`."
            raise named.error(text, name)
        kind = table.choice("from", tuple(runtime(backend).variants))
    elif "from" in table or "flags" in table:
        text = f"{name!r} is built in; give a variant with flags a name of its own."
        raise named.error(text, name)
    flags = table.take_list("flags", str, ())
    profiles = read_words(table, "profiles", PROFILES, inputs.profiles)
    table.done()
    variant = Variant(name=name, backend=backend, kind=kind, flags=flags)
    return Planned(variant=variant, device=device, profiles=profiles)
