"""The declaration of a runtime, which an entry point leads to.

A runtime is one folder, a package. Its ``__init__`` declares a `Runtime` and imports no
framework. The folder also has the modules that a worker process imports:

``session``  ``open_session(path, device, outputs)``; see `harness.runtimes.session`.
``convert``  ``convert(source, variant, folder, component=…, probes=…, native=…,
             calibration=…)``, which writes the deployed file of a variant and returns
             notes about it.
``repro``    ``words(device, as_deployed)``, which returns what the script
             ``repro.txt`` in the same folder reads of ``repro.json``, as JSON values.
             One of its APIs may have a script of its own, ``repro_API.txt``.
``doctor``   ``remedy(device)``, which returns advice on how to make a device work on
             this machine; optional.

Another package can add a runtime. It needs an entry point of the group
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

from harness.core.case import GIVEN, ONNX, Case, Device
from harness.core.errors import SpecError, StageError
from harness.core.memory import GIB, MIB, Need
from harness.core.outcome import Outcome

GROUP: Final = "parity.runtimes"
EXACT: Final = "fp32"
"""The name of the variant in full precision, which every runtime has."""

NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Memory that a stage needs: a process, and some times the network's weights.

    Values in flight are a part of `copies`. How many there are depends on the sizes of
    the inputs, which no rule knows for every network.

    Attributes:
        words: Description of the stage, with ``{component}`` for the component's name.
        base: Memory of a process that has imported what the stage needs, in MiB.
        copies: Bytes that the stage needs for each byte of weights in float32.

    """

    words: str = ""
    base: int = 0
    copies: float

    def need(self, component: str, weights: int) -> Need:
        """Return the memory that the stage needs for `weights` bytes of weights."""
        size_bytes = self.base * MIB + round(self.copies * weights)
        return Need(
            stage=self.words.format(component=component),
            size_bytes=size_bytes,
            reason=f"{self.copies:g} times the {weights / GIB:.1f} GiB of its weights, "
            "the rest code",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A variant that a runtime offers by name.

    Attributes:
        tier: First tier of tolerances for the variant.
        flags: Converter flags that make the variant.
        risk: Possible harm to the results. `parity init` writes it beside the name.
        blames: Cause of a divergence that disappears in full precision.
        run: Memory of running it, if that differs from `Runtime.run`.
        make: Memory of making it with weights in a separate file, if that differs from
            `Runtime.make`.
        half: Whether it computes in float16 and may keep single values in float32.
        calibrated: Whether the conversion runs the network on calibration inputs, to
            measure the ranges of its values.
        bits: Bits in which it stores the weights of layers; 0 if not checked.

    """

    tier: str
    flags: tuple[str, ...] = ()
    risk: str = ""
    blames: str = ""
    run: Cost | None = None
    make: Cost | None = None
    half: bool = False
    calibrated: bool = False
    bits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that `parity explain` tries.

    Attributes:
        name: Name of a session hint, or a converter flag with its value.
        cause: Cause of a divergence that this setting removes.
        value: Value of the hint; None if `name` is a flag.
        kinds: Variants to which a flag applies.
        finer: Settings that undo only a part of what this one undoes.

    """

    name: str
    cause: str
    value: int | None = None
    kinds: tuple[str, ...] = ()
    finer: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """How a runtime gives each layer of a file its own number of bits.

    Attributes:
        bits: Numbers of bits that a layer may have, the largest first; 32 is float32.
        variants: Built-in variants that give every layer one of these numbers, to that
            number, the largest first.
        origin: The built-in variant among them that a plan starts from.
        flag: Flag of the converter that names a file with the text of the plan, up to
            the ``=``; empty if the text is flags, each on a line.
        rounds_inputs: Whether a layer whose weights are integers also rounds what it
            reads.
        fast: Flags of ``origin`` with which some processors are faster, and others may
            be wrong. A plan that is to be fast has them, because it is measured.
        module: Module with the functions ``stored``, ``choices``, ``float_weights``,
            ``rounded``, ``stored_bytes``, ``spent_on`` and ``plan_text``, and
            ``rounded_inputs`` if it rounds them; see `harness.runtimes.mnn.layers`.

    """

    bits: tuple[int, ...]
    variants: Mapping[str, int]
    origin: str
    flag: str = ""
    rounds_inputs: bool = False
    fast: tuple[str, ...] = ()
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFormat:
    """A runtime's own file format, in which a foreign model may come.

    Attributes:
        title: Name in messages: ``MNN file``.
        weights: Suffix of the separate file that may hold the weights.
        lacking: ``module:function``. The function gets the path of a file and the path
            of its weights. It returns a clause about missing data, or an empty text.
        ports: ``module:function``. The function gets the paths of a copy and of the
            file itself, and returns the inputs and outputs, `Port` each.
        graph: ``module:function``. The function gets a path and the names of inputs and
            outputs, and returns the operators as an ONNX graph without weights.

    """

    title: str
    weights: str
    lacking: str
    ports: str
    graph: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One runtime that deployed files run in.

    Attributes:
        name: Name in suites and ids.
        title: Name for people to read.
        package: Dotted name of its folder.
        module: Import name of its package.
        distributions: Distributions that install it; any one of them is enough.
        tools: Other packages whose versions change a converted file.
        order: Position among the runtimes in tables.
        model: Name of the deployed file.
        weights: Names of files that may lie beside the deployed file.
        devices: Devices on which it can run, the usual one first.
        other_devices: Regular expression of further devices, which are providers of the
            runtime; it then takes ``provider_options`` and ``cpu_nodes``. Empty if
            there are none.
        precisions: Values of ``precision``, the exact one first and the one in float16
            last; empty if there is no choice.
        apis: Its APIs that can run a file, of which a suite can ask for one; empty if
            there is no choice.
        tf32: Whether a suite can set ``tf32``.
        variants: Built-in variants by name; `EXACT` comes first.
        as_exported: Names of variants that run the exported graph itself.
        run: Memory of running a session.
        make: Memory of a conversion.
        session_times: Memory of a loaded session, as a multiple of its file's size.
        settings: Settings that `parity explain` tries.
        keep: Flag that keeps named values as they are, ``--keep=``; empty if there is
            none.
        rename: Flag that gives a conversion another name of a given length.
        features: Regular expression of the log line that says what the processor has;
            empty if there is none.
        falls_back: For each precision, a regular expression of the log line that the
            runtime prints when it does not run as requested. The empty text stands for
            any precision.
        preload: Modules that a conversion imports first.
        reads: Format that it runs without conversion: ``onnx``, or the name of its
            `own_format`.
        driver: Module that drives the runtime itself; see `harness.runtimes.driving`.
            It needs Python 3.8, numpy and the runtime alone, so it can be sent to a
            target. Empty for a runtime that runs only here.
        own_format: Its own file format, in which a foreign model may come; None if
            there is none.
        values: ``module:function`` that gets the path of a deployed file and returns
            the names of the values that its operators make; empty if a file keeps every
            value of the exported graph.
        mixed: How the layers of one file get different numbers of bits; None if the
            runtime cannot do that.
        is_first: Whether `parity init` puts it into a first suite.
        first_bounds: Operators that it computes with fewer digits than float32 has, and
            ``after`` one of them: the bound of layers in a first suite, in TOML, and
            the reason.
        first_hint: Lines of a first suite for networks with convolutions.
        example: Lines of a first suite that show a user-defined variant.
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
    other_devices: str = ""
    precisions: tuple[str, ...] = ()
    tf32: bool = False
    as_exported: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    keep: str = ""
    rename: str = ""
    features: str = ""
    falls_back: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    driver: str = ""
    own_format: OwnFormat | None = None
    values: str = ""
    mixed: Mixed | None = None
    is_first: bool = False
    first_bounds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    first_hint: tuple[str, ...] = ()
    example: tuple[str, ...] = ()
    precision_note: str = ""
    apis: tuple[str, ...] = ()

    @property
    def precision(self) -> str:
        """The exact precision."""
        return self.precisions[0] if self.precisions else "high"

    @property
    def half(self) -> str:
        """The precision in float16; empty if there is no choice."""
        return self.precisions[-1] if self.precisions else ""

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported."""
        return find_spec(self.module) is not None

    @property
    def home(self) -> Path:
        """The folder of the runtime's code."""
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(self.package)
        return Path(spec.origin).parent

    def cost(self, kind: str) -> Cost:
        """Return the memory that running a variant needs."""
        return (self.variants[kind].run if kind in self.variants else None) or self.run

    def cost_of_making(self, kind: str) -> Cost:
        """Return the memory that making a variant needs."""
        made = self.variants[kind].make if kind in self.variants else None
        return made or self.make

    def fallback(self, precision: str, log: str) -> str:
        """Return the log line that reports another device or precision, or nothing.

        >>> mnn = runtime("mnn")
        >>> mnn.fallback("low", "The device supports: i8sdot:0, fp16:0")
        'The device supports: i8sdot:0, fp16:0'
        >>> mnn.fallback("low", "The device support i8sdot:0, support fp16:0")
        'The device support i8sdot:0, support fp16:0'
        >>> mnn.fallback("low", "The device support i8sdot:1, support fp16:1")
        ''
        """
        for asked, pattern in self.falls_back.items():
            if asked in {"", precision} and (found := re.search(pattern, log)):
                return found.group().strip()
        return ""


@functools.cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every declared runtime by name, in the order of tables.

    Raises:
        SpecError: The installed packages have no such entry point, not even the
            harness, or two packages declare a runtime of one name.

    """
    found: dict[str, Runtime] = {}
    declared_by: dict[str, str] = {}
    for point in metadata.entry_points(group=GROUP):
        one: Runtime = point.load()
        if one.name in found:
            msg = (
                f"two runtimes are called {one.name!r}, {declared_by[one.name]} and "
                f"{point.value}; uninstall the package of one, or give it another name."
            )
            raise SpecError(msg)
        found[one.name], declared_by[one.name] = one, point.value
    if not found:
        msg = (
            f"no runtime is declared: what is installed has no entry point {GROUP}. "
            "Install it again, with `pip install -e .[make]` from its folder."
        )
        raise SpecError(msg)
    ordered = sorted(found.values(), key=lambda one: (one.order, one.name))
    return MappingProxyType({one.name: one for one in ordered})


def runtime(name: str) -> Runtime:
    """Return the runtime with a name.

    Raises:
        KeyError: No runtime of that name is declared.

    """
    return runtimes()[name]


def check_words(case: str, backend: str, device: Device, log: str) -> None:
    """Fail a run whose native output says that it ran on another device.

    Raises:
        StageError: The output says so.

    """
    if words := runtime(backend).fallback(device.precision, log):
        asked = f"{device.device} in {device.precision} precision"
        asked += f" on target {device.target.name}" if device.target else ""
        msg = (
            f"{case}: asked for {asked}, and the runtime says: {words!r}. "
            "`parity doctor` says what works here."
        )
        raise StageError(msg, outcome=Outcome.FELL_BACK, log=log)


def runs_exported(name: str, kind: str) -> bool:
    """Whether a variant runs the exported graph itself."""
    declared = runtimes().get(name)
    return declared is not None and kind in declared.as_exported


def is_made(case: Case) -> bool:
    """Whether a case's file is made from the exported file and is not foreign."""
    variant = case.variant
    as_exported = runs_exported(variant.backend, variant.kind)
    return not as_exported and variant.kind != GIVEN


def exact(case: Case) -> bool:
    """Whether a case's file must have PyTorch's own weights, in float32."""
    return case.variant.kind in {EXACT, GIVEN}


def onnx_runtime() -> Runtime:
    """Return the runtime that runs an ONNX file without conversion."""
    return next(one for one in runtimes().values() if one.reads == ONNX)


def reference_host(case: Case) -> str:
    """Return the host that records a case's reference."""
    return onnx_runtime().name if case.component.recipe == GIVEN else "torch"


def formats() -> Mapping[str, Runtime]:
    """Return the runtimes that have their own file format, by the format's name."""
    return {one.reads: one for one in runtimes().values() if one.own_format}


def resolve(name: str) -> Callable[..., Any]:
    """Return the function with the name ``module:function``."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
