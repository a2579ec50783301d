"""What a verdict does not speak of: real inputs that had stand-ins, sizes untried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from harness.core.record import CaseRecord
from harness.core.text import count
from harness.recipes.stand_ins import SCHEDULER

_DDIM = "Stable Diffusion's DDIM for want of a scheduler"


def stand_in_words(records: Collection[CaseRecord]) -> str:
    """Return what stood in and what was left out, in brackets; empty if nothing was."""
    found = Counter(kind for record in records for kind in record.stand_ins)
    parts = {
        kind: "" if cases == len(records) else f" in {count(cases, 'case')}"
        for kind, cases in found.items()
    }
    drawn = [f"{kind}{part}" for kind, part in parts.items() if kind != SCHEDULER]
    words = []
    if drawn:
        *first, last = drawn
        listed = f"{', '.join(first)} and {last}" if first else last
        words.append(f"{listed} drawn at random")
    if SCHEDULER in parts:
        words.append(f"{_DDIM}{parts[SCHEDULER]}")
    if large := dict.fromkeys(size for record in records for size in record.too_large):
        words.append(f"not tried for want of memory: {', '.join(large)}")
    return f" ({'; '.join(words)})" if words else ""
