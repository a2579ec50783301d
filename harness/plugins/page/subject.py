"""A component's or a pipeline's part of the page: errors, values and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.end_to_end import PAIRS
from harness.core.record import CaseRecord
from harness.core.table import ReportTable
from harness.core.text import alike, count, few, of_limit
from harness.judge.case import CaseVerdict
from harness.plugins.page.charts import Chart, depth_figure
from harness.plugins.page.section import Section
from harness.plugins.page.values import (
    Values,
    curves_of,
    drawn_first,
    loudest,
    name_of,
    values_of,
    values_table,
)
from harness.plugins.pictures.distribution import pair_ratios
from harness.plugins.pictures.tables import claims_table, pictures_table
from harness.plugins.pictures.words import picture_errors
from harness.plugins.pictures.worst import metric_words, rms_of, worst_drawing
from harness.report.layers import case_notes
from harness.report.run_facts import BAD, GOOD, QUIET, RunFacts
from harness.report.summary import beside


@dataclass(frozen=True, kw_only=True)
class DrawingSection:
    """A case's picture: PyTorch's, the runtime's and their difference, side by side.

    Attributes:
        path: Path of the picture in the run's folder.
        words: A phrase with the picture's error.
        rms: The error, by which the worst picture is chosen.

    """

    path: str
    case: str
    words: str
    prompt: str
    rms: float

    @property
    def amplified(self) -> str:
        """Factor by which the difference is multiplied; the file's name ends with it.

        An example is 0-difference-x16.png.
        """
        return self.path.rpartition("-x")[2].removesuffix(".png")


@dataclass(frozen=True, kw_only=True)
class SubjectSection(Section):
    """One component or one pipeline in all its cases.

    Attributes:
        chart: Chart of the error along the depth, or along the steps of a pipeline.
        notes: Facts that the chart does not show: failures, skips, observers.
        table: Table of every value.
        drawings: The worst picture of each case of a pipeline, the worst case first.
        pictures: Table of the errors of each case's pictures, and of their growth.
        claims: Table of what was claimed of all pictures of a case, and was tested on
            its pairs.

    """

    template: ClassVar[str] = "subject.html"

    is_pipeline: bool
    drawings: Sequence[DrawingSection] = ()
    pictures: ReportTable | None = None
    claims: ReportTable | None = None


def subjects(facts: RunFacts) -> Iterator[SubjectSection]:
    """Yield a section for each component, then one for each pipeline."""
    for is_pipeline in (False, True):
        found: dict[str, list[CaseRecord]] = {}
        for record in sorted(facts.requested, key=lambda record: record.component):
            if facts.is_pipeline(record) == is_pipeline:
                suite = facts.names[record.key].removesuffix(record.case)
                found.setdefault(suite + record.component, []).append(record)
        for number, (name, records) in enumerate(found.items()):
            kind = "pipeline" if is_pipeline else "component"
            yield _subject(facts, f"{kind}-{number}", name, records, is_pipeline)


def _subject(
    facts: RunFacts,
    ident: str,
    name: str,
    records: Sequence[CaseRecord],
    is_pipeline: bool,  # noqa: FBT001  # called once
) -> SubjectSection:
    values = values_of(facts, records)
    names = {record.key: name_of(record) for record in records}
    states = {facts.state(record) for record in records}
    gist = _gist(facts, records, values)
    chart = table = None
    if any(values.values()):
        what = "Latents and pictures" if is_pipeline else "Values"
        caption = f"{what} of {name}, the worst of all samples"
        table = values_table(f"{ident}-values", caption, values, records)
        drawn = drawn_first(facts, records)
        chart = Chart(
            id=f"{ident}-{'steps' if is_pipeline else 'depth'}",
            figure=depth_figure(
                curves_of(values, records, drawn, steps=is_pipeline),
                x_title="denoising step" if is_pipeline else "order of execution",
            ),
            alt=f"Error of {name} as a share of each limit, one curve a case: {gist}.",
            table=table.id,
        )
    return SubjectSection(
        id=ident,
        title=name,
        state=next((state for state in (BAD, GOOD) if state in states), QUIET),
        gist=gist,
        chart=chart,
        table=table,
        notes=tuple(_notes(facts, records)),
        is_pipeline=is_pipeline,
        drawings=tuple(_drawings(records)),
        pictures=pictures_table(facts, names, records, f"{ident}-cases", name),
        claims=claims_table(names, records, f"{ident}-claims", name),
    )


def _gist(facts: RunFacts, records: Sequence[CaseRecord], values: Values) -> str:
    """Return how many cases agree, and the value that uses most of its limit."""
    bad = [record for record in records if facts.state(record) == BAD]
    gaps = [record for record in records if facts.by_gap(record)]
    words = [count(len(records), "case")]
    if bad:
        words[0] = f"{len(records) - len(bad):,} of {words[0]} agree"
    if gaps:
        words[0] += f", {len(gaps):,} by a known gap"
    # A known gap has its own sentence; the worst of the other cases tells more.
    others = {name_of(record) for record in records if record not in gaps}
    worst = loudest({case: rows for case, rows in values.items() if case in others})
    if worst is not None:
        case, judged = worst
        words.append(f"{judged.row.place} in {case}")
        words.append(of_limit(judged.verdict.usage))
    return " · ".join(words)


def _notes(facts: RunFacts, records: Sequence[CaseRecord]) -> Iterator[str]:
    """Yield failures before any comparison, and how watching changed the outputs."""
    notes = (
        (name_of(record), text)
        for record in records
        for text in _own_notes(record, facts.checks[record.key])
    )
    for text, names in alike(notes).items():
        yield f"{few(names)}: {text}"
    yield from beside(facts, records, {one.key: name_of(one) for one in records})
    watched = [
        max(record.observer_max_abs.values())
        for record in records
        if record.observer_max_abs
    ]
    if watched:
        most = f"the outputs by at most {max(watched):.1e}"
        yield f"Watching changed {most if max(watched) else 'no output'}."


def _own_notes(record: CaseRecord, checks: Sequence[CaseVerdict]) -> Iterator[str]:
    if record.failure is not None:
        yield f"{record.failure.outcome}. {record.failure.message}"
    else:
        yield from (note.text for note in case_notes(record, checks))


def _drawings(records: Sequence[CaseRecord]) -> list[DrawingSection]:
    """Return each case's worst kept picture, the worst case first."""
    drawings = []
    for record in records:
        if worst := worst_drawing(record):
            row, path = worst
            drawings.append(
                DrawingSection(
                    path=path,
                    case=name_of(record),
                    words=picture_errors(row),
                    prompt=row.module,
                    rms=rms_of(row),
                )
            )
        drawings += _worst_pairs(record)
    return sorted(drawings, key=lambda drawing: -drawing.rms)


def _worst_pairs(record: CaseRecord) -> Iterator[DrawingSection]:
    """Yield the worst pairs of a case, with the seed that makes each again."""
    pairs: Mapping[str, Any] = (record.pipeline or {}).get(PAIRS) or {}
    kept = zip(pairs.get("worst", ()), pairs.get("pictures", ()), strict=True)
    for index, path in kept:
        errors = {name: losses[index] for name, losses in pairs["losses"].items()}
        words = [
            metric_words(name, error, of_limit(pair_ratios(pairs, name)[index]))
            for name, error in errors.items()
        ]
        rms = errors.get("psnr", 0.0)
        yield DrawingSection(
            path=path,
            case=name_of(record),
            words=f"seed {pairs['seeds'][index]} · {' · '.join(filter(None, words))}",
            prompt=pairs["prompts"][index],
            rms=rms if math.isfinite(rms) else math.inf,
        )
