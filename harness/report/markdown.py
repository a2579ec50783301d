"""Texts, tables and screens as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from harness.core.outcome import Outcome
from harness.core.shown import written
from harness.core.table import Column, ReportTable
from harness.core.text import Line, one_line, screen

_MARKS = re.compile(
    r"[`*<>\[\]|\\~&#$!]|(?<!\w)@(?=\w)|://|www\.|(?<!\w)_|_(?!\w)", re.IGNORECASE
)
"""What Markdown, or a page that shows it, may take for more than text."""


def table_of(table: ReportTable) -> str:
    """Return a table in Markdown, without its column of marks."""
    columns = [column for column in table.columns if column.kind != "mark"]
    cells = zip(*(map(partial(_cell, one), one.cells) for one in columns), strict=True)
    heads = [cell(one.title) for one in columns]
    ends = ["--:" if one.is_numeric else "---" for one in columns]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ends, *cells))


def _cell(column: Column, value: Any) -> str:  # noqa: ANN401  # what a column holds
    if column.kind == "outcome":
        return value if not value or Outcome(value).passed else f"**{value}**"
    if column.kind == "place":
        value = value[:1]
    return "" if value is None else cell(column.text(value))


def word(text: str) -> str:
    r"""Return a text of others within a line of Markdown.

    It is code where Markdown may take it for more than text: then no link, picture,
    mention or HTML of theirs takes effect.

    >>> word("conv2d in MNN, 3 threads"), word("a_b"), word("<img src=x>")
    ('conv2d in MNN, 3 threads', 'a_b', '`<img src=x>`')
    >>> word("a`b\n# c"), word("unet/mnn@phone/fp32")
    ('``a`b # c``', 'unet/mnn@phone/fp32')
    """
    text = written(one_line(text), lines=False)
    if not _MARKS.search(text):
        return text
    ticks = _ticks(text, least=1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def cell(text: str) -> str:
    r"""Return a text of others as a cell of a table in Markdown.

    >>> cell("a|b")
    '`a\\|b`'
    """
    return word(text).replace("|", r"\|")


def fenced(text: str) -> str:
    r"""Return lines of others as a block of code in Markdown.

    >>> print(fenced("one\n```"))
    ````
    one
    ```
    ````
    """
    return _fenced(written(text), "")


def block(lines: Iterable[Line]) -> str:
    """Return the lines of a screen as a block of Markdown."""
    # Each line has its bound, and there are as many as there are cases.
    text = "\n".join(written(line.text, lines=False) for line in screen(lines))
    return _fenced(text, "text")


def _fenced(text: str, language: str) -> str:
    ticks = _ticks(text, least=3)
    return f"{ticks}{language}\n{text}\n{ticks}"


def _ticks(text: str, least: int) -> str:
    """Return more backticks than stand together in a text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
