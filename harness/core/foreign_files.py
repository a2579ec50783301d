"""The files of a model that others made: what there is, how the store has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.core.errors import StageError, SuiteError
from harness.core.onnx_header import read_header
from harness.core.onnx_weights import lacking_onnx
from harness.core.outcome import Outcome

_MNN_WEIGHT = ".weight"
_FICLONE = 0x40049409
"""Linux' request to let one file share another's blocks until either is written."""


def weight_files(path: Path, kind: str) -> tuple[str, ...]:
    """Return the names of the files beside `path` that hold its weights.

    Raises:
        SuiteError: `path` or one of them is not there, or is no file of that kind.

    """
    if kind == "mnn":
        if not path.is_file():
            msg = f"there is no MNN file at {path}."
            raise SuiteError(msg)
        beside = f"{path.name}{_MNN_WEIGHT}"
        return (beside,) if (path.parent / beside).is_file() else ()
    files = read_header(path).files
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            msg = (
                f"{path} keeps weights in {name!r}, outside its own folder; save it "
                "again with its weights beside it."
            )
            raise SuiteError(msg)
        if not (path.parent / name).is_file():
            msg = (
                f"{path} keeps weights in {name!r}, which is not there; copy it "
                f"to {path.parent}."
            )
            raise SuiteError(msg)
    return files


def check_whole(path: Path, kind: str, subject: str) -> None:
    """Refuse a model file whose weights another file does not hold whole.

    To be called before a converter or a runtime reads it: some read past the end.

    Args:
        path: Of the model.
        kind: ``onnx`` or ``mnn``.
        subject: Begins the message.

    Raises:
        StageError: With the outcome ``load``, naming file, tensor and bytes.

    """
    if words := lacking(path, kind):
        msg = f"{subject}: {words}"
        raise StageError(msg, outcome=Outcome.LOAD)


def lacking(path: Path, kind: str) -> str:
    """Return in one sentence what the files of a model do not hold; empty if all."""
    # A suite is read without flatbuffers, which loads numpy.
    from harness.core.mnn_file import lacking_mnn

    try:
        if kind == "mnn":
            return lacking_mnn(path, path.with_name(f"{path.name}{_MNN_WEIGHT}"))
        return lacking_onnx(path)
    except (SuiteError, ValueError) as error:
        return str(error)


def bring(path: Path, kind: str, folder: Path, name: str) -> None:
    """Have `folder` hold the file at `path` as `name`, and its weights beside it.

    The disk is asked for a second name of the same bytes, and where it cannot, as
    between two file systems, they are copied. Weights of an ONNX file are always a
    file of their own, which costs no room where the file system shares blocks: onnx
    takes weights with two names for an attack, and would refuse its owner's too.
    """
    put = _link if kind == "mnn" else _clone
    for beside in weight_files(path, kind):
        # An .mnn finds its weights by its own name, an ONNX file by what it says.
        called = f"{name}{_MNN_WEIGHT}" if kind == "mnn" else beside
        put(path.parent / beside, folder / called)
    _link(path, folder / name)


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
