"""Messages about differences at what a mask takes out, which nobody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.core.outcome import Outcome
from harness.core.text import count
from harness.judge.value import JudgedRow


def read_by_padding(rows: Sequence[JudgedRow]) -> tuple[JudgedRow, ...]:
    """Return rows, where a failing value that only padding reads passes.

    An example is what a query at padding gives to each key. What is computed from such
    a value differs, and at padding alone; nothing else is computed from it.
    """
    readers: dict[tuple[str, str], list[JudgedRow]] = {}
    for judged in rows:
        for parent in judged.row.parents:
            readers.setdefault((judged.row.sample, parent), []).append(judged)
    made: list[JudgedRow] = []
    for judged in rows:
        of_it = readers.get((judged.row.sample, judged.row.probe), ())
        told = judged.verdict
        if (
            told.outcome in {Outcome.EXCEEDS, Outcome.NONFINITE}
            and all(reader.verdict.passed for reader in of_it)
            and any(reader.unread for reader in of_it)
        ):
            alone = replace(told, outcome=Outcome.WITHIN, usage=0.0, reason=_ALONE)
            made.append(replace(judged, verdict=alone, unread=told.reason))
        else:
            made.append(judged)
    return tuple(made)


_ALONE = "padding alone reads it"


def unread_message(rows: Iterable[JudgedRow]) -> str:
    """Return a line about values that differ only at padding, or an empty text.

    The value that is named is the first.
    """
    found = [judged for judged in rows if judged.unread]
    if not found:
        return ""
    first = found[0]
    places = dict.fromkeys(judged.row.place for judged in found)
    more = (
        f" and {count(len(places) - 1, 'other value')}"
        if places.keys() - {first.row.place}
        else ""
    )
    has, agree = ("differ", "agree") if more else ("differs", "agrees")
    return (
        f"{first.row.place}{more} {has} at padding alone, which the mask takes out and "
        f"nobody reads ({first.unread}, {first.row.sample}); what is read {agree}"
    )
