"""A parity card: what was compared, with which numbers, and how to check it.

A card is a folder of ``card.json``, ``card.npz`` with inputs and right outputs, and
``card.md`` for a model card. Digests are its only signature. This module needs no
framework, so that a card can be read where no model was exported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from harness.core.errors import SuiteError
from harness.core.received import (
    DamagedError,
    check_plain,
    decode,
    in_a_clause,
    read_json,
)
from harness.core.runtime import runtime, runtimes
from harness.judge.tolerance import Tolerance
from harness.measure.received_arrays import Arrays
from harness.plugins.elsewhere.form import (
    Bundle,
    Digest,
    Text,
    decode_bundle,
    refused,
    strange_file,
)
from harness.runtimes.calls import Name

FORMAT = 1
CARD = "card.json"
ARRAYS = "card.npz"
TEXT = "card.md"

CARD_BYTES = 8 << 20
"""Largest size of ``card.json``: 53 cases of fixtures/digits have 0.3 MB."""

ARRAYS_BYTES = 512 << 20
"""Largest size of all arrays of a card, when they are unpacked."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One deployed file; its name is relative: ``model-0/model.mnn``."""

    name: Name
    sha256: Digest
    size_bytes: Annotated[int, Meta(ge=0)]


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

    sample: Name
    name: Name
    given: Name
    expected: Name
    floor_rms: Annotated[float, Meta(ge=0.0)] | None
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
        bundle: What the runtime has to do, as the JSON of a `Bundle`. `bundle_of` reads
            it, and nothing else does.
        feeds: Key in the arrays of each array that the bundle reads.

    """

    case: Name
    backend: Name
    result: Text
    passed: bool
    used: float | None
    bound: Text = ""
    version: Name = ""
    device: Name = ""
    files: Annotated[tuple[File, ...], Meta(max_length=64)] = ()
    bundle: str = ""
    feeds: dict[Name, Name] = msgspec.field(default_factory=dict)
    outputs: tuple[Output, ...] = ()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``card.json`` has.

    Attributes:
        facts: Suite, commit, machine and versions, as pairs of name and text.
        gaps: Known gaps of the run, a sentence each.
        arrays: Digest of the arrays' file.

    """

    format: int
    checkpoint: Name
    run: Name
    code: int
    facts: tuple[tuple[Name, Text], ...]
    gaps: tuple[Text, ...]
    cases: tuple[CardCase, ...]
    arrays: Digest


class _Signed(msgspec.Struct):
    """What ``card.json`` has: a card, and the digest of its plain JSON."""

    digest: Digest
    card: msgspec.Raw


class _Formed(msgspec.Struct):
    format: int


def save_card(card: Card, arrays: Mapping[str, np.ndarray], folder: Path) -> str:
    """Write a card's two data files into a folder, and return the card's digest.

    Raises:
        SuiteError: A receiver would refuse it; it may be too large.

    """
    with (folder / ARRAYS).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    card = msgspec.structs.replace(card, arrays=digest(folder / ARRAYS))
    told = msgspec.to_builtins(card)
    signed = {"digest": _digest_of(told), "card": told}
    text = json.dumps(signed, indent=1, ensure_ascii=False)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")
    try:
        load_card(folder)  # as a receiver does
    except SuiteError as error:
        msg = f"A receiver would refuse this card: {error}"
        raise SuiteError(msg) from error
    return str(signed["digest"])


def load_card(path: Path) -> tuple[Card, dict[str, np.ndarray]]:
    """Read a card and its arrays, from the card's folder or its ``card.json``.

    Every text, number and name of it was checked, and so was every call that it asks
    for; see `harness.plugins.elsewhere.form.refused`.

    Raises:
        SuiteError: A file is missing, edited, or of a newer harness, or the card asks
            for something that no receiver does.

    """
    folder = path if path.is_dir() else path.parent
    file = folder / CARD
    try:
        signed = read_json(file, _Signed, CARD_BYTES)
        form = decode(bytes(signed.card), _Formed).format
        if form > FORMAT:
            msg = (
                f"{file} has format {form} and this harness reads {FORMAT}; install a "
                "newer parity-harness."
            )
            raise SuiteError(msg)
        card = decode(bytes(signed.card), Card)
        with in_a_clause():  # the digest is also of fields that an older harness wrote
            said = _digest_of(json.loads(bytes(signed.card)))  # noqa: TID251  # read typed above
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}); `parity card` writes it."
        raise SuiteError(msg) from error
    except DamagedError as error:
        msg = (
            f"{file} is no parity card ({error}); ask its author for the whole folder."
        )
        raise SuiteError(msg) from error
    if said != signed.digest:
        msg = (
            f"{file} was edited: its digest is not {signed.digest}; ask its author for "
            "it."
        )
        raise SuiteError(msg)
    there: set[str] = set()
    for case in card.cases:
        if case.case in there:  # each would run again
            msg = f"{file}: {case.case} stands twice; ask its author for another card."
            raise SuiteError(msg)
        there.add(case.case)
        for words in _refusals(case):
            msg = f"{file}: {case.case} {words}; ask its author for another card."
            raise SuiteError(msg)
    return card, _load_arrays(folder, card)


def bundle_of(case: CardCase) -> Bundle[Any]:
    """Return the calls of a case that has files.

    Raises:
        DamagedError: The text is no bundle of its runtime.

    """
    return decode_bundle(case.bundle, runtime(case.backend))


def _refusals(case: CardCase) -> Iterator[str]:
    """Yield why a case that has files is not checked, a clause each."""
    if not case.files:
        return
    if case.backend not in runtimes():
        known = ", ".join(runtimes())
        yield f"runs in {case.backend!r}, and this harness knows {known}"
        return
    if words := strange_file((file.name for file in case.files), runtime(case.backend)):
        yield words
    if not case.outputs:
        yield "has files and no outputs to compare"
    digests = {file.name: file.sha256 for file in case.files}
    if len(digests) < len(case.files):
        yield "has two files of one name"
    try:
        bundle = bundle_of(case)
    except DamagedError as error:
        yield f"has calls that no card has ({error})"
        return
    if bundle.files != digests:
        yield "has other files than its calls"
    if words := refused(bundle, runtime(case.backend), case.feeds):
        yield words


def _load_arrays(folder: Path, card: Card) -> dict[str, np.ndarray]:
    """Return the arrays that a card's cases name."""
    file = folder / ARRAYS
    try:
        check_plain(file, ARRAYS_BYTES)
        if digest(file) != card.arrays:
            msg = f"{file} is not the one of this card; copy it again."
            raise SuiteError(msg)
        arrays: dict[str, np.ndarray] = {}
        with Arrays(file, ARRAYS_BYTES, ARRAYS_BYTES) as stored:
            for case in card.cases:
                for key in (*case.feeds.values(), *(o.expected for o in case.outputs)):
                    if key in stored and key not in arrays:
                        arrays[key] = stored[key]
                    if key not in arrays or arrays[key].dtype.kind == "c":
                        msg = (
                            f"{folder / CARD}: {case.case} names the array {key!r}, of "
                            f"which {ARRAYS} has no numbers; ask its author for "
                            "another card."
                        )
                        raise SuiteError(msg)
    except (OSError, DamagedError) as error:
        msg = f"{folder} is not a whole card ({error}); copy it again."
        raise SuiteError(msg) from error
    return arrays


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(told: Mapping[str, Any]) -> str:
    plain = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()
