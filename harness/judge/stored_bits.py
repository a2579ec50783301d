"""Judge whether a deployed file is what its variant says, from its record alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.core.outcome import CheckFinding, Outcome
from harness.core.record import CaseRecord
from harness.core.runtime import runtimes
from harness.core.text import count


def without_effect(record: CaseRecord) -> CheckFinding | None:
    """Return the finding of a variant that is not what it says, or None.

    The outcome is `NO_EFFECT`. Flags may change no byte of the file, or no layer may be
    stored in the bits of the variant's name.
    """
    made = _made(record)
    asked, stored = asked_bits(record), _stored(record)
    if asked and stored is not None and not stored.get(asked):
        others = ", ".join(
            f"{number:,} in {bits} bits" for bits, number in stored.items()
        )
        return CheckFinding(
            Outcome.NO_EFFECT,
            f"no layer of the deployed file is stored in {asked} bits, as its variant "
            f"says ({others or 'it has no layer with weights'}): the converter takes "
            "no operator of this network, so leave this variant out for it",
        )
    if flags := made.get("no_effect"):
        return CheckFinding(
            Outcome.NO_EFFECT,
            f"the deployed file is the same, byte by byte, without {' '.join(flags)}; "
            "correct the flags, or leave them out",
        )
    return None


def stored_words(record: CaseRecord) -> str:
    """Return how many layers a file stores in the bits of its variant's name.

    The text is empty where the name says none, or the file was not looked into.
    """
    asked, stored = asked_bits(record), _stored(record)
    if not asked or not stored:
        return ""
    every = sum(stored.values())
    return f"{stored.get(asked, 0):,} of {count(every, 'layer')} in {asked} bits"


def _made(record: CaseRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (
        (record.artifacts or {}).get(record.backend, {}).get("meta", {})
    )
    return found


def asked_bits(record: CaseRecord) -> int:
    """Return the bits in which the built-in variant of a case stores weights, or 0."""
    declared = runtimes().get(record.backend)
    name = record.variant.partition("@")[0]
    built_in = declared.variants.get(name) if declared else None
    return built_in.bits if built_in else 0


def _stored(record: CaseRecord) -> dict[int, int] | None:
    """Return the numbers of layers by the bits that they are stored in, or None."""
    bits = _made(record).get("bits")
    if not isinstance(bits, Mapping):
        return None
    return {int(each): number for each, number in bits.items()}
