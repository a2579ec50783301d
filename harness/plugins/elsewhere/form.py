"""The form of a bundle and of a trace: what each may say, for its writer and readers.

`parity bundle` writes a bundle through these types, a card holds one as text, and
`parity judge` and `parity verify` read a trace by them. Each runtime with a driver
declares the calls that a bundle may have, as `harness.runtimes.calls` says.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from harness.core.case import Device
from harness.core.received import DamagedError, convert, decode, read_json
from harness.core.runtime import Runtime
from harness.plugins.elsewhere import bundle_run
from harness.runtimes.calls import FILE, FOLDER, Name, Option

FORMAT = bundle_run.FORMAT
OUTPUTS, LAYERS = bundle_run.OUTPUTS, "layers"

ABOUT_BYTES = 32 << 20
"""Largest size of what a trace says about itself: 6,000 values have 1 MB."""

_CALLS = 256
"""Most calls that a receiver makes: a card has two samples of a case."""

_MOST = 1 << 48
"""More numbers than any value has."""

Text = Annotated[str, Meta(max_length=1 << 16)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
FileName = Annotated[str, Meta(pattern=rf"\A{FILE}\Z")]
"""A file of a bundle: ``model-0/model.mnn``."""

Size = Annotated[int, Meta(ge=0, le=_MOST)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=32)]
Dtype = Annotated[str, Meta(pattern=r"\A[<>|=]?[biuf][1248]\Z")]
"""A dtype that can be measured, as NumPy writes it: ``<f4``."""


class DeviceSettings(Struct, frozen=True, kw_only=True):
    """The settings of a `Device`, to compare with a suite's; no runtime gets them.

    Attributes:
        hints: Pairs of a hint's name and its value.
        provider_options: Pairs of an option's name and its value.

    """

    device: Name
    threads: int
    precision: Name
    tf32: bool
    hints: tuple[tuple[Name, int], ...] = ()
    provider_options: tuple[tuple[Name, Option], ...] = ()
    cpu_nodes: float = 0.0
    api: Name = ""


C = TypeVar("C")


class Bundle(Struct, Generic[C], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``bundle.json`` has.

    Attributes:
        case: Id of the case.
        layers: What the trace keeps of layers.
        outputs: Names of the outputs in the deployed file.
        samples: Id of each sample, to the digest of its inputs.
        settings: The case's own settings; earlier bundles have none.
        files: Name of each file, to its digest.
        entries: Digests of the files' entries in the store.
        calls: The calls, in order.

    """

    format: int
    case: Name
    layers: Literal["all", "stats", "outputs"]
    outputs: tuple[Name, ...]
    samples: dict[Name, Name]
    settings: DeviceSettings | None = None
    files: dict[FileName, Digest]
    entries: tuple[Name, ...]
    calls: tuple[C, ...]


class Value(Struct, frozen=True, kw_only=True):
    """One value of a trace.

    Attributes:
        name: The runtime's name of the value.
        array: Key of its array.
        shape: Shape of the value.
        sketched: Whether the array is a sketch; see `bundle_run.sketch`.

    """

    kind: Literal["outputs", "layers"]
    sample: Name
    name: Name
    array: Name
    shape: Shape
    dtype: Dtype
    sketched: bool

    def __post_init__(self) -> None:
        if math.prod(self.shape) > _MOST:
            msg = f"no value has the shape {list(self.shape)}"
            raise ValueError(msg)


class About(Struct, frozen=True, kw_only=True):
    """What a trace says about itself.

    Attributes:
        name: Name of the device.
        samples: Id of each sample, to the digest of its inputs; empty for a dump.
        files: Name of each deployed file, to its digest; empty for a dump.
        entries: Digests of the files' entries in the store.
        settings: The case's settings; earlier traces and dumps have none.
        log: What the runtime printed.

    """

    name: Name
    case: Name
    files: dict[Name, Name]
    entries: tuple[Name, ...]
    samples: dict[Name, Name]
    settings: DeviceSettings | None = None
    layers: Name
    version: Name
    machine: Name
    log: Text
    format: int = FORMAT
    values: tuple[Value, ...]


def settings_of(device: Device) -> DeviceSettings:
    """Return the settings of a device as a bundle has them."""
    # Lists and tuples are the same in JSON.
    return convert(msgspec.to_builtins(device.settings), DeviceSettings)


def bundle_of(said: Mapping[str, Any], declared: Runtime) -> Bundle[Any]:
    """Return what a bundle says, in its form.

    Raises:
        DamagedError: It has another form, or the runtime declares no calls.

    """
    found: Bundle[Any] = convert(msgspec.to_builtins(said), _form(declared))
    return found


def decode_bundle(content: bytes | str, declared: Runtime) -> Bundle[Any]:
    """Return the text of a bundle in its form.

    Raises:
        DamagedError: It has another form, or the runtime declares no calls.

    """
    return _known(decode(content, _form(declared)))


def read_bundle(path: Path, declared: Runtime) -> Bundle[Any]:
    """Read a ``bundle.json``.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It has another form, or the runtime declares no calls.

    """
    return _known(read_json(path, _form(declared)))


def refused(bundle: Bundle[Any], declared: Runtime, feeds: Collection[str]) -> str:
    """Return why a receiver does not make a bundle's calls; empty if it makes them.

    A receiver runs the deployed files as they are and looks at outputs. It loads the
    bundle's own files alone, and gives the runtime no option that names a path. `feeds`
    are the arrays that the bundle comes with.
    """
    return next(_refusals(bundle, declared, feeds), "")


def strange_file(names: Iterable[str], declared: Runtime) -> str:
    """Return a clause about a name that no deployed file of a runtime has, or nothing.

    A receiver makes files of these names, so they are the runtime's and nobody else's.
    """
    known = (declared.model, *declared.weights)
    for name in names:
        folder, _, own = name.rpartition("/")
        if own not in known or not re.fullmatch(FOLDER, folder):
            files = " and ".join(known)
            return f"names the file {name!r}, and {declared.title}'s are {files}"
    return ""


def _refusals(
    bundle: Bundle[Any], declared: Runtime, feeds: Collection[str]
) -> Iterator[str]:
    """Yield a clause about everything that a receiver does not do."""
    if words := strange_file(bundle.files, declared):
        yield words
    if len(bundle.calls) > _CALLS:
        yield f"makes {len(bundle.calls):,} calls, and {_CALLS} are made at most"
    if bundle.layers != OUTPUTS or any(call.kind == LAYERS for call in bundle.calls):
        yield "asks for values of layers, and outputs alone are compared"
    for call in bundle.calls:
        for key in call.feeds.values():
            if key not in feeds:
                yield f"reads the array {key!r}, which it does not come with"
        yield from _calls(declared).refusals(call, bundle.files)


def _form(declared: Runtime) -> Any:
    """Return the type of a runtime's bundles."""
    form: Any = Bundle
    return form[_calls(declared).CALLS]


def _calls(declared: Runtime) -> Any:
    name = f"{declared.package}.calls"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        msg = f"{declared.title} declares no calls that a bundle can have"
        raise DamagedError(msg) from error


def _known(bundle: Bundle[Any]) -> Bundle[Any]:
    if bundle.format != FORMAT:
        msg = f"its bundle has format {bundle.format}, and {FORMAT} is read"
        raise DamagedError(msg)
    return bundle
