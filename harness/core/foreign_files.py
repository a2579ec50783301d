"""The files of a model that others made: what there is, how the store has them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from harness.core.errors import StageError, SuiteError
from harness.core.onnx_header import read_header
from harness.core.onnx_weights import lacking_onnx
from harness.core.outcome import Outcome
from harness.core.runtime import ONNX, OwnFormat, formats, resolve

_FICLONE = 0x40049409
"""Linux' request to let one file share another's blocks until either is written."""


def weight_files(path: Path, kind: str) -> tuple[str, ...]:
    """Return the names of the files beside `path` that hold its weights.

    Raises:
        SuiteError: `path` or one of them is not there, or is no file of that kind.

    """
    if own := _own_format(kind):
        if not path.is_file():
            msg = f"there is no {own.title} at {path}."
            raise SuiteError(msg)
        beside = f"{path.name}{own.weights}"
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
        kind: ``onnx``, or the name of a runtime's own format.
        subject: Begins the message.

    Raises:
        StageError: With the outcome ``load``, naming file, tensor and bytes.

    """
    if words := lacking(path, kind):
        msg = f"{subject}: {words}"
        raise StageError(msg, outcome=Outcome.LOAD)


def lacking(path: Path, kind: str) -> str:
    """Return in one sentence what the files of a model do not hold; empty if all."""
    try:
        if own := _own_format(kind):
            beside = path.with_name(f"{path.name}{own.weights}")
            # Imported now, for it may load numpy, and a suite is read without that.
            return str(resolve(own.lacking)(path, beside))
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
    own = _own_format(kind)
    put = _link if own else _clone
    for beside in weight_files(path, kind):
        # A runtime's file finds its weights by its own name, an ONNX file by what it
        # says.
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
