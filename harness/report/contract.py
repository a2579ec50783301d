"""Judge how deployed files keep their component's promises; reads records only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.contract import DEAD, FAINT
from harness.outcome import Outcome
from harness.report.record import CaseRecord
from harness.report.text import few

_STEADY = ("cpu",)
"""Devices on which the same inputs must give the same bits."""


def contract_breach(record: CaseRecord) -> tuple[Outcome, str] | None:
    """Return the first promise that a case's deployed file breaks, if one does."""
    for file in record.contract:
        if dead := _dead(file):
            return Outcome.DEAD_INPUT, _said_dead(record, dead)
        for two in file["exchanged"]:
            one, other = two["names"]
            return Outcome.EXCHANGED, (
                f"inputs {one!r} and {other!r} are exchanged: fed the other way round "
                f"the outputs are off by {two['mended']:.1e} of their size, and by "
                f"{two['error']:.1e} as they are; hold the order of forward's "
                "parameters against the recipe's inputs, and the names that were given "
                "to the exporter"
            )
        if file["repeated"] and (record.ran or {}).get("device") in _STEADY:
            return Outcome.UNSTEADY, (
                "asked again with the same inputs, after other sizes, an output "
                f"differs by up to {file['repeated']:.3e}; a buffer is reused or not "
                "filled: try threads = 1, and `parity repro` for a report upstream"
            )
    return None


def contract_notes(records: Iterable[CaseRecord]) -> Iterator[str]:
    """Yield, once a component, what its reference ignores and what nobody tried."""
    told: set[str] = set()
    for record in records:
        if record.component in told or not record.contract:
            continue
        told.add(record.component)
        inputs = record.contract[0]["inputs"]
        if ignored := [i["name"] for i in inputs if i["reference"] == 0.0]:
            yield (
                f"{record.component}: the reference's own outputs do not depend on "
                f"{few(ignored)}; no file is held to it"
            )
        if untried := [i["name"] for i in inputs if i["reference"] is None]:
            yield f"{record.component}: not changed alone: {few(untried)}"


def contract_lines(record: CaseRecord) -> Iterator[str]:
    """Yield a line for each input: what it is, its range, and what it moves."""
    for file in record.contract:
        for entry in file["inputs"]:
            shape = ", ".join(map(str, entry["shape"]))
            yield (
                f"input {entry['name']} {entry['dtype']} [{shape}], {entry['low']:g} … "
                f"{entry['high']:g}: moves outputs by {_moves(entry['deployed'])} of "
                f"their size, the reference's by {_moves(entry['reference'])}"
            )


def _moves(effect: float | None) -> str:
    return "an unknown part" if effect is None else f"{effect:.2g}"


def _dead(file: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the inputs that have no effect in a file and have one in the reference."""
    return [
        entry
        for entry in file["inputs"]
        if entry["reference"] is not None
        and entry["deployed"] is not None
        and entry["reference"] >= FAINT
        and entry["deployed"] <= DEAD * entry["reference"]
    ]


def _said_dead(record: CaseRecord, dead: list[Mapping[str, Any]]) -> str:
    names = [entry["name"] for entry in dead]
    listed = ", ".join(repr(name) for name in names)
    moved = f"the reference's outputs move by {dead[0]['reference']:.1e} of their size"
    exported = (record.artifacts or {}).get("onnx", {}).get("meta", {})
    unread = exported.get("unread", ())
    own = record.backend == "onnxruntime" and record.variant == "fp32"
    if own or set(names) <= set(unread):
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
