"""A table of a page, which the reader can sort and filter.

The page holds the table as JSON, and a small script shows ten rows at a time.
"""

from __future__ import annotations

import math
from typing import Any

from harness.core.table import ReportTable

_DIGITS = 4


def to_json(table: ReportTable) -> dict[str, Any]:
    """Return the JSON that the page's script reads.

    A column of texts lists each text once, and its cells are indices of this list.
    """
    columns, cells = [], []
    for column in table.columns:
        words: dict[Any, int] = {}
        if column.is_numeric:
            cells.append([short(cell) for cell in column.cells])
        else:
            indices = (words.setdefault(one, len(words)) for one in column.cells)
            cells.append(list(indices))
        about = {**vars(column), "words": list(words) or None}
        del about["cells"]
        columns.append(about)
    rows = list(zip(*cells, strict=True))
    titles = [column.title for column in table.columns]
    sort = titles.index(table.sort) if table.sort else None
    told = {**vars(table), "columns": columns, "rows": rows, "sort": sort}
    del told["tones"]
    return told


def short(value: float | None) -> float | str | None:
    """Return a number with four digits; a string where JSON has no number.

    >>> short(1234.5678), short(float("nan")), short(None)
    (1235.0, 'nan', None)
    """
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)
