"""Render a page into one file that needs no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.report.html.found import Found
from harness.report.html.page import Page, page_of
from harness.report.html.pictures import data_uris


def write_page(found: Found, path: Path) -> Path:
    """Write a run's report to `path` in one move and return the path.

    Raises:
        OSError: The file cannot be written.

    """
    temporary = path.with_suffix(".part")
    temporary.write_text(rendered(page_of(found), found.folder), encoding="utf-8")
    return temporary.replace(path)


def rendered(page: Page, folder: Path) -> str:
    """Return the page as HTML, with its pictures, its data and its scripts inside."""
    import jinja2
    from plotly.offline import get_plotlyjs

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("harness.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html").render(
        page=page,
        pictures=data_uris(page, folder),
        data=_in_script(_data(page)),
        plotly=get_plotlyjs(),
    )


def _data(page: Page) -> dict[str, Any]:
    return {
        "tables": {table.id: table.to_json() for table in page.tables},
        "charts": {
            chart.id: {
                "figure": chart.figure,
                "table": chart.table,
                "still": chart.still,
                "views": chart.views,
            }
            for chart in page.charts
        },
    }


def _in_script(value: object) -> str:
    """Return JSON that cannot end the script it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
