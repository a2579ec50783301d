"""Write the files of `parity init`: all or none, and over others only with --force."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.core.errors import ParityError, SuiteError
from harness.core.settings import Settings
from harness.core.whole_file import writing
from harness.plugins.capture.suites import TEST_FILE
from harness.plugins.start.init.checkpoint import texts_of_checkpoint
from harness.plugins.start.init.onnx_files import (
    foreign_onnx_files,
    refuse_converted_alone,
    texts_of_files,
    texts_of_pair,
)
from harness.plugins.start.init.render import Choice
from harness.suite.json_schemas import schemas
from harness.suite.judge import Judge
from harness.suite.suite import load_suite

_SCHEMA = "parity.schema.json"
_FILES = ("parity.toml", "tolerances.toml", _SCHEMA, "test_parity.py")

# A TOML language server reads this line. The schema is beside the suite, so the line is
# right on every machine, without a network, and for this version.
_HEAD = f"#:schema ./{_SCHEMA}\n"


def write_suite(  # one for each choice of the user
    checkpoint: Path,
    folder: Path,
    *,
    after: Path | None = None,
    force: bool = False,
    choice: Choice | None = None,
    on_notice: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write a commented suite for `checkpoint` into `folder`; return the files.

    All files are written or none: they are written under other names first, and then
    renamed. `choice` says which variants run at first; left out, it is fp32 alone.
    `on_notice` receives a sentence about each surprise in the suite for the user.
    If `after` is given, both are ONNX files, and it is compared with `checkpoint`.

    Raises:
        ParityError: `checkpoint` is no diffusers or transformers folder and has no ONNX
            files, a part that it names is missing, a file exists already and `force` is
            not given, or the folder cannot be written to.

    """
    _refuse_missing(checkpoint)
    refuse_converted_alone(checkpoint)
    texts = partial(_texts, checkpoint, choice=choice, after=after)
    (suite, tolerances), notices = texts(folder)
    _check_reads(checkpoint, folder, texts)
    # This check is last, because --force cannot fix an error of the checkpoint.
    _refuse_written(folder, force=force)
    with writing(folder, "give another with --into"):
        written = _write_all(folder, _HEAD + suite, tolerances)
    for notice in notices:
        on_notice(notice)
    return written


_Texts = tuple[tuple[str, str], list[str]]


def _texts(
    checkpoint: Path, folder: Path, *, choice: Choice | None, after: Path | None
) -> _Texts:
    """Return both TOML files, to be written to `folder`, and sentences for the user."""
    if after is not None:
        return texts_of_pair(checkpoint, after, folder), []
    if files := foreign_onnx_files(checkpoint):
        return texts_of_files(checkpoint, files, folder)
    return texts_of_checkpoint(checkpoint, folder, choice)


def _check_reads(
    checkpoint: Path, folder: Path, made: Callable[[Path], _Texts]
) -> None:
    """Refuse a suite that its own readers do not take, before it is in place.

    The suite is written for another folder and read there, with its tolerances.

    Raises:
        SuiteError: The readers refuse it. The message is that of the reader.

    """
    with tempfile.TemporaryDirectory(prefix="parity-init-") as scratch:
        beside = Path(scratch).resolve()
        texts, _ = made(beside)
        for name, text in zip(_FILES, texts, strict=False):
            (beside / name).write_text(text, encoding="utf-8", newline="\n")
        try:
            suite = load_suite(beside)
            Judge.of(suite, Settings())
        except ParityError as error:
            said = str(error).replace(str(beside), str(folder))
            msg = f"No suite of {checkpoint} can be written: {said}"
            raise SuiteError(msg) from None


def read_suite(folder: Path) -> dict[str, bytes]:
    """Return the suite's files that are there, by name."""
    return {
        name: (folder / name).read_bytes()
        for name in _FILES
        if (folder / name).is_file()
    }


def _refuse_written(folder: Path, *, force: bool) -> None:
    """Refuse a folder that has a suite already, or a folder in a file's place."""
    for name in _FILES:
        if (folder / name).is_dir():
            msg = f"{folder / name} is a folder; a file is to be written there."
            raise SuiteError(msg)
    there = [name for name in _FILES if os.path.lexists(folder / name)]
    if there and not force:
        msg = (
            f"{folder} has {', '.join(there)} already; use --force to write over, or "
            "give another folder."
        )
        raise SuiteError(msg)


def _refuse_missing(checkpoint: Path) -> None:
    """Refuse a missing checkpoint, with a hint if the name looks like a hub id."""
    if checkpoint.exists():
        return
    hub = checkpoint.as_posix()
    msg = f"There is no checkpoint at {hub}: no such folder."
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", hub):
        msg += (
            " For the one of that name on the Hugging Face hub, write "
            f'`hub = "{hub}"` under [source] of a parity.toml, or download it and give '
            "its folder."
        )
    raise SuiteError(msg)


def _write_all(folder: Path, suite: str, tolerances: str) -> list[Path]:
    texts = (suite, tolerances, schemas()[_SCHEMA], TEST_FILE)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in _FILES]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".parity-init-") as beside:
        for name, text in zip(_FILES, texts, strict=True):
            (Path(beside) / name).write_text(text, encoding="utf-8", newline="\n")
        for path in paths:
            (Path(beside) / path.name).replace(path)
    return paths
