"""What to know of a file that others made: what of it was compared, and with what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.core.case import ITSELF
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Key, coverage_share
from harness.core.text import Line, count, few, wrapped

NO_LAYERS = (
    "neither names nor scopes nor weights of the file say which of its values is which "
    "of PyTorch's, so only its outputs can be compared; `layers = false` under its "
    "[[shapes]] asks for no more"
)
_ITS_OWN_REFERENCE = (
    "held against the ONNX file in ONNX Runtime, unoptimised: without PyTorch there is "
    "no float64 run, and no noise floor"
)


def covered_of_reach(record: CaseRecord) -> float:
    """Return what was compared of what could be, by the way a file was lined up.

    A converter fuses more of a graph that somebody has rewritten. A fused value is seen
    where all that reads it was compared; each compared value vouches for one such value
    at most, so that a file of which the last value alone is seen is not covered by it.
    """
    coverage = record.coverage or {}
    reach = coverage.get("computing", 0) - coverage.get("unmatched", 0)
    if reach <= 0:
        return 0.0
    aligned = coverage["aligned"]
    return float((aligned + min(_seen_in_readers(record), aligned)) / reach)


def _seen_in_readers(record: CaseRecord) -> int:
    """Return how many fused values are read by compared ones alone."""
    taken = record.taken or {}
    unseen: Mapping[str, Sequence[str]] = taken.get("unseen", {})
    compared = {r.probe: r.parents for r in record.rows if r.what == LAYERS}
    readers: dict[str, set[str]] = {}
    for name, parents in {**compared, **unseen}.items():
        for parent in parents:
            readers.setdefault(parent, set()).add(name)
    seen = set(compared)
    waiting = set(unseen) - seen
    while more := {name for name in waiting if readers.get(name, {""}) <= seen}:
        seen |= more
        waiting -= more
    return len(seen - set(compared) - set(taken.get("unpaired", ())))


def taken_words(record: CaseRecord, what: str) -> Iterator[str]:
    """Yield what one check of a taken file could compare, and what it could not."""
    if not record.taken or record.failure:
        return
    taken = record.taken
    if taken["by"] == ITSELF:
        yield _ITS_OWN_REFERENCE
    elif taken["by"] == OUTPUTS:
        yield "only its outputs could be compared"
    elif what == LAYERS and record.coverage:
        counts = record.coverage
        reach = (counts["computing"] - counts["unmatched"]) / counts["computing"]
        yield (
            f"lined up by {taken['by']}, which reach {reach:.0%} of PyTorch's values; "
            f"{coverage_share(record):.0%} compared"
        )
        if unpaired := taken.get("unpaired"):
            yield _alone(unpaired)
    if what == OUTPUTS and taken["left_out"]:
        yield f"the file has no {', '.join(taken['left_out'])}"
    if what == OUTPUTS and taken["extra"]:
        yield f"the file's {', '.join(taken['extra'])} was compared with nothing"
    if taken["unfed"]:
        yield f"the file does without {', '.join(taken['unfed'])}"


def _alone(unpaired: Mapping[str, str]) -> str:
    """Say which values the file does not have, and what to write to see them."""
    places = list(dict.fromkeys(module or name for name, module in unpaired.items()))
    return (
        f"{count(len(unpaired), 'value')} of PyTorch's found no pair in the file, such "
        f"as {few(places, 2)}: if it was rewritten, take the file from before as well, "
        "by `onnx` in a component of its own with the same `recipe`"
    )


def ask_for_less(share: float) -> str:
    """Say what to write where a rewritten file shows too little of itself."""
    least = math.floor(100 * share) / 100
    return f"`coverage = {least}` under [limits] asks for what this file shows"


def all_words(record: CaseRecord) -> list[str]:
    """Return the words of both checks, each once."""
    both = (*taken_words(record, LAYERS), *taken_words(record, OUTPUTS))
    return list(dict.fromkeys(both))


def taken_lines(
    records: Iterable[CaseRecord], names: Mapping[Key, str]
) -> Iterator[Line]:
    """Yield a run's lines about files that others made; cases alike share one."""
    alike: dict[str, list[str]] = {}
    for record in records:
        if words := all_words(record):
            alike.setdefault("; ".join(words), []).append(names[record.key])
    for said, cases in alike.items():
        yield from wrapped(f"{few(cases, 3)}: {said}", indent=" ", tone="quiet")
