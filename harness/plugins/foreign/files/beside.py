"""The files of a foreign model: which there are, and how the store takes them in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.core.case import ONNX
from harness.core.errors import StageError, SuiteError
from harness.core.onnx_header import lacking_onnx, read_header
from harness.core.outcome import Outcome
from harness.core.received import leads_inside
from harness.core.runtime import OwnFormat, formats, resolve

_OURS = ("entry.json", "graph.onnx", "model.onnx", "names.json", "probes.json")
"""Files of an entry of the store that a foreign model's weights lie beside."""

_FICLONE = 0x40049409
"""Linux request number that lets a file share another file's disk blocks until one of
the two is written."""


def weight_files(path: Path, kind: str) -> tuple[str, ...]:
    """Return the names of the files beside `path` that hold its weights.

    Raises:
        SuiteError: `path` or one of these files is not there, or is no file of that
            kind.

    """
    if own := _own_format(kind):
        if not path.is_file():
            msg = f"there is no {own.title} at {path}."
            raise SuiteError(msg)
        beside = _weights_of(path, own)
        return (beside.name,) if beside.is_file() else ()
    files = read_header(path).files
    for name in files:
        check_inside(path, name)
        if not (path.parent / name).is_file():
            raise SuiteError(lacking_onnx(path))
        if name in _OURS:
            msg = (
                f"{path} keeps weights in {name!r}, a name that the store gives to a "
                "file of its own; save it again with another name for its weights."
            )
            raise SuiteError(msg)
    return files


def weight_bytes(kind: str, path: Path) -> int:
    """Return the bytes of a file and of those beside it, to forecast memory.

    float16 weights count as float32, because processors convert them to that. Other
    weights count as they are stored. The graph in the same file is small beside them.
    """
    files = (path, *(path.parent / name for name in weight_files(path, kind)))
    halves = read_header(path).half_bytes if kind == ONNX else 0
    return halves + sum(file.stat().st_size for file in files)


def _weights_of(path: Path, own: OwnFormat) -> Path:
    """Return the path of the file beside `path` that holds its weights, if it is there.

    Raises:
        SuiteError: No file can have that name.

    """
    beside = path.with_name(f"{path.name}{own.weights}")
    if not leads_inside(beside.name):
        msg = (
            f"the {own.title} in {path.parent} has a name of {len(path.name)} "
            f"characters, and one that ends in {own.weights} must fit beside it; "
            "rename it."
        )
        raise SuiteError(msg)
    return beside


def check_inside(path: Path, name: str) -> None:
    """Refuse weights that a link puts outside the folder of the file at `path`.

    Raises:
        SuiteError: The file called `name` leads elsewhere.

    """
    home, held = path.parent.resolve(), (path.parent / name).resolve()
    if not held.is_relative_to(home):
        msg = (
            f"{path} keeps weights in {name!r}, a link to {held}, which is outside its "
            f"own folder; copy that file to {path.parent}."
        )
        raise SuiteError(msg)


def check_whole(path: Path, kind: str, subject: str) -> None:
    """Refuse a model file if another file does not hold all of its weights.

    Call this before a converter or a runtime reads the file: some of them read past the
    end of the weights. The message begins with `subject`.

    Raises:
        StageError: Weights are missing. The outcome is ``load``; the message names
            file, tensor and bytes.

    """
    if words := lacking(path, kind):
        msg = f"{subject}: {words}"
        raise StageError(msg, outcome=Outcome.LOAD)


def lacking(path: Path, kind: str) -> str:
    """Return a message about data that a model's files lack, or an empty text."""
    try:
        if own := _own_format(kind):
            beside = _weights_of(path, own)
            # It is imported now, because it may load NumPy, and a suite is read
            # without NumPy.
            words = str(resolve(own.lacking)(path, beside))
            way_out = "fetch or copy it again, or convert the model again."
            return f"{words}; {way_out}" if words else ""
        return lacking_onnx(path)
    except (SuiteError, ValueError) as error:
        return str(error)


def bring(path: Path, kind: str, folder: Path, name: str) -> None:
    """Put the file at `path` into `folder` as `name`, with its weights beside it.

    The file is linked: the disk gives a second name to the same bytes. Where that is
    not possible, as between two file systems, the bytes are copied. Weights of an ONNX
    file always become a file of their own, because onnx regards weights with two names
    as an attack. onnx would then refuse the user's own file too. Such a file costs no
    space where the file system can share blocks.
    """
    own = _own_format(kind)
    put = _link if own else _clone
    for beside in weight_files(path, kind):
        # A runtime's own file finds its weights by its own file name. An ONNX file
        # holds the name of its weights file.
        called = f"{name}{own.weights}" if own else beside
        put(path.parent / beside, folder / called)
    _link(path, folder / name)


def _own_format(kind: str) -> OwnFormat | None:
    return None if kind == ONNX else formats()[kind].own_format


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _clone(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl

        with source.open("rb") as one, target.open("wb") as two:
            fcntl.ioctl(two.fileno(), _FICLONE, one.fileno())
    except (ImportError, OSError):
        shutil.copyfile(source, target)
