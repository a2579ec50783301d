"""A line of text and what it means; how long one may be, and how words are put.

Who prints it, and whether it is coloured, is the caller's business.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 100
"""Columns that every screen fits into."""

INDENT = "     "

_PLACE = 24
"""Columns that a place gets even where a line is long: a step, or a module's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line and what it means: ``good``, ``bad``, ``quiet`` or nothing."""

    text: str
    tone: str = ""


def wrapped(text: str, *, indent: str = INDENT, tone: str = "") -> Iterator[Line]:
    """Yield a sentence in as many lines as it needs; words are never cut."""
    for line in textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield Line(text=line, tone=tone)


def joined(
    parts: Iterable[str], *, indent: str = INDENT, between: str = " · ", tone: str = ""
) -> Iterator[Line]:
    """Yield facts beside each other, going to a new line only between two of them."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text}{between}{part}" if text else f"{indent}{part}"
        if text and len(longer) > WIDTH:
            yield Line(text=text, tone=tone)
            longer = f"{indent}{part}"
        text = longer
    if text:
        yield Line(text=text, tone=tone)


def cut(text: str, room: int) -> str:
    """Return the end of a name that is too long: modules differ at their end.

    >>> cut("down_blocks.0.resnets.0.conv1", 16)
    '…resnets.0.conv1'
    """
    return text if len(text) <= room else f"…{text[len(text) - max(1, room - 1) :]}"


def count(number: int, noun: str) -> str:
    """Return a number of things in words.

    >>> count(1, "case"), count(2, "case"), count(2, "entry"), count(2, "way")
    ('1 case', '2 cases', '2 entries', '2 ways')
    """
    consonant = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    plural = f"{noun[:-1]}ies" if consonant else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if names[most:] else shown


def in_floors(value: float) -> str:
    """Return an error in noise floors.

    >>> in_floors(411.7), in_floors(22345.0), in_floors(1.234e51)
    ('412 floors', '22,345 floors', '1.23e+51 floors')
    >>> in_floors(math.nan), in_floors(math.inf)
    ('an unknown number of floors', 'infinitely many floors')
    """
    if math.isnan(value):
        return "an unknown number of floors"
    if value == math.inf:
        return "infinitely many floors"
    return f"{number_of_floors(value)} floors"


def number_of_floors(value: float) -> str:
    """Return a number of noise floors without its unit, for a column of them.

    >>> [number_of_floors(value) for value in (411.7, 22345.0, 1e6, math.nan)]
    ['412', '22,345', '1e+06', 'nan']
    """
    least, most = 1e3, 999_999.5  # six digits at most
    return f"{value:,.0f}" if least <= value < most else f"{value:.3g}"


def in_bytes(value: int) -> str:
    """Return a size with its unit.

    >>> in_bytes(45_000), in_bytes(12_345_678)
    ('44 KB', '11.8 MB')
    """
    large = value >= 2**20
    return f"{value / 2**20:,.1f} MB" if large else f"{value / 2**10:,.0f} KB"


def operator(op: str) -> str:
    """Return an operator as PyTorch users know it.

    >>> operator("aten.conv2d.default")
    'conv2d'
    """
    return op.removeprefix("aten.").partition(".")[0]


def case_line(case: str, checks: Mapping[str, Mapping[str, str]]) -> Line:
    """Return the line of one case: how each of its checks went, in a few words.

    Args:
        case: Its id.
        checks: Check to its properties, as a test or a run tells them.

    """
    words, place, tone, mark = [], "", "good", "✓"
    for what, told in checks.items():
        outcome = told["parity.outcome"]
        if outcome == "unavailable":
            words, tone, mark = ["not installed"], "quiet", "-"
            break
        if told.get("parity.picture"):
            words.append(told["parity.picture"])
        elif outcome == "within":
            words.append(f"{what} use {float(told['parity.usage']):.0%} of tolerance")
        elif outcome == "gap":
            words.append(f"{what} known gap")
        if outcome not in {"within", "gap"}:
            tone, mark = "bad", "✗"
            words.append(f"{what} {outcome}")
            place = place or told.get("parity.first_divergence", "")
    text = f" {mark} {case:<38} {' · '.join(words)}"
    if place:
        room = max(_PLACE, WIDTH - len(text) - 12)
        text += f" · parts at {cut(place, room)}"
    return Line(text=text, tone=tone)
