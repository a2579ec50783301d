"""A table that the reader can sort and filter: columns, and rows of plain numbers.

The page holds the table as JSON, and a small script shows fifty rows at a time.
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
        title: Heading.
        kind: How cells are shown: ``text``, ``mark``, ``outcome``, ``place``,
            ``number``, ``sci``, ``percent`` or ``ssim``.
        hint: Explanation of the heading.
        words: Texts that the cells are indices of; a reader can choose one of them,
            unless the column is a place.
        minor: Whether a narrow screen leaves the column out.

    """

    title: str
    kind: str = "text"
    hint: str = ""
    words: Sequence[Any] | None = None
    minor: bool = False


@dataclass(frozen=True, kw_only=True)
class HtmlTable:
    """Rows under columns.

    Attributes:
        id: Id of the element in the page.
        caption: Sentence above the table.
        columns: Columns, left to right.
        rows: Rows, each with one cell a column.
        sort: Column to sort by at first, largest first; None keeps the order.
        unit: Noun for a row, such as ``value``.

    """

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    sort: int | None = None
    unit: str = "row"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the page's script reads."""
        return {**vars(self), "columns": [vars(column) for column in self.columns]}


@dataclass(frozen=True)
class Words:
    """Texts in the order of their first use, each known by its index."""

    index: dict[Hashable, int] = field(default_factory=dict)

    def at(self, text: Hashable) -> int:
        """Return the index of a text."""
        return self.index.setdefault(text, len(self.index))

    @property
    def all(self) -> list[Any]:
        """Every text so far."""
        return list(self.index)


def short(value: float | None) -> float | str | None:
    """Return a number with four digits; a string where JSON has no number.

    >>> short(1234.5678), short(float("nan")), short(None)
    (1235.0, 'nan', None)
    """
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)
