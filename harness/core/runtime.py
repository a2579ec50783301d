"""What a runtime is to the harness: one declaration, found through an entry point.

A runtime is one folder, a package. Its ``__init__`` declares a `Runtime` and imports no
framework. Beside it stand the modules that a worker process imports:

``session``  ``open_session(path, device, outputs)``; see `harness.runtimes.session`.
``convert``  ``convert(source, variant, folder, component=…, probes=…, native=…)``,
             which writes the deployed file of a variant and returns what it notes.
``repro``    ``words(device, as_deployed)``, what fills in ``repro.txt`` beside it.
``doctor``   ``examine(ask, have)``, which yields what works here; optional.

A package of somebody else's adds a runtime by an entry point of the group
``parity.runtimes`` that leads to its declaration.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.core.errors import SpecError

GROUP: Final = "parity.runtimes"
ONNX: Final = "onnx"
"""The format of exported graphs."""

EXACT: Final = "fp32"
"""The variant in full precision, which every runtime has."""

NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Memory that a stage takes.

    Attributes:
        words: What the stage does, for ``{component}``.
        base: MiB of a process that has imported what the stage needs.
        copies: Of all weights, in float32.
        live: Values as wide as the network's first block that are held at once.
        scores: Matrices of attention's scores held at once.

    """

    words: str
    base: int
    copies: float
    live: float = 0.0
    scores: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A variant that a runtime offers by name.

    Attributes:
        tier: The tier of tolerances that it begins with.
        flags: What the converter is told for it.
        risk: What it may cost; `parity init` writes it beside the name.
        blames: What is behind a divergence that full precision removes.
        run: What running it takes, where that differs from the runtime's `Runtime.run`.
        make: What making it takes with weights beside the graph, likewise.
        half: Whether it computes in float16 and may keep single values from that.

    """

    tier: str
    flags: tuple[str, ...] = ()
    risk: str = ""
    blames: str = ""
    run: Cost | None = None
    make: Cost | None = None
    half: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that `parity explain` tries.

    Attributes:
        name: A hint of the session, or a flag of the converter with its value.
        cause: What is behind a divergence that it removes.
        value: Of a hint; None says that `name` is a flag.
        kinds: Variants in which a flag means something.
        finer: Settings that undo a part of what it undoes.

    """

    name: str
    cause: str
    value: int | None = None
    kinds: tuple[str, ...] = ()
    finer: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFormat:
    """A file format of a runtime's own, of which others may give a file.

    Attributes:
        title: As messages call it: ``MNN file``.
        weights: Suffix of the file beside it that may hold its weights.
        lacking: ``module:function``; takes the path and the path of its weights and
            returns in one sentence what they do not hold, or an empty text.
        take: ``module:function`` of the worker that takes such a file into the store.

    """

    title: str
    weights: str
    lacking: str
    take: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One runtime that deployed files run in.

    Attributes:
        name: As suites and ids have it.
        title: As people call it.
        package: Dotted name of its folder.
        module: What its package is imported as.
        distributions: Packages that bring it; any one will do.
        tools: Further packages whose versions decide a converted file.
        order: Where it stands among the others in tables.
        model: Name of the deployed file.
        weights: Names of files that may lie beside it.
        devices: Where it can run, the usual one first.
        precisions: Values of ``precision``, the exact one first; empty for no choice.
        tf32: Whether ``tf32`` can be set.
        variants: Built-in variants by name; `EXACT` comes first.
        as_exported: Variants that run the exported graph itself.
        run: Memory of a session that runs.
        make: Memory of a conversion.
        session_times: Memory of a loaded session, as a multiple of its file's size.
        inline_twice: Whether a session holds weights twice that stand in the graph.
        settings: What `parity explain` tries.
        keep: Flag that keeps named values as they are, ``--keep=``; empty without one.
        rename: Flag that gives a conversion another name of some length.
        falls_back: Precision, or an empty text for any, to a regular expression of what
            the runtime prints when it runs otherwise than it was asked.
        preload: Modules that its conversions import first.
        reads: Format that it runs as it is: ``onnx``, or its own `own_format`'s name.
        own_format: A format of its own that others may give files of.
        is_first: Whether a first suite asks for it.
        first_hint: Lines of a first suite for networks that convolve.
        example: Lines of a first suite that show a variant of one's own.
        precision_note: Comment beside ``precision`` in a first suite.

    """

    name: str
    title: str
    package: str
    module: str
    distributions: tuple[str, ...]
    model: str
    devices: tuple[str, ...]
    variants: Mapping[str, BuiltIn]
    run: Cost
    make: Cost
    session_times: float
    reads: str
    tools: tuple[str, ...] = ()
    order: int = 100
    weights: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    tf32: bool = False
    as_exported: tuple[str, ...] = ()
    inline_twice: bool = False
    settings: tuple[Setting, ...] = ()
    keep: str = ""
    rename: str = ""
    falls_back: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    own_format: OwnFormat | None = None
    is_first: bool = False
    first_hint: tuple[str, ...] = ()
    example: tuple[str, ...] = ()
    precision_note: str = ""

    @property
    def precision(self) -> str:
        """The precision that is exact."""
        return self.precisions[0] if self.precisions else "high"

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported."""
        return find_spec(self.module) is not None

    @property
    def home(self) -> Path:
        """The folder of its code."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(self.package)
        return Path(spec.origin).parent

    def cost(self, kind: str) -> Cost:
        """Return what running a variant takes."""
        return (self.variants[kind].run if kind in self.variants else None) or self.run

    def cost_of_making(self, kind: str) -> Cost:
        """Return what making a variant takes."""
        made = self.variants[kind].make if kind in self.variants else None
        return made or self.make

    def fallback(self, precision: str, log: str) -> str:
        """Return the runtime's own line about another device or precision, or nothing.

        >>> runtime("mnn").fallback("low", "The device supports: i8sdot:0, fp16:0")
        'The device supports: i8sdot:0, fp16:0'
        """
        for asked, pattern in self.falls_back.items():
            if asked in {"", precision} and (found := re.search(pattern, log)):
                return found.group().strip()
        return ""


@functools.cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every runtime that is declared, by name, in the order of tables.

    Raises:
        SpecError: The harness's own are not among the installed entry points.

    """
    found = {point.name: point.load() for point in metadata.entry_points(group=GROUP)}
    if not found:
        msg = (
            f"no runtime is declared: what is installed has no entry point {GROUP}. "
            "Install it again, with `pip install -e .` from its folder."
        )
        raise SpecError(msg)
    ordered = sorted(found.values(), key=lambda one: (one.order, one.name))
    return MappingProxyType({one.name: one for one in ordered})


def runtime(name: str) -> Runtime:
    """Return the runtime of a name.

    Raises:
        KeyError: Nobody declares one.

    """
    return runtimes()[name]


def runs_exported(name: str, kind: str) -> bool:
    """Whether a variant runs the exported graph itself."""
    declared = runtimes().get(name)
    return declared is not None and kind in declared.as_exported


def onnx_runtime() -> Runtime:
    """Return the runtime that runs an ONNX file as it is."""
    return next(one for one in runtimes().values() if one.reads == ONNX)


def formats() -> Mapping[str, Runtime]:
    """Return the runtimes that have a file format of their own, by its name."""
    return {one.reads: one for one in runtimes().values() if one.own_format}


def resolve(name: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
