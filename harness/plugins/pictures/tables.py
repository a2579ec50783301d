"""Tables of a pipeline's pictures, and of the claims about many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from harness.core.end_to_end import PAIRS
from harness.core.record import CaseRecord, Key
from harness.core.table import Column, ReportTable
from harness.plugins.pictures.distribution import Conclusion, results_of, worse_text
from harness.plugins.pictures.worst import pictures_of, worst_drawing
from harness.report.markdown import table_of, word
from harness.report.run_facts import RunFacts

_OF_PATHS = "/+@=,"
"""Characters that the path of a picture keeps, beside letters and digits."""

_CLEAREST = (Conclusion.WORSE, Conclusion.OPEN, Conclusion.SHIP)
_INTERVAL = "confidence interval of 95 % of the share, valid wherever the drawing stops"


def markdown(facts: RunFacts) -> Iterator[str]:
    """Yield a table with a row for each pipeline case, and what they drew."""
    pipelines = [record for record in facts.requested if facts.is_pipeline(record)]
    if table := pictures_table(facts, facts.names, pipelines):
        drawings = (line for one in pipelines for line in _drawing(facts, one))
        yield "\n".join((table_of(table), *drawings))


def _drawing(facts: RunFacts, record: CaseRecord) -> Iterator[str]:
    """Yield the worst picture of a case whose pictures differ by more than rounding."""
    pictures, worst = pictures_of(record), worst_drawing(record)
    if pictures and not pictures.clean:
        name = word(facts.names[record.key])
        yield f"{name}: PyTorch, candidate, difference\n"
        if worst:
            yield f"![{name}]({quote(worst[1], safe=_OF_PATHS)})\n"


def pictures_table(
    facts: RunFacts,
    names: Mapping[Key, str],
    records: Sequence[CaseRecord],
    ident: str = "",
    of: str = "",
) -> ReportTable | None:
    """Return a table of the error of each case's worst picture, and of its causes."""
    found = [(one, pictures) for one in records if (pictures := pictures_of(one))]
    if not found:
        return None
    drawn = [pictures for _, pictures in found]
    about: list[Mapping[str, Any]] = [record.pipeline or {} for record, _ in found]
    firsts = [check.first if (check := facts.both(r)[0]) else None for r, _ in found]
    worst = "of the worst picture"
    return ReportTable(
        id=ident,
        caption=f"Pictures of {of}: how far off, and what causes it",
        unit="case",
        columns=(
            Column("case", [names[record.key] for record, _ in found]),
            Column("PSNR dB", [one.psnr_db for one in drawn], "decibels", worst),
            Column("SSIM", [one.ssim for one in drawn], "ssim", worst, minor=True),
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
            Column(
                "first diverges at",
                [first.row.module if first else "" for first in firsts],
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


def claims_table(
    names: Mapping[Key, str], records: Sequence[CaseRecord], ident: str, of: str
) -> ReportTable | None:
    """Return a table of each claim about the pairs of each case, as it was tested."""
    found = [
        (names[record.key], worse_text(pairs, metric, one.claim), one)
        for record in records
        if (pairs := (record.pipeline or {}).get(PAIRS))
        for metric, each in results_of(pairs).items()
        for one in each
    ]
    if not found:
        return None
    found.sort(key=lambda row: _CLEAREST.index(row[-1].verdict))
    tried = [one for *_, one in found]
    return ReportTable(
        id=ident,
        caption=f"Pairs of {of}: each claim about all pictures, and what was found",
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
