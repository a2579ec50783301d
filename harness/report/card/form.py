"""A parity card: what was compared, with which numbers, and how to check it.

A card is a folder of ``card.json``, ``card.npz`` with inputs and right outputs, and
``card.md`` for a model card. Digests are its only signature. This module needs no
framework, so that a card can be read where no model was exported.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np

from harness.core.errors import SuiteError
from harness.core.runtime import runtimes
from harness.judge.tolerance import Tolerance

FORMAT = 1
CARD = "card.json"
ARRAYS = "card.npz"
TEXT = "card.md"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One deployed file; its name is relative: ``model-0/model.mnn``."""

    name: str
    sha256: str
    size_bytes: int


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One output of one sample, and what was measured on the author's machine.

    Attributes:
        given: Name of the output in the file.
        expected: Key of PyTorch's output in the arrays.
        floor_rms: Rms of PyTorch's own float32 error, in the unit of the output.
        floors: Error in such floors.
        own_rms: Rms of PyTorch's own error in the dtype that bounds it, in the unit of
            the output; None if none does.

    """

    sample: str
    name: str
    given: str
    expected: str
    floor_rms: float | None
    floors: float | None
    max_abs: float
    tolerance: Tolerance
    own_rms: float | None = None


class CardCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case of the run.

    Attributes:
        case: Id, ``unet/mnn/fp32``.
        backend: Name of its runtime; empty for a pipeline.
        result: What the run found, in words.
        passed: Whether every check of it passed.
        used: Largest used share of a bound, over its checks; 1 is the limit. None if
            a check failed.
        bound: A phrase about that bound and the value that uses most of it.
        device: Device, precision and threads.
        files: The deployed files; empty if they cannot be checked elsewhere.
        bundle: What the runtime has to do, in the form of `parity bundle`.
        feeds: Key in the arrays of each array that the bundle reads.

    """

    case: str
    backend: str
    result: str
    passed: bool
    used: float | None
    bound: str = ""
    version: str = ""
    device: str = ""
    files: tuple[File, ...] = ()
    bundle: str = ""
    feeds: Mapping[str, str] = msgspec.field(default_factory=dict)
    outputs: tuple[Output, ...] = ()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``card.json`` has.

    Attributes:
        facts: Suite, commit, machine and versions, as pairs of name and text.
        gaps: Known gaps of the run, a sentence each.
        arrays: Digest of the arrays' file.

    """

    format: int
    checkpoint: str
    run: str
    code: int
    facts: tuple[tuple[str, str], ...]
    gaps: tuple[str, ...]
    cases: tuple[CardCase, ...]
    arrays: str


def save_card(card: Card, arrays: Mapping[str, np.ndarray], folder: Path) -> str:
    """Write a card's two data files into a folder, and return the card's digest."""
    with (folder / ARRAYS).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    card = msgspec.structs.replace(card, arrays=digest(folder / ARRAYS))
    told = msgspec.to_builtins(card)
    signed = {"digest": _digest_of(told), "card": told}
    text = json.dumps(signed, indent=1, ensure_ascii=False)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")
    return str(signed["digest"])


def load_card(path: Path) -> tuple[Card, dict[str, np.ndarray]]:
    """Read a card and its arrays, from the card's folder or its ``card.json``.

    Raises:
        SuiteError: A file is missing, edited, or of a newer harness.

    """
    folder = path if path.is_dir() else path.parent
    file = folder / CARD
    try:
        signed = json.loads(file.read_text(encoding="utf-8"))
        told, said = signed["card"], signed["digest"]
        form = int(told["format"])
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}); `parity card` writes it."
        raise SuiteError(msg) from error
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{file} is no parity card; ask its author for the whole folder."
        raise SuiteError(msg) from error
    if form > FORMAT:
        msg = (
            f"{file} has format {form} and this harness reads {FORMAT}; install a "
            "newer parity-harness."
        )
        raise SuiteError(msg)
    if _digest_of(told) != said:
        msg = f"{file} was edited: its digest is not {said}; ask its author for it."
        raise SuiteError(msg)
    try:
        card = msgspec.convert(told, Card)
        _check_cases(file, card)
        for name in (one.name for case in card.cases for one in case.files):
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts:
                msg = (
                    f"{file} names the file {name!r}, which is outside of its folder; "
                    "do not use this card."
                )
                raise SuiteError(msg)
        if digest(folder / ARRAYS) != card.arrays:
            msg = f"{folder / ARRAYS} is not the one of this card; copy it again."
            raise SuiteError(msg)
        with np.load(folder / ARRAYS, allow_pickle=False) as stored:
            arrays = dict(stored)
        _check_arrays(file, card, arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        msg = f"{folder} is not a whole card ({error}); copy it again."
        raise SuiteError(msg) from error
    return card, arrays


def _check_cases(file: Path, card: Card) -> None:
    """Refuse a case that could be checked, and has nothing to check it by."""
    for case in card.cases:
        if case.files and case.backend not in runtimes():
            known = ", ".join(runtimes())
            text = f"runs in {case.backend!r}, and this harness knows {known}"
        elif case.files and not case.outputs:
            text = "has files and no outputs to compare"
        else:
            continue
        msg = f"{file}: {case.case} {text}; ask its author for another card."
        raise SuiteError(msg)


def _check_arrays(file: Path, card: Card, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a card that names an array which is not there, or holds no numbers."""
    for case in card.cases:
        named = (*case.feeds.values(), *(one.expected for one in case.outputs))
        for key in named:
            if key not in arrays or arrays[key].dtype.kind not in "biuf":
                msg = (
                    f"{file}: {case.case} names the array {key!r}, of which {ARRAYS} "
                    "has no numbers; ask its author for another card."
                )
                raise SuiteError(msg)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(told: Mapping[str, Any]) -> str:
    plain = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()
