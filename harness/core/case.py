"""What is tested: sources, components, variants, samples and cases.

Plain data; building a module, drawing an input and running a session happen
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import SpecError
from harness.core.runtime import ONNX, runtimes

DTYPES = ("float32", "float16", "float64", "int32", "int64", "bool")
EXPORTERS = ("dynamo", "torchscript")
REFERENCE = "pytorch"
"""The backend that every other is held against."""

PROFILES = (
    "realistic",
    "unit-normal",
    "low-variance",
    "large-mean",
    "boundary",
)
GIVEN = "given"
"""Variant of a file that others made, as it is; and the recipe of an ONNX file that is
its own reference."""

ITSELF = "itself"
"""How a file without a PyTorch model is lined up: it is its own reference."""

VARIED = "varied"
"""Profile of samples that are drawn by their own `Sample.knobs`; `parity tune` makes
them, and the worst that it finds are kept beside the suite."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that cannot stand in a test id.

    Raises:
        SpecError: It has other characters.

    """
    if not _NAME.fullmatch(name):
        msg = (
            f"{kind} name {name!r} must be lower case letters, digits, '_', '-' or "
            "'.', so that it can stand in a test id."
        )
        raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output by name.

    Attributes:
        name: As deployed, for example ``encoder_hidden_states``.
        shape: Sizes; a symbol such as ``batch`` is bound by a sample's shapes. A
            symbol may carry a factor, ``8*height`` or ``height/4`` (rounded up, as
            a strided convolution with padding does).
        dtype: One of `DTYPES`.
        draw: How profiles draw it: ``tokens``, ``mask``, ``segments``, ``timestep``,
            ``normal``, ``image``, ``hint``, ``sizes`` (in pixels), ``pipeline`` (as
            the recipe does, whatever the profile); empty for outputs.

    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"
    draw: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            msg = f"{self.name}: dtype must be one of {DTYPES}, got {self.dtype!r}."
            raise SpecError(msg)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in `shape`, without factors, in order."""
        sizes = (size for size in self.shape if isinstance(size, str))
        return tuple(_split(size)[0] for size in sizes)

    def bind(self, shapes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with each symbol replaced by its size.

        Raises:
            SpecError: A symbol has no size in `shapes`.

        """
        return tuple(self._size(size, shapes) for size in self.shape)

    def _size(self, size: int | str, shapes: Mapping[str, int]) -> int:
        if isinstance(size, int):
            return size
        symbol, times, over = _split(size)
        if symbol not in shapes:
            msg = (
                f"{self.name}: no size is given for {symbol!r}; there are sizes for "
                f"{sorted(shapes)}. Add it under [[shapes]] in parity.toml."
            )
            raise SpecError(msg)
        return -(-shapes[symbol] * times // over)


def symbol_of(size: str) -> str:
    """Return ``height`` of ``8*height`` or ``height/4``."""
    return _split(size)[0]


def _split(size: str) -> tuple[str, int, int]:
    """Return symbol, multiplier and divisor of ``8*height`` or ``height/4``."""
    times, _, rest = size.rpartition("*")
    symbol, _, over = rest.partition("/")
    return symbol, int(times or 1), int(over or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where weights and configuration come from.

    Attributes:
        path: A diffusers folder with ``model_index.json``, a folder of one network of
            transformers, or an ONNX file.
        seed: None when the folder holds the weights; else they are drawn at random
            from this seed, zero-convolutions included.
        lora: A file of low-rank weights that is merged into networks; None for none.
        lora_scale: How much of it.

    """

    path: Path
    seed: int | None = None
    lora: Path | None = None
    lora_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Deployed files that others made, taken instead of exporting and converting.

    Attributes:
        onnx: An ONNX file; its external data lies where it says.
        converted: Pairs of a runtime's own format and a file of it.
        names: Pairs of the recipe's name of an input or output and the file's; empty
            text says that the file does without that input.

    """

    onnx: Path | None = None
    converted: tuple[tuple[str, Path], ...] = ()
    names: tuple[tuple[str, str], ...] = ()

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """Pairs of a format and a file of it, the ONNX file first."""
        onnx = ((ONNX, self.onnx),) if self.onnx else ()
        return (*onnx, *self.converted)

    def of(self, kind: str) -> Path | None:
        """Return the file of a format, or None where none is taken."""
        return dict(self.files).get(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One network that is exported on its own, with a tensor-only signature.

    Attributes:
        name: Stands first in every test id: ``unet``.
        recipe: Which recipe under `harness.recipes` builds it.
        source: Weights and configuration.
        inputs: In the order of the wrapped module's ``forward``.
        outputs: In the order it returns them.
        options: Recipe options, for example ``{"attention": "eager"}``; sorted pairs.
        taken: Files of others that are tested; None where the harness makes them.

    """

    name: str
    recipe: str
    source: Source
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    options: tuple[tuple[str, str | int | bool], ...] = ()
    taken: Taken | None = None

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the size of each symbol that stands alone in an input's shape.

        Args:
            shapes: Of the inputs, by name.

        """
        return {
            size: shapes[spec.name][axis]
            for spec in self.inputs
            for axis, size in enumerate(spec.shape)
            if isinstance(size, str) and symbol_of(size) == size
        }

    def __post_init__(self) -> None:
        check_name("component", self.name)
        names = [spec.name for spec in (*self.inputs, *self.outputs)]
        # An autoencoder's input and output may share a name, one side's may not.
        for side in (self.inputs, self.outputs):
            listed = [spec.name for spec in side]
            if len(set(listed)) != len(listed) or not listed:
                msg = f"{self.name}: names must be unique and present, got {names}."
                raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """How a component becomes ONNX.

    Attributes:
        exporter: ``dynamo`` or ``torchscript``.
        opset: ONNX operator set.
        dynamic: Symbols left open in the graph; every other size is baked in, and
            each of its values makes an artifact of its own.
        external_data: Weights in ``weights.pb`` even below 2 GB.
        attention: Attention implementation of the *exported* copy
            (``eager``, ``sdpa``); empty keeps the model's own.

    """

    exporter: str = "dynamo"
    opset: int = 18
    dynamic: tuple[str, ...] = ("batch",)
    external_data: bool = False
    attention: str = ""

    def __post_init__(self) -> None:
        if self.exporter not in EXPORTERS:
            msg = f"exporter must be one of {EXPORTERS}, got {self.exporter!r}."
            raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the deployed file is made from the exported one.

    Attributes:
        name: ``fp32``, ``int8-weights``, …; stands third in every test id.
        backend: The runtime it is for.
        kind: The built-in variant it starts from.
        flags: Extra converter flags, as the converter takes them.

    """

    name: str
    backend: str
    kind: str
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("variant", self.name)
        if self.backend not in runtimes():
            msg = f"backend must be one of {tuple(runtimes())}, got {self.backend!r}."
            raise SpecError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where and how a runtime is asked to run.

    Attributes:
        device: ``cpu``, ``cuda``; for MNN also ``opencl``, ``vulkan``, ``metal``.
        threads: Intra-operator threads.
        precision: MNN's precision hint, ``high``, ``normal`` or ``low``.
        tf32: Let CUDA round float32 products to TensorFloat-32.
        hints: Sorted ``(name, value)`` pairs: MNN's session hints; ONNX Runtime's
            ``optimization`` level, or 0 for a rewrite to leave out.

    """

    device: str = "cpu"
    threads: int = 2
    precision: str = "high"
    tf32: bool = False
    hints: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One set of inputs: a profile, its index, the sizes and the seed.

    Attributes:
        profile: One of `PROFILES`, or `VARIED`.
        index: Which of the profile's draws; realistic steps through timesteps.
        shapes: Sorted ``(symbol, size)`` pairs.
        seed: Seed of the draw; the drawn arrays are stored, not redrawn.
        layers: Whether intermediate values are compared, or outputs alone.
        knobs: Of a varied sample: sorted pairs of a knob's name, as `varied` reads
            it, and where it stands.
        label: Its id, where index and profile do not tell it from another's.

    """

    profile: str
    index: int
    shapes: tuple[tuple[str, int], ...]
    seed: int = 0
    layers: bool = True
    knobs: tuple[tuple[str, float], ...] = ()
    label: str = ""

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
    """One component, in one runtime, made one way, on a few samples.

    Attributes:
        component: What is compared.
        export: How it becomes ONNX.
        variant: How the deployed file is made from that, and for which runtime.
        device: Where the candidate is asked to run.
        samples: Inputs.
        reference: Where PyTorch is asked to run.
        too_large: Labels of samples that are left out, for their values need more
            memory than a machine like this one has room for.

    """

    component: Component
    export: ExportSettings
    variant: Variant
    device: Device
    samples: tuple[Sample, ...] = field(repr=False)
    reference: Device = Device()
    too_large: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What is tested, first in the id."""
        return self.component.name

    @property
    def backend(self) -> str:
        """The runtime, second in the id."""
        return self.variant.backend

    @property
    def how(self) -> str:
        """How it was made, third in the id."""
        return self.variant.name

    @property
    def whats(self) -> tuple[str, ...]:
        """What is checked of it; no layers where no sample compares them."""
        layers = any(sample.layers for sample in self.samples)
        return ("layers", "outputs") if layers else ("outputs",)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Runtimes that it needs."""
        return (self.backend,)

    @property
    def id(self) -> str:
        """``component/backend/variant``, the interface that ``-k`` selects on."""
        return f"{self.component.name}/{self.backend}/{self.variant.name}"
