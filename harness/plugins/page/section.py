"""A section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.core.table import ReportTable
from harness.plugins.page.charts import Chart
from harness.report.run_facts import QUIET


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section of the page; a subclass with more in it names its own template.

    Attributes:
        state: ``good``, ``bad`` or ``quiet``: a mark and a colour.
        gist: One line that is visible while the section is closed.
        open: Whether the section is open at first.
        notes: Sentences between the chart and the table.

    """

    template: ClassVar[str] = "section.html"

    id: str
    title: str
    state: str = QUIET
    gist: str = ""
    open: bool = False
    chart: Chart | None = None
    notes: Sequence[str] = ()
    table: ReportTable | None = None
