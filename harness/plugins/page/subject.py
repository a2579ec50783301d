"""A component's or a pipeline's part of the page: errors, values and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.core.end_to_end import PAIRS
from harness.core.outcome import Outcome
from harness.core.plugins import sentences
from harness.core.record import CaseRecord, coverage_share
from harness.core.text import count, few
from harness.judge.unread import unread_message
from harness.measure.metrics import METRIC
from harness.plugins.page.charts import Chart, depth_figure
from harness.plugins.page.section import Section
from harness.plugins.page.table import Column, HtmlTable, of_limit
from harness.plugins.page.values import (
    Values,
    curves_of,
    drawn_first,
    loudest,
    name_of,
    values_of,
    values_table,
)
from harness.plugins.pictures.distribution import (
    Conclusion,
    pair_ratios,
    results_of,
    worse_text,
)
from harness.plugins.pictures.worst import (
    metric_words,
    pictures_of,
    rms_of,
    worst_drawing,
)
from harness.report.run_facts import BAD, GOOD, QUIET, RunFacts

_CLEAREST = (Conclusion.WORSE, Conclusion.OPEN, Conclusion.SHIP)
_INTERVAL = "confidence interval of 95 % of the share, valid wherever the drawing stops"


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
    pictures: HtmlTable | None = None
    claims: HtmlTable | None = None


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
        pictures=_pictures(f"{ident}-cases", name, records),
        claims=_claims(f"{ident}-claims", name, records),
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
    for record in records:
        name = name_of(record)
        if record.failure is not None:
            yield f"{name}: {record.failure.outcome}. {record.failure.message}"
            continue
        for check in facts.checks[record.key]:
            if check.own:
                yield f"{name}: {check.what} {check.own}"
            if padding := unread_message(check.rows):
                yield f"{name}: {padding}"
            unlocated = not check.outcome.passed and check.first is None
            if unlocated or check.outcome is Outcome.GAP:
                yield f"{name}, {check.what}: {check.outcome}. {check.reason}"
        words = dict.fromkeys(
            text
            for check in facts.checks[record.key]
            for text in sentences("beside", record, check.what, check.rows)
        )
        if words:
            yield f"{name}: {'; '.join(words)}"
        missing = (record.coverage or {}).get("missing", ())
        if missing and coverage_share(record) < 1.0:
            yield f"{name}: not compared: {few(list(missing), 6)}"
    names = {one.key: name_of(one) for one in records}
    yield from sentences("remarks", records, names)
    watched = [
        max(record.observer_max_abs.values())
        for record in records
        if record.observer_max_abs
    ]
    if watched:
        most = f"the outputs by at most {max(watched):.1e}"
        yield f"Watching changed {most if max(watched) else 'no output'}."
    yield from _nodes(records)


def _nodes(records: Sequence[CaseRecord]) -> Iterator[str]:
    """Yield each node of a cluster, with the cases that it ran."""
    by_node: dict[str, list[str]] = {}
    for record in records:
        if record.node:
            by_node.setdefault(record.node, []).append(name_of(record))
    for node, names in sorted(by_node.items()):
        yield f"Node {node} ran {few(names, 6)}."


def _drawings(records: Sequence[CaseRecord]) -> list[DrawingSection]:
    """Return each case's worst kept picture, the worst case first."""
    drawings = []
    for record in records:
        if worst := worst_drawing(record):
            row, path = worst
            picture = row.comparison.picture
            words = ""
            if picture is not None:
                words = (
                    f"{METRIC['psnr_db'].said(row.comparison)}, "
                    f"{METRIC['ssim'].said(row.comparison)}, off by at most "
                    f"{row.comparison.max_abs:.3g} of 255"
                )
                if picture.expected_read:
                    words += f", read {picture.actual_read} for {picture.expected_read}"
            drawings.append(
                DrawingSection(
                    path=path,
                    case=name_of(record),
                    words=words,
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


def _pictures(ident: str, name: str, records: Sequence[CaseRecord]) -> HtmlTable | None:
    """Return a table of the error of each case's worst picture, and of its causes."""
    found = [
        (record, pictures) for record in records if (pictures := pictures_of(record))
    ]
    if not found:
        return None
    drawn = [pictures for _, pictures in found]
    about: list[Mapping[str, Any]] = [record.pipeline or {} for record, _ in found]
    return HtmlTable(
        id=ident,
        caption=f"Pictures of {name}: how far off, and what causes it",
        unit="case",
        columns=(
            Column("case", [name_of(record) for record, _ in found]),
            Column(
                "PSNR dB",
                [one.psnr_db for one in drawn],
                "number",
                "of the worst picture",
            ),
            Column(
                "SSIM",
                [one.ssim for one in drawn],
                "ssim",
                "of the worst picture",
                minor=True,
            ),
            Column(
                "off by",
                [one.max_abs for one in drawn],
                "number",
                "at most, of 255",
                minor=True,
            ),
            Column(
                "growth",
                [one.get("growth") for one in about],
                "number",
                "of the error, times a step",
            ),
            Column(
                "guidance",
                [max(one.get("guidance") or (), default=None) for one in about],
                "number",
                "how many times it amplifies the error",
                minor=True,
            ),
            Column("caused by", [one.causes for one in drawn]),
            Column(
                "error pattern",
                [one.get("signature") or "" for one in about],
                minor=True,
            ),
        ),
    )


def _claims(ident: str, name: str, records: Sequence[CaseRecord]) -> HtmlTable | None:
    """Return a table of each claim about the pairs of each case, as it was tested."""
    found = [
        (name_of(record), worse_text(pairs, metric, one.claim), one)
        for record in records
        if (pairs := (record.pipeline or {}).get(PAIRS))
        for metric, each in results_of(pairs).items()
        for one in each
    ]
    if not found:
        return None
    found.sort(key=lambda row: _CLEAREST.index(row[-1].verdict))
    tried = [one for *_, one in found]
    return HtmlTable(
        id=ident,
        caption=f"Pairs of {name}: each claim about all pictures, and what was found",
        unit="claim",
        columns=(
            Column("case", [case for case, *_ in found]),
            Column("verdict", [one.verdict.value for one in tried]),
            Column("worse", [one.worse for one in tried], "number", "pictures"),
            Column("of", [one.pictures for one in tried], "number", "pictures"),
            Column(
                "claim",
                [
                    f"at most {one.claim.share:.0%} of all pictures are {worse}"
                    for _, worse, one in found
                ],
            ),
            *(
                Column(title, ends, "percent", _INTERVAL, minor=True)
                for title, ends in (
                    ("of all, from", [one.low for one in tried]),
                    ("to", [one.high for one in tried]),
                )
            ),
            Column(
                "would be seen",
                [one.visible if one.visible < 1.0 else None for one in tried],
                "percent",
                "the least share of all pictures that is seen nine times in ten",
                minor=True,
            ),
            Column(
                "more pictures",
                [one.more for one in tried],
                "number",
                "number of further pictures that would decide if the share stays",
                minor=True,
            ),
        ),
    )
