"""Judge whether a deployed file keeps the contract of its component.

This module reads only records. An input must matter as it does in PyTorch, two inputs
must not be exchanged, and the same inputs must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from harness.core.outcome import CheckFinding, Outcome, Precedence
from harness.core.record import OUTPUTS, CaseRecord, Key
from harness.core.runtime import runs_exported
from harness.core.text import few
from harness.judge.stored_bits import asked_bits

FAINT: Final = 1e-4
"""Smallest effect of an input that is judged, as a share of an output's size. If an
input changes PyTorch's outputs by less, it is not judged, because half precision rounds
such a change away."""

DEAD: Final = 1e-3
"""Smallest effect of an input in a file, as a share of its effect in PyTorch. An input
with a smaller effect counts as unused."""

LEAK: Final = 1e-3
"""Largest move of an item's answer with its batch mates or its padding, as a share of
its size. Float arithmetic in another order moves it by less."""

_HALF: Final = 16
"""Bits of the smallest weights that compute as floats."""

_LEAKS_MORE: Final = 10.0
"""A file is held to PyTorch's independence if it moves this many times more."""

_STEADY = ("cpu",)
"""Devices on which the same inputs must give the same bits."""


def contract_finding(
    record: CaseRecord, what: str, *, failing: bool
) -> CheckFinding | None:
    """Return how a file breaks its contract, or None.

    An answer that depends on other items is said after numbers that are wrong: those of
    the suite's own samples say more.
    """
    del failing
    if what != OUTPUTS:
        return None
    if breach := contract_breach(record):
        return CheckFinding(*breach, Precedence.INSTEAD)
    leak = leaks(record)
    return CheckFinding(Outcome.UNSTEADY, leak, Precedence.AFTER) if leak else None


def contract_breach(record: CaseRecord) -> tuple[Outcome, str] | None:
    """Return the outcome and message of a broken contract, or None.

    The outcome is `DEAD_INPUT`, `EXCHANGED` or `UNSTEADY`.
    """
    for file in record.contract:
        if dead := _dead(file, _unread(record)):
            return Outcome.DEAD_INPUT, _said_dead(record, dead)
        for two in file["exchanged"]:
            one, other = two["names"]
            return Outcome.EXCHANGED, (
                f"inputs {one!r} and {other!r} are exchanged: fed the other way round "
                f"the outputs are off by {two['mended']:.1e} of their size, and by "
                f"{two['error']:.1e} as they are; compare the order of forward's "
                "parameters with the recipe's inputs, and the names that were given "
                "to the exporter"
            )
        if file["repeated"] and (record.ran or {}).get("device") in _STEADY:
            return Outcome.UNSTEADY, (
                "asked again with the same inputs, after other sizes, an output "
                f"differs by up to {file['repeated']:.3e}; a buffer is reused or not "
                "filled: try threads = 1, and `parity repro` for a report upstream"
            )
    return None


def leaks(record: CaseRecord) -> str:
    """Return a message about an answer that depends on batch mates or padding.

    It is empty for a file that computes with integers, where it is only a note. A file
    that has it fails as `UNSTEADY`, unless its numbers are out of tolerance as well.
    """
    for file in record.contract:
        found = [*_leaks(file)]
        if found and not _few_bits(record):
            return (
                f"{_said_leak(found)}: the file computes something over the whole "
                "batch, or over padding; compare it with the other exporter's"
            )
    return ""


def _leaks(file: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield what an item's answer depends on in a file and not in the reference."""
    for what, moved in file.get("beside", {}).items():
        reference, deployed = moved["reference"], moved["deployed"]
        if deployed > LEAK and deployed > _LEAKS_MORE * reference:
            yield what, reference, deployed


def _said_leak(leaks: Iterable[tuple[str, float, float]]) -> str:
    parts = [
        f"by {deployed:.1e} of its size with other {what}, PyTorch's by {reference:.1e}"
        for what, reference, deployed in leaks
    ]
    return f"the answer to an item moves {' and '.join(parts)}"


def _few_bits(record: CaseRecord) -> bool:
    """Whether a file is to compute with integers, whose scales are of a whole batch."""
    stored = {bits for graph in record.graphs for bits in graph.get("stored", {})}
    named = record.variant.startswith(("int8", "int4"))
    declared = 0 < asked_bits(record) < _HALF
    return named or declared or any(bits.startswith(("int", "uint")) for bits in stored)


def remarks(records: Sequence[CaseRecord], names: Mapping[Key, str]) -> Iterator[str]:
    """Yield what is not judged of components, and what answers depend on."""
    yield from contract_notes(records)
    yield from beside_notes(records, names)


def contract_notes(records: Iterable[CaseRecord]) -> Iterator[str]:
    """Yield, once for each component, the inputs that are not judged, and why."""
    components: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        entries = [entry for file in record.contract for entry in file["inputs"]]
        components.setdefault(record.component, []).extend(entries)
    for component, entries in components.items():
        if ignored := _named(e for e in entries if e["reference"] == 0.0):
            yield (
                f"{component}: the reference's own outputs do not depend on "
                f"{few(ignored)}; no file is held to it"
            )
        if faint := _named(e for e in entries if 0.0 < (e["reference"] or 0.0) < FAINT):
            yield (
                f"{component}: {few(faint)} changed alone moves the reference's "
                f"outputs by less than {FAINT:.0e} of their size; a file that reads it "
                "is not held to it"
            )
        if untried := _named(
            e for e in entries if None in {e["reference"], e["deployed"]}
        ):
            yield (
                f"{component}: not changed alone: {few(untried)}, or with outputs that "
                "are not finite; a constant in its place would be seen only where the "
                "exported graph does not read it"
            )


def beside_notes(
    records: Iterable[CaseRecord], names: Mapping[Key, str]
) -> Iterator[str]:
    """Yield, for each component and case, what an item's answer depends on.

    PyTorch's own dependence is said once for each component, and that of a file of
    integers for the case. Another file fails by it.
    """
    own: dict[tuple[str, str], float] = {}
    for record in records:
        for file in record.contract:
            for what, moved in file.get("beside", {}).items():
                if moved["reference"] > LEAK:
                    own.setdefault((record.component, what), moved["reference"])
            found = [*_leaks(file)]
            if found and _few_bits(record):
                yield (
                    f"{names[record.key]}: {_said_leak(found)}; the scale of its "
                    "integers is that of the whole batch"
                )
    for (component, what), moved in own.items():
        yield (
            f"{component}: PyTorch's own answer to an item moves by {moved:.1e} of its "
            f"size with other {what}; no file is held to it"
        )


def contract_lines(record: CaseRecord) -> Iterator[str]:
    """Yield a line for each input: dtype, shape, range, and effect on outputs."""
    for file in record.contract:
        for entry in file["inputs"]:
            shape = ", ".join(map(str, entry["shape"]))
            yield (
                f"input {entry['name']} {entry['dtype']} [{shape}], {entry['low']:g} … "
                f"{entry['high']:g}: moves outputs by {_moves(entry['deployed'])} of "
                f"their size, the reference's by {_moves(entry['reference'])}"
            )


def _named(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of inputs, each once."""
    return list(dict.fromkeys(entry["name"] for entry in entries))


def _unread(record: CaseRecord) -> frozenset[str]:
    """Return the inputs that no output of the exported graph depends on."""
    exported = (record.artifacts or {}).get("onnx", {}).get("meta", {})
    return frozenset(exported.get("unread", ()))


def _moves(effect: float | None) -> str:
    return "an unknown part" if effect is None else f"{effect:.2g}"


def _dead(file: Mapping[str, Any], unread: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the inputs with no effect in a file, and an effect in the reference.

    An input that the exported graph does not read has no effect, even if that was not
    tried. The reference has an effect unless the trial showed none.
    """
    return [
        entry
        for entry in file["inputs"]
        if (entry["name"] in unread and entry["reference"] != 0.0)
        or (
            entry["reference"] is not None
            and entry["deployed"] is not None
            and entry["reference"] >= FAINT
            and entry["deployed"] <= DEAD * entry["reference"]
        )
    ]


def _said_dead(record: CaseRecord, dead: list[Mapping[str, Any]]) -> str:
    dead = [entry for entry in dead if entry["reference"] is not None] or dead
    names = [entry["name"] for entry in dead]
    listed = ", ".join(repr(name) for name in names)
    effect = dead[0]["reference"]
    if effect is None:
        return (
            f"no output of the exported graph depends on input {listed}, and whether "
            "the reference's do was not tried: either it was folded into a constant at "
            "export, and must be kept a tensor in forward (no int(), .item() or Python "
            "branch on it), or PyTorch ignores it too, and it should leave the "
            "recipe's inputs"
        )
    moved = f"the reference's outputs move by {effect:.1e} of their size"
    own = runs_exported(record.backend, record.variant)
    if own or set(names) <= _unread(record):
        return (
            f"input {listed} has no effect in the deployed file, where {moved}: it was "
            "folded into a constant at export; keep it a tensor in forward (no int(), "
            ".item() or Python branch on it), give the exporter a tensor of its own "
            "for each input, or try the other exporter"
        )
    return (
        f"input {listed} has no effect in the deployed file, where {moved}: the "
        "exported graph reads it. If onnxruntime/fp32 ends so too, the exporter made "
        "its part a constant: try the other one. Else the conversion did: "
        "`parity explain` tries its flags and the other exporter, `parity repro` makes "
        "a report for upstream"
    )
