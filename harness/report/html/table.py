"""A table that the reader can sort and filter: columns, and rows of plain numbers.

It goes into the page as JSON, and a small script shows fifty rows of it at a time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        title: Its heading.
        kind: How its cells are shown: ``text``, ``mark``, ``outcome``, ``place``,
            ``number``, ``sci``, ``percent`` or ``ssim``.
        hint: What the heading means.
        words: What its cells stand for, where they are indices; those are what a
            reader can choose from, unless it is a place.
        minor: Left out on a narrow screen.

    """

    title: str
    kind: str = "text"
    hint: str = ""
    words: Sequence[Any] | None = None
    minor: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what the script reads."""
        return {
            "title": self.title,
            "kind": self.kind,
            "hint": self.hint,
            "words": self.words,
            "minor": self.minor,
        }


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under columns.

    Attributes:
        id: Of the element in the page.
        caption: What it lists.
        columns: Left to right.
        rows: Each with one cell a column.
        sort: Column it is sorted by at first, largest first; None keeps the order.
        unit: What a row is, ``value``.

    """

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    sort: int | None = None
    unit: str = "row"

    def to_json(self) -> dict[str, Any]:
        """Return what the script reads."""
        return {
            "caption": self.caption,
            "columns": [column.to_json() for column in self.columns],
            "rows": self.rows,
            "sort": self.sort,
            "unit": self.unit,
        }


@dataclass(frozen=True)
class Words:
    """Words in the order in which they were first said, each known by its index."""

    index: dict[Hashable, int] = field(default_factory=dict)

    def at(self, word: Hashable) -> int:
        """Return a word's index."""
        return self.index.setdefault(word, len(self.index))

    @property
    def all(self) -> list[Any]:
        """Every word said so far."""
        return list(self.index)


def short(value: float | None) -> float | str | None:
    """Return a number as short as it is shown; a word where JSON has no number.

    >>> short(1234.5678), short(float("nan")), short(None)
    (1235.0, 'nan', None)
    """
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)
