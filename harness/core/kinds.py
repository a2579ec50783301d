"""The kinds of entries in a store: which files and notes each may have, and who may.

An entry may come from a store that machines share. Nobody knows who wrote there. So its
kind says what it may hold, and nothing else is taken. This table is the one place where
a kind is declared. A runtime's own kind follows from its declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from harness.core.received import DamagedError, convert

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Size = Annotated[float, msgspec.Meta(ge=0.0)]
Spec = tuple[str, list[Count], str]
"""Name, shape and dtype of an array."""

MODULE: Final = "module"
"""The kind of a live module that `harness.check` kept, or of a patch: a pickle."""

PROGRAM: Final = "traced-program"
"""The kind of an exporter's translation of a network.

PyTorch can read a program only by its own reader. That reader unpickles weights,
constants and sample inputs, and evaluates the text of sizes. So a program can run code
when it is read.
"""


class _Notes(msgspec.Struct, frozen=True):
    """Notes of a stage of which nothing is asked when the entry is read."""


class _Graph(msgspec.Struct, frozen=True):
    unread: list[str] = []


class _Reference(msgspec.Struct, frozen=True):
    values: Count
    rewrite_max_abs: Size
    patch_floors: Size = 0.0
    refused: str = ""


class _Asked(msgspec.Struct, frozen=True):
    effects: dict[str, float | None]
    beside: dict[str, float] = {}


class _Program(msgspec.Struct, frozen=True):
    outputs: dict[str, str]


class _Ids(msgspec.Struct, frozen=True):
    texts: list[str]


class _Drawing(msgspec.Struct, frozen=True):
    seen: list[str] = []
    settings: dict[str, bool | int | float | str] = {}


class _Imports(msgspec.Struct, frozen=True):
    files: list[str]


class _Weights(msgspec.Struct, frozen=True):
    bytes: Count


class _Self(msgspec.Struct, frozen=True):
    probes: list[str]
    rows: dict[str, list[Any]]
    samples: list[str] | None = None


class _Excerpt(msgspec.Struct, frozen=True):
    given: dict[str, str]
    begins: list[str]
    nodes: Count
    inputs: list[Spec]
    outputs: list[Spec]
    kept: dict[str, str]
    values: list[str] = []
    sizes: list[Count] = []
    listing: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What an entry of one kind may hold.

    Attributes:
        files: Patterns of the names of its files, as `fnmatch` reads them.
        notes: The type that its `meta` must have.
        model: Name of an ONNX file among them. The files in which that file keeps its
            weights belong to the entry too. Empty if there is none.
        is_shared: Whether it may come from, and go into, a store that machines share.
            What is not shared can run code when it is read, or names files of one
            machine. So it stays on the machine that made it, and is used only where
            nobody else can write.

    """

    files: tuple[str, ...] = ()
    notes: type[msgspec.Struct] = _Notes
    model: str = ""
    is_shared: bool = True


_ONNX: Final = "model.onnx"
_WITH_NAMES: Final = ("names.json",)
_TRACE: Final = ("values.bin", "values.json")
_ARRAYS: Final = ("*.npy", "arrays.json")
_GRAPH: Final = (_ONNX, "weights.pb", "probes.json", *_WITH_NAMES)

_KINDS: Final[Mapping[str, Kind]] = {
    "onnx": Kind(files=_GRAPH, notes=_Graph, model=_ONNX),
    "inputs": Kind(files=_ARRAYS),
    "reference": Kind(files=_TRACE, notes=_Reference),
    "asked": Kind(files=_ARRAYS, notes=_Asked),
    "checked": Kind(),
    "contract": Kind(),
    "self": Kind(notes=_Self),
    "weights": Kind(notes=_Weights),
    "imports": Kind(notes=_Imports, is_shared=False),  # it names files of this machine
    "effects": Kind(files=("effects.msgpack",)),
    "excerpt": Kind(files=(*_GRAPH, *_TRACE, *_ARRAYS), notes=_Excerpt, model=_ONNX),
    "drawing-inputs": Kind(files=_ARRAYS, notes=_Ids),
    "drawing": Kind(
        files=("reference.npz", "states.msgpack", "pictures.npz"), notes=_Drawing
    ),
    MODULE: Kind(files=("module.pt",), is_shared=False),
    PROGRAM: Kind(files=("program.pt2",), notes=_Program, is_shared=False),
}


def kind_of(name: str) -> Kind | None:
    """Return the kind of that name, or None if there is none here.

    >>> kind_of("onnx").is_shared, kind_of(PROGRAM).is_shared, kind_of("program")
    (True, False, None)
    >>> kind_of("mnn").files
    ('model.mnn', 'model.mnn.weight', 'names.json', 'graph.onnx')
    """
    if (known := _KINDS.get(name)) is not None:
        return known
    from harness.core.runtime import runtimes  # cases are made of entries, so not above

    declared = runtimes().get(name)
    if declared is None:
        return None
    beside = ("graph.onnx",) if declared.own_format else ()
    return Kind(
        files=(declared.model, *declared.weights, *_WITH_NAMES, *beside),
        model=declared.model if declared.model.endswith(".onnx") else "",
    )


def is_shared(name: str) -> bool:
    """Whether entries of a kind may come from, and go into, a shared store."""
    kind = kind_of(name)
    return kind is not None and kind.is_shared


def check_notes(name: str, notes: Mapping[str, object]) -> None:
    """Compare an entry's notes with the type that its kind declares.

    Raises:
        DamagedError: They have another type. The clause says where.

    """
    if (kind := kind_of(name)) is not None:
        try:
            convert(dict(notes), kind.notes)
        except DamagedError as error:
            msg = f"its meta: {error}"
            raise DamagedError(msg) from error


def strangers(name: str, files: Iterable[str], folder: Path) -> list[str]:
    """Return the names of files that an entry of a kind may not have.

    Args:
        name: The kind.
        files: Names of the entry's files.
        folder: The folder with these files. If there is an ONNX file, it says in which
            files it keeps its weights.

    """
    kind = kind_of(name) or Kind()
    left = [
        file
        for file in files
        if not any(fnmatchcase(file, part) for part in kind.files)
    ]
    # `*` of a pattern takes a slash too.
    left += [file for file in files if "/" in file and file not in left]
    model = folder / kind.model
    if not left or not kind.model or not model.is_file():
        return left
    from harness.core.onnx_ports import files_beside

    try:
        weights = files_beside(model)
    except (OSError, DamagedError):
        return left
    return [one for one in left if one not in weights]
