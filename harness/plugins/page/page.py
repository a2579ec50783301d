"""The page of a run: its top and its sections, in one file.

To add a section, write a class with its own template, and add a line to `SECTIONS`.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.core.errors import ParityError, first_line
from harness.core.plugins import added
from harness.core.shown import all_written, written
from harness.core.table import ReportTable
from harness.core.text import FLOORS, few
from harness.core.whole_file import write_whole
from harness.engine.finished_run import picture_in
from harness.judge.reference import has_pytorch
from harness.measure.pictures import GAP_PX
from harness.plugins.page.charts import Chart
from harness.plugins.page.failures import FailedCase, failures_of
from harness.plugins.page.matrix import KINDS, Matrix, matrix_of
from harness.plugins.page.overview import (
    Headline,
    cases,
    environment,
    headline,
)
from harness.plugins.page.section import Section
from harness.plugins.page.subject import SubjectSection, subjects
from harness.plugins.page.table import to_json
from harness.report.run_facts import BAD, RunFacts, Since

if TYPE_CHECKING:
    import jinja2

Part = TypeVar("Part")

PAGE = "report.html"
"""Name of the page, in the run's folder."""

SECTIONS: tuple[Callable[[RunFacts], Iterable[Section]], ...] = (cases, subjects)
"""Functions of the first sections, in the page's order; without data each yields none.

Then come the sections of plug-ins, and the environment is the last."""

MOST_BYTES = 550_000
"""Characters of all pictures together; with its scripts the page stays below 3 MB."""


_MOST_PIXELS = 1 << 25
"""Pixels of the largest picture that is shown; three of 2048 × 2048 have 2^24."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The content of the page, from its top to its end.

    Attributes:
        failures: Every failure, the clearest first.
        since: Differences from the baseline; None without a baseline.
        has_floors: Whether a case was compared with PyTorch, which alone has floors.

    """

    run: str
    headline: Headline
    failures: Sequence[FailedCase]
    matrix: Matrix
    since: Since | None
    sections: Sequence[Section]
    has_floors: bool

    @property
    def groups(self) -> list[tuple[str, str, list[FailedCase]]]:
        """Id, heading and failures of each group: defects first, then losses."""
        defects = [failure for failure in self.failures if not failure.loss]
        losses = [failure for failure in self.failures if failure.loss]
        words = "Lossy variants that lose more than their bounds allow"
        groups = [("defects", "Defects", defects), ("losses", words, losses)]
        return [group for group in groups if group[2]]

    @property
    def anchors(self) -> dict[str, str]:
        """Name of a component or pipeline to the anchor of its section."""
        return {card.title: card.id for card in self.cards}

    @property
    def cards(self) -> list[SubjectSection]:
        """Sections of components and pipelines."""
        return list(_are(self.sections, SubjectSection))


def page_of(facts: RunFacts) -> Page:
    """Return the page of a run, with its sections folded."""
    sections = [section for make in SECTIONS for section in make(facts)]
    sections += _of_plugins(facts)
    sections += environment(facts)
    cards = list(_are(sections, SubjectSection))
    failures = failures_of(facts)
    return Page(
        run=facts.run,
        headline=headline(facts, failures),
        failures=failures,
        matrix=matrix_of(
            facts,
            {name: f.id for f in failures for name in (f.found.case, *f.found.also)},
            {card.title: card.id for card in cards},
        ),
        since=facts.since,
        sections=sections,
        has_floors=any(map(has_pytorch, facts.requested)),
    )


def _of_plugins(facts: RunFacts) -> Iterator[Section]:
    """Yield the sections that plug-ins add; one that fails says why in its place."""
    for made in added("sections"):
        try:
            yield from list(made.called(facts))
        except Exception as error:  # noqa: BLE001  # a plug-in's own code raises anything
            yield Section(
                id=f"plugin-{made.plugin}",
                title=f"Plug-in {made.plugin}",
                state=BAD,
                gist=f"{made.name} failed",
                notes=[first_line(error)],
            )


def write_report(facts: RunFacts) -> Path:
    """Write a run's page into the run's folder and return its path.

    Raises:
        ParityError: The page cannot be made or written.

    """
    path = facts.folder / PAGE
    try:
        return write_page(facts, path)
    except Exception as error:  # a page that fails must not fail a run
        why = f"{type(error).__name__}: {error}"
        msg = f"{PAGE} could not be written ({why}); report.json has it all."
        raise ParityError(msg) from error


def write_page(facts: RunFacts, path: Path) -> Path:
    """Write a run's page to `path` in one move and return the path.

    Raises:
        OSError: The file cannot be written.

    """
    write_whole(path, rendered(page_of(facts), facts.folder))
    return path


def rendered(page: Page, folder: Path) -> str:
    """Return the page as HTML, with the pictures of the run's folder inside."""
    return html_of(
        "page.html",
        page.sections,
        tables=[page.since.table] if page.since and page.since.table else [],
        page=page,
        pictures=pictures_in(page, folder),
        few=few,
        kinds=KINDS,
        floors=FLOORS if page.has_floors else "",
    )


def html_of(
    template: str,
    sections: Sequence[Section],
    *,
    tables: Iterable[ReportTable] = (),
    **given: object,
) -> str:
    """Return a page as HTML, with all its data and scripts in one file.

    The template extends ``base.html`` and uses what is `given` by name. The file
    contains the charts and tables of the sections, and `tables` beside them.
    """
    values = [value for part in sections for value in vars(part).values()]
    shown = (*tables, *_are(values, ReportTable))
    data = {
        "tables": {table.id: to_json(table) for table in shown},
        "charts": {chart.id: vars(chart) for chart in _are(values, Chart)},
    }
    text = json.dumps(all_written(data), allow_nan=False, separators=(",", ":"))
    return (
        templates()
        .get_template(template)
        .render(data=packed(text), plotly=plotly(), **given)
    )


@cache
def plotly() -> str:
    """Return the script that draws charts, packed."""
    from plotly.offline import get_plotlyjs

    return packed(get_plotlyjs())


def templates() -> jinja2.Environment:
    """Return the templates of pages."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("harness.plugins.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_on_page,
    )


class _Letters(str):
    """Letters and digits of ours, which a page may have by the million as they are."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def _on_page(value: object) -> object:
    """Return what a template shows of a value; markup has been treated by now."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return written(value)
    return value


def packed(text: str) -> str:
    """Return a text compressed, in letters and digits; the page's script unpacks it.

    No text of a record can then end the script that contains the data.
    """
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0))
    return _Letters(packed.decode("ascii"))


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """A picture inside the page: PyTorch's, the case's and their difference in one.

    Width and height, in pixels, are those of one of the three; `uri` has the file.
    """

    uri: str
    width: int
    height: int

    @property
    def wide(self) -> float:
        """Width of the whole file as a percentage of one of the three."""
        return 100 * (3 * self.width + 2 * GAP_PX) / self.width


def pictures_in(page: Page, folder: Path) -> Mapping[str, ShownPicture]:
    """Return the page's pictures by their path: the worst first, until it is full."""
    drawings = [drawing for card in page.cards for drawing in card.drawings]
    pictures: dict[str, ShownPicture] = {}
    left = MOST_BYTES
    for drawing in sorted(drawings, key=lambda drawing: -drawing.rms):
        path = picture_in(folder, drawing.path)
        if path is not None and (found := _picture(path, left)):
            pictures[drawing.path] = found
            left -= len(found.uri)
    return pictures


def _picture(path: Path, most: int) -> ShownPicture | None:
    """Return a picture for people to look at.

    It is None if it would be longer than `most`, or if the file is no PNG of ours.
    """
    from PIL import Image

    into = io.BytesIO()
    try:
        # A run may come from somebody else, and other formats run other readers.
        with Image.open(path, formats=["PNG"]) as picture:
            width, height = picture.size
            if width * height > _MOST_PIXELS:
                return None
            picture.convert("RGB").save(into, "WEBP", quality=85, method=6)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    uri = f"data:image/webp;base64,{base64.b64encode(into.getvalue()).decode('ascii')}"
    if len(uri) > most:
        return None
    return ShownPicture(
        uri=_Letters(uri),
        width=(width - 2 * GAP_PX) // 3,
        height=height,
    )


def _are(values: Iterable[object], kind: type[Part]) -> Iterator[Part]:
    return (value for value in values if isinstance(value, kind))
