"""The page: its top, then sections one after the other.

A section more is a noun with a template of its own, and a line in `SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.report.html.charts import Chart
from harness.report.html.closing import coverage, environment
from harness.report.html.component import Component, components
from harness.report.html.found import Found, Section
from harness.report.html.overview import (
    Divergence,
    Headline,
    cases,
    divergences,
    headline,
)
from harness.report.html.pipeline import PipelinePart, pipelines
from harness.report.html.since import Since
from harness.report.html.speed import speeds
from harness.report.html.table import Table
from harness.report.html.where import wheres

Part = TypeVar("Part")

SECTIONS: tuple[Callable[[Found], Iterable[Section]], ...] = (
    cases,
    components,
    pipelines,
    speeds,
    wheres,
    coverage,
    environment,
)
"""In the order of the page; each yields nothing where it has no data."""

CARDS = (Component, PipelinePart)
"""What the top of the page shows in small."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that the report shows.

    Attributes:
        run: Name of the run.
        headline: The verdict.
        divergences: Where cases part, the clearest first.
        since: What changed since a baseline, if the run was held against one.
        sections: In order.

    """

    run: str
    headline: Headline
    divergences: Sequence[Divergence]
    since: Since | None
    sections: Sequence[Section]

    @property
    def cards(self) -> list[Component | PipelinePart]:
        """Sections that the top shows in small."""
        return [section for section in self.sections if isinstance(section, CARDS)]

    @property
    def charts(self) -> list[Chart]:
        """Every chart, wherever it stands."""
        return list(_parts(self.sections, Chart))

    @property
    def tables(self) -> list[Table]:
        """Every table, wherever it stands."""
        changed = [self.since.table] if self.since and self.since.table else []
        return [*changed, *_parts(self.sections, Table)]


def page_of(found: Found) -> Page:
    """Return the page of a run; where nothing failed, its first component is open."""
    sections = [section for make in SECTIONS for section in make(found)]
    cards = [at for at, section in enumerate(sections) if isinstance(section, CARDS)]
    if cards and not any(sections[at].open for at in cards):
        sections[cards[0]] = replace(sections[cards[0]], open=True)
    return Page(
        run=found.run,
        headline=headline(found),
        divergences=divergences(found),
        since=found.since,
        sections=sections,
    )


def _parts(sections: Iterable[Section], kind: type[Part]) -> Iterator[Part]:
    for section in sections:
        for value in vars(section).values():
            if isinstance(value, kind):
                yield value
