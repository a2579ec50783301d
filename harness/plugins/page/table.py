"""A table that the reader can sort and filter: columns, and rows of plain numbers.

The page holds the table as JSON, and a small script shows fifty rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_DIGITS = 4
_TENTH, _TEN, _THOUSAND = 0.1, 10, 1000
_WORDS = {"": 1.0, " thousand": 1e3, " million": 1e6}


_NUMERIC = {"number", "sci", "percent", "ssim"}
"""Kinds of columns whose cells are numbers; the cells of all others are texts."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        cells: A cell for each row: a number or None, or a text. The cell of a place is
            a tuple of texts.
        kind: How cells are shown: ``text``, ``mark``, ``outcome``, ``place``,
            ``number``, ``sci``, ``percent`` or ``ssim``. A reader can choose one text
            of a ``text`` column.
        hint: Explanation of the heading.
        minor: Whether a narrow screen leaves the column out.

    """

    title: str
    cells: Sequence[Any]
    kind: str = "text"
    hint: str = ""
    minor: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class HtmlTable:
    """Columns of equal length, left to right.

    Attributes:
        caption: Sentence above the table.
        sort: Title of the column to sort by at first, largest first; empty keeps the
            order.
        unit: Noun for a row, such as ``value``.

    """

    id: str
    caption: str
    columns: Sequence[Column]
    sort: str = ""
    unit: str = "row"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the page's script reads.

        A column of texts lists each text once, and its cells are indices of this list.
        """
        columns, cells = [], []
        for column in self.columns:
            words: dict[Any, int] = {}
            if column.kind in _NUMERIC:
                cells.append([short(cell) for cell in column.cells])
            else:
                indices = (words.setdefault(one, len(words)) for one in column.cells)
                cells.append(list(indices))
            about = {**vars(column), "words": list(words) or None}
            del about["cells"]
            columns.append(about)
        rows = list(zip(*cells, strict=True))
        titles = [column.title for column in self.columns]
        sort = titles.index(self.sort) if self.sort else None
        return {**vars(self), "columns": columns, "rows": rows, "sort": sort}


def short(value: float | None) -> float | str | None:
    """Return a number with four digits; a string where JSON has no number.

    >>> short(1234.5678), short(float("nan")), short(None)
    (1235.0, 'nan', None)
    """
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def share(usage: float) -> str:
    """Return the used share of a limit; a factor beyond it has another form.

    >>> share(0.824), share(1.07), share(61.7), share(458_409.0), share(1.3e11)
    ('82 %', '1.07 ×', '61.7 ×', '458 thousand ×', '1.3e+11 ×')
    """
    if math.isinf(usage):
        return "∞ ×"
    if usage <= 1:
        return f"{100 * usage:.{0 if usage >= _TENTH else 1}f} %"
    for words, size in _WORDS.items():
        if usage < size * _THOUSAND:
            digits = f"{usage / size:.2f}" if usage < _TEN else f"{usage / size:.3g}"
            return f"{digits}{words} ×"
    return f"{usage:.3g} ×"


def of_limit(usage: float) -> str:
    """Return a share of a limit as a phrase.

    >>> of_limit(0.824), of_limit(61.7)
    ('82 % of its limit', '61.7 × its limit')
    """
    if math.isinf(usage):
        return "beyond any limit"
    return f"{share(usage)} {'of ' if usage <= 1 else ''}its limit"
