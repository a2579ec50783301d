"""A table: it is built once, and a screen, Markdown and a page each show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.outcome import Outcome
from harness.core.text import WIDTH, Line, cut, number_of_floors, share

NUMERIC = {"number", "sci", "decibels", "percent", "ssim"}
"""Kinds of columns whose cells are numbers; the cells of all others are texts."""

_LEAST_PLACE = 12
_GAP = "  "


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        cells: A cell for each row: a number or None, or a text. The cell of a place is
            a tuple of texts. A number that is formatted already is a text too.
        kind: How cells are shown: ``text``, ``mark``, ``outcome``, ``place``,
            ``number``, ``sci``, ``decibels``, ``percent`` or ``ssim``. A reader of a
            page can choose one text of a ``text`` column.
        hint: Explanation of the heading.
        minor: Whether a narrow screen leaves the column out.

    """

    title: str
    cells: Sequence[Any]
    kind: str = "text"
    hint: str = ""
    minor: bool = field(default=False, kw_only=True)

    @property
    def is_numeric(self) -> bool:
        """Whether cells stand at the right of the column."""
        return self.kind in NUMERIC

    def text(self, cell: Any) -> str:  # noqa: ANN401  # what `cells` hold
        """Return a cell as a text.

        >>> Column("", [], "sci").text(0.0123), Column("", [], "number").text(2048.2)
        ('1.23e-02', '2,048')
        >>> Column("", [], "percent").text(1.5), Column("", [], "decibels").text(None)
        ('1.50 ×', '-')
        >>> Column("", [], "mark").text("within"), Column("", [], "mark").text("load")
        ('', '✗')
        """
        if self.kind == "mark":
            return "≠" if cell == Outcome.ANOTHER else "" if _passes(cell) else "✗"
        if self.kind == "place":
            return _place(cell, WIDTH)
        if isinstance(cell, str) or not self.is_numeric:
            return str(cell)
        if cell is None:
            return "-"
        return _FORMATS[self.kind](float(cell))


_FORMATS = {
    "number": number_of_floors,
    "sci": "{:.2e}".format,
    "decibels": "{:.1f}".format,
    "percent": share,
    "ssim": "{:.4f}".format,
}


def _passes(outcome: str) -> bool:
    return not outcome or Outcome(outcome).passed


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Columns of equal length, left to right.

    Attributes:
        caption: Sentence above the table of a page.
        sort: Title of the column by which a page sorts at first, largest first; empty
            keeps the order.
        unit: Noun for a row, such as ``value``.
        tones: The tone of each row on a screen; see `Line`.

    """

    id: str = ""
    caption: str = ""
    columns: Sequence[Column]
    sort: str = ""
    unit: str = "row"
    tones: Sequence[str] = ()

    def lines(self, *, indent: str = " ") -> Iterator[Line]:
        """Yield the lines of a screen; the last column has the room that is left."""
        texts = [
            [column.text(cell) for cell in column.cells] for column in self.columns
        ]
        titles = [column.title for column in self.columns]
        last = self.columns[-1]
        widths = [
            max(map(len, (title, *some)))
            for title, some in zip(titles, texts, strict=True)
        ]
        room = WIDTH - len(indent) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        if last.kind == "place":
            texts[-1] = [_place(cell, max(_LEAST_PLACE, room)) for cell in last.cells]
        rows = list(zip(*texts, strict=True))
        tones = self.tones or [""] * len(rows)
        if any(titles):
            rows, tones = [tuple(titles), *rows], ["quiet", *tones]
        for cells, tone in zip(rows, tones, strict=True):
            padded = [
                f"{cell:>{width}}" if one.is_numeric else f"{cell:<{width}}"
                for one, cell, width in zip(self.columns, cells, widths, strict=True)
            ]
            lead = f"{indent}{_GAP.join(padded[:-1])}{_GAP if padded[1:] else ''}"
            end = padded[-1].rstrip()
            if not end:
                yield Line(text=lead.rstrip(), tone=tone)
            else:
                breaks = " " if last.kind == "text" else ""
                yield Line(text=end, lead=lead, tone=tone, breaks=breaks)


def _place(cell: Sequence[str], room: int) -> str:
    """Return a place and its operator; the end of a long place stays."""
    place, *op = cell[:2]
    rest = "".join(f"{_GAP}{one}" for one in op if one)
    return f"{cut(place, room - len(rest))}{rest}"
