"""What is tested: sources, components, variants, samples and cases.

This module holds plain data. Other modules build networks, draw inputs and run
sessions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.core.errors import SpecError

DTYPES = ("float32", "float16", "float64", "int32", "int64", "bool")
"""Dtypes of inputs and outputs, as NumPy names them."""

EXPORTERS = ("dynamo", "torchscript", "transformers")
"""PyTorch's two ONNX exporters, and dynamo with the patches of transformers."""

ONNX = "onnx"
"""The format name of exported graphs."""

REFERENCE = "pytorch"
"""The backend that every other backend is compared with."""

PROFILES = ("realistic", "unit-normal", "low-variance", "large-mean", "boundary")
"""Ways to draw a sample's inputs."""

GIVEN = "given"
"""The name of a foreign model's variant when the file is used as it is. It is also the
recipe name of an ONNX file that is its own reference."""

CAPTURED = "captured"
"""The recipe of a module whose calls were recorded."""

LIVE = "live:"
"""The beginning of the name of a module, or of a patch, that `harness.check` kept."""

ITSELF = "itself"
"""The alignment of an ONNX file without a PyTorch model: it is its own reference."""

ANOTHER_FILE = "another file"
"""The alignment of an ONNX file with another one, its reference."""

VARIED = "varied"
"""The profile of samples that are drawn from their own `Sample.knobs`. `parity tune`
makes them. The worst that it finds are kept beside the suite."""

HERE = "here"
"""The name of the target that is this process."""

AT = "@"
"""What stands between a variant's name and a target or precision in an id."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")

LONGEST = 64
"""Most characters of a name. A file's name joins several, and has at most 255 bytes."""


def check_name(kind: str, name: str) -> None:
    """Refuse a name that cannot be part of a test id.

    Raises:
        SpecError: The name has other characters than a test id may have, or too many.

    """
    if not _NAME.fullmatch(name):
        msg = (
            f"{kind} name {name!r} must be lower case letters, digits, '_', '-' or "
            "'.', so that it can stand in a test id."
        )
        raise SpecError(msg)
    if len(name) > LONGEST:
        msg = (
            f"{kind} name {name!r} has {len(name)} characters and may have {LONGEST}, "
            "because files are named by it."
        )
        raise SpecError(msg)


NO_SYMBOLS = ("layers",)
"""Words that are no symbol, because a table of sizes has a key of that name."""


def is_symbol(text: str) -> bool:
    """Whether a text can stand for a size in a shape and in a suite.

    >>> is_symbol("height"), is_symbol("batch size"), is_symbol("2*n"), is_symbol("")
    (True, False, False, False)
    """
    return text.isidentifier() and text not in NO_SYMBOLS and len(text) <= LONGEST


def base_variant(how: str) -> str:
    """Return a variant's name without its target and precision.

    >>> base_variant("fp32@phone-low")
    'fp32'
    """
    return how.partition(AT)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """The name, shape and dtype of one input or output.

    Attributes:
        name: Name in the deployed file, for example ``encoder_hidden_states``.
        shape: Size of each axis. A symbol such as ``batch`` gets its size from a
            sample. It may have a factor: ``8*height``, or ``height/4``. A quotient is
            rounded up, as in a strided convolution with padding. A number or another
            symbol may be added: ``past+1``, ``past+tokens``.
        dtype: One of `DTYPES`.
        draw: How profiles draw values: ``tokens``, ``mask``, ``segments``,
            ``timestep``, ``normal``, ``image``, ``hint``, ``sizes`` (in pixels), or
            ``pipeline`` (the recipe draws them itself). Empty for outputs.

    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    draw: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            msg = f"{self.name}: dtype must be one of {DTYPES}, got {self.dtype!r}."
            raise SpecError(msg)
        if {*map(type, self.shape)} - {int, str}:  # a configuration may say anything
            msg = f"{self.name}: a size in {self.shape} is no number and no symbol."
            raise SpecError(msg)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols in `shape`, without factors, in order."""
        sizes = (size for size in self.shape if isinstance(size, str))
        return tuple(
            part
            for size in sizes
            for part in (_split(size)[0], _split(size)[3])
            if part and not part.isdecimal()
        )

    def bind(self, shapes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with each symbol replaced by its size.

        Raises:
            SpecError: A symbol has no size in `shapes`.

        """
        return tuple(self._size(size, shapes) for size in self.shape)

    def _size(self, size: int | str, shapes: Mapping[str, int]) -> int:
        if isinstance(size, int):
            return size
        symbol, times, over, more = _split(size)
        if symbol not in shapes:
            msg = (
                f"{self.name}: no size is given for {symbol!r}; there are sizes for "
                f"{sorted(shapes)}. Add it under [[shapes]] in parity.toml."
            )
            raise SpecError(msg)
        added = int(more) if more.isdecimal() else self._size(more, shapes)
        return -(-shapes[symbol] * times // over) + added


def symbol_of(size: str) -> str:
    """Return the first symbol: ``height`` of ``8*height`` or ``height/4+1``."""
    return _split(size)[0]


def _split(size: str) -> tuple[str, int, int, str]:
    """Return symbol, multiplier, divisor and addend of ``8*height/4+1``."""
    product, _, more = size.partition("+")
    times, _, rest = product.rpartition("*")
    symbol, _, over = rest.partition("/")
    return symbol, int(times or 1), int(over or 1), more or "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The weights and the configuration of a network.

    Attributes:
        path: A diffusers folder with ``model_index.json``, a folder of one network from
            transformers, or an ONNX file.
        seed: None if the folder holds the weights. Otherwise the seed from which all
            weights are drawn at random, zero-convolutions included.
        lora: A file of low-rank weights (LoRA) that is merged into networks, or None.
        lora_scale: Factor of the difference that the LoRA adds to the weights.
        module: Where the module of recorded calls comes from: ``package.module:name``,
            or `LIVE` and a digest. Then `path` has the calls. Empty for others.
        weights: The folder with configuration and weights of such a module; None if the
            name alone makes it.

    """

    path: Path
    seed: int | None = None
    lora: Path | None = None
    lora_scale: float = 1.0
    module: str = ""
    weights: Path | None = None

    @property
    def name(self) -> str:
        """The checkpoint's name for a reader, without the folders of one machine.

        >>> Source(path=Path("/cache/models--a--b/snapshots/4f2c"), seed=3).name
        'a/b at 4f2c, weights drawn at random (seed 3)'

        A suite of foreign files alone has no checkpoint, and so no name.

        >>> Source(path=Path()).name
        ''
        """
        if self.module:
            return self.module
        *_, hub, snapshots, last = ("", "", "", *self.path.parts)
        name = last
        if snapshots == "snapshots":  # how the cache of a model hub names its folders
            name = f"{hub.removeprefix('models--').replace('--', '/')} at {last[:12]}"
        if self.lora is not None:
            name += f" with {self.lora.name} × {self.lora_scale:g}"
        if self.seed is not None:
            name += f", weights drawn at random (seed {self.seed})"
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignModel:
    """Deployed files from elsewhere: the harness does not export or convert them.

    Attributes:
        onnx: An ONNX file. External data lies where this file says.
        converted: Pairs of a runtime's own format and a file in that format.
        names: Pairs of an input's or output's name in the recipe and in the file. An
            empty name in the file means that the file lacks that input.
        weight_bytes: Bytes of the first file's weights, to forecast memory.

    """

    onnx: Path | None = None
    converted: tuple[tuple[str, Path], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    weight_bytes: int = 0

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """Pairs of a format and a file in that format, the ONNX file first."""
        onnx = ((ONNX, self.onnx),) if self.onnx else ()
        return (*onnx, *self.converted)

    def of(self, kind: str) -> Path | None:
        """Return the file of a format, or None if there is none."""
        return dict(self.files).get(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One network that is exported alone, with tensors as inputs and outputs.

    Attributes:
        name: First part of every test id, for example ``unet``.
        recipe: Name of the recipe under `harness.recipes` that builds the network.
        source: Weights and configuration.
        inputs: Inputs, in the order of the wrapped module's ``forward``.
        outputs: Outputs, in the order in which ``forward`` returns them.
        options: Recipe options as sorted pairs, for example
            ``(("attention", "eager"),)``.
        foreign: Foreign model that is tested, or None if the harness makes the files.
        code: Digest of the files that a user's own `build` runs. The engine learns it;
            it is empty before, and for the harness's own recipes.

    """

    name: str
    recipe: str
    source: Source
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    options: tuple[tuple[str, str | int | bool], ...] = ()
    foreign: ForeignModel | None = None
    code: str = ""

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the size of each symbol that stands alone in an input's shape.

        `shapes` has the shape of each input, by name.
        """
        return {
            size: shapes[spec.name][axis]
            for spec in self.inputs
            for axis, size in enumerate(spec.shape)
            if isinstance(size, str) and symbol_of(size) == size
        }

    def __post_init__(self) -> None:
        check_name("component", self.name)
        # An input and an output may share a name, as in an autoencoder. Two inputs
        # may not, nor two outputs.
        for side in (self.inputs, self.outputs):
            names = [spec.name for spec in side]
            if len(set(names)) != len(names) or not names:
                msg = f"{self.name}: names must be unique and present, got {names}."
                raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """How a component is exported to ONNX.

    `harness.suite.schema.ExportTable` describes the settings.

    Attributes:
        dynamic: Symbols of the axes that stay open in the graph. Every other size is
            fixed in the graph, so each of its values needs an artifact of its own.
        patch: A function that changes the copy of the network which is exported:
            ``package.module:name``, or `LIVE` and a digest. Empty for none.

    """

    exporter: str = "dynamo"
    opset: int = 18
    optimize: bool = True
    dynamic: tuple[str, ...] = ("batch",)
    external_data: bool = False
    attention: str = ""
    keep_paths: bool = False
    patch: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as a key of the store holds them.

        What was added later is left out where it is not used, as in `Device.settings`.
        """
        later = ("patch",)
        return {
            name: value
            for name, value in asdict(self).items()
            if value or name not in later
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the deployed file is made from the exported graph.

    Attributes:
        name: Third part of every test id: ``fp32``, ``int8-weights``, ….
        backend: Runtime of the deployed file.
        kind: Built-in variant that this one starts from.
        flags: Extra flags, written as the converter expects them.
        files: Pairs of a flag that names a file, as `flags` has it, and the path of
            that file.
        converter: Version of the converter; empty for the one that is installed here.

    """

    name: str
    backend: str
    kind: str
    flags: tuple[str, ...] = ()
    files: tuple[tuple[str, Path], ...] = ()
    converter: str = ""

    def __post_init__(self) -> None:
        check_name("variant", self.name)

    @property
    def converter_flags(self) -> tuple[str, ...]:
        """The extra flags, with the path of each file in the place of its name."""
        paths = {flag: f"{flag.partition('=')[0]}={path}" for flag, path in self.files}
        return tuple(paths.get(flag, flag) for flag in self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place other than this process where a runtime runs.

    Attributes:
        name: Name in ids, for example ``phone``.
        command: Program and arguments that start a Python there.
        trace: Path of a trace, which has what the runtime showed there; empty where a
            runtime is run.
        version: Version of the runtime, if the harness makes an environment for it
            here. Then `command` is empty.
        kind: The kind of its table, for the plug-in that reaches it; empty for the
            others.
        table: Name of its table.
        settings: What the plug-in of its kind reads, sorted pairs.
        device: Fields of `Device` that it sets, sorted pairs.

    """

    name: str
    command: tuple[str, ...] = ()
    trace: str = ""
    version: str = ""
    kind: str = ""
    table: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    device: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_name("target", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where a runtime runs, and with which settings.

    `harness.suite.schema.BackendTable` describes the settings. `hints` and
    `provider_options` are sorted here.

    Attributes:
        device: ``cpu`` or ``cuda``; for MNN also ``opencl``, ``vulkan``, ``metal``; for
            ONNX Runtime a provider.
        hints: Session hints for MNN. For ONNX Runtime, its ``optimization`` level, or a
            graph rewrite to disable, with the value 0.
        target: Where the runtime runs; None for this process.
        api: Which API of the runtime runs the file; empty for any that can.

    """

    device: str = "cpu"
    threads: int = 2
    precision: str = "high"
    tf32: bool = False
    hints: tuple[tuple[str, int], ...] = ()
    target: Target | None = None
    provider_options: tuple[tuple[str, str | int | float | bool], ...] = ()
    cpu_nodes: float = 0.0
    api: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as a key of the store and a record hold them.

        What was added later is left out where it is not used, so older keys and
        records stay valid.
        """
        found = asdict(self)
        if self.target is not None:
            # Its own fields of the device are the device's here.
            del found["target"]["device"]
            later = ("kind", "table", "settings")
            found["target"]["settings"] = dict(self.target.settings)
            found["target"] = _without_empty(found["target"], later)
        later_here = ("target", "provider_options", "cpu_nodes", "api")
        return _without_empty(found, later_here)


def _without_empty(found: dict[str, Any], later: Collection[str]) -> dict[str, Any]:
    return {k: value for k, value in found.items() if value or k not in later}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One set of inputs: a profile, its index, the sizes and the seed.

    Attributes:
        profile: One of `PROFILES`, or `VARIED`.
        index: Number of the draw within the profile. In ``realistic`` it steps through
            the timesteps.
        shapes: Sorted ``(symbol, size)`` pairs.
        seed: Seed of the draw. The drawn arrays are stored and not drawn again.
        layers: Whether intermediate values are compared, or only outputs.
        knobs: Settings of a varied sample: sorted pairs of a setting's name, as
            `harness.recipes.varied` reads it, and its value.
        label: Id of the sample, if profile and index do not make it unique.
        added: Whether the harness chose its sizes, so that the reference may refuse
            them.

    """

    profile: str
    index: int
    shapes: tuple[tuple[str, int], ...]
    seed: int = 0
    layers: bool = True
    knobs: tuple[tuple[str, float], ...] = ()
    label: str = ""
    added: bool = False

    def __post_init__(self) -> None:
        if self.profile not in (*PROFILES, VARIED):
            msg = f"profile must be one of {PROFILES}, got {self.profile!r}."
            raise SpecError(msg)

    @property
    def id(self) -> str:
        """Short name within a case, for example ``realistic-1``."""
        return self.label or f"{self.profile}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One component in one runtime, made in one way, compared on a few samples.

    Attributes:
        component: Network that is compared.
        export: How the network is exported to ONNX.
        variant: How the deployed file is made from the graph, and for which runtime.
        device: Device of the candidate.
        samples: Inputs that are compared.
        reference: Device of PyTorch.
        too_large: Labels of samples that are left out, because the weights leave too
            little of this machine's memory.
        calibration: Inputs on which the conversion measures value ranges. They are
            drawn with another seed than `samples`. So no tested input was used to make
            the tested file.
        where: What follows the variant's name in the id: ``@phone-low``, for a target
            or a precision beside the usual one. Empty for the usual one, here.
        within: Names of `harness.core.record.SELF` by which its tolerances bound
            outputs.

    """

    component: Component
    export: ExportSettings
    variant: Variant
    device: Device
    samples: tuple[Sample, ...] = field(repr=False)
    reference: Device = Device()
    too_large: tuple[str, ...] = ()
    calibration: tuple[Sample, ...] = field(default=(), repr=False)
    where: str = ""
    within: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The component's name, which is the first part of the id."""
        return self.component.name

    @property
    def backend(self) -> str:
        """The runtime's name, which is the second part of the id."""
        return self.variant.backend

    @property
    def how(self) -> str:
        """The variant's name and `where`, which are the third part of the id."""
        return f"{self.variant.name}{self.where}"

    @property
    def shared(self) -> object:
        """What cases have in common that one export and its references serve."""
        return self.subject, self.export, self.reference

    @property
    def host(self) -> str:
        """The host process that runs it: a target's has not imported the runtime."""
        target = self.device.target
        return f"{self.backend}{AT}{target.name}" if target else self.backend

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets that the case runs on; empty for one that runs here."""
        return () if self.device.target is None else (self.device.target.name,)

    @property
    def parts(self) -> tuple[Case, ...]:
        """The case of each deployed file that it runs: the case itself."""
        return (self,)

    @property
    def whats(self) -> tuple[str, ...]:
        """The checks of the case; no ``layers`` if no sample compares them."""
        layers = any(sample.layers for sample in self.samples)
        return ("layers", "outputs") if layers else ("outputs",)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that the case needs."""
        return (self.backend,)

    @property
    def id(self) -> str:
        """``component/backend/variant``. ``-k`` selects cases by it."""
        return f"{self.component.name}/{self.backend}/{self.how}"
