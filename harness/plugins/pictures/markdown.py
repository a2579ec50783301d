"""Pipelines in the Markdown of a run: a table, and the worst pictures."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from harness.core.record import CaseRecord
from harness.plugins.pictures.worst import pictures_of, worst_drawing
from harness.report.markdown import cell, outcome_of, row_of, word
from harness.report.run_facts import RunFacts

_PIPELINES = """\
| pipeline | latents | image | PSNR dB | SSIM | first diverges at | caused by |
|---|---|---|--:|--:|---|---|"""

_OF_PATHS = "/+@=,"
"""Characters that the path of a picture keeps, beside letters and digits."""


def table(facts: RunFacts) -> Iterator[str]:
    """Yield a table with a row for each pipeline case, and what they drew."""
    pipelines = [record for record in facts.requested if facts.is_pipeline(record)]
    if pipelines:
        rows = (_pipeline(facts, record) for record in pipelines)
        drawings = (line for one in pipelines for line in _drawing(facts, one))
        yield "\n".join((_PIPELINES, *rows, *drawings)) + "\n"


def _pipeline(facts: RunFacts, record: CaseRecord) -> str:
    latents, image = facts.both(record)
    pictures = pictures_of(record)
    return row_of(
        cell(facts.names[record.key]),
        outcome_of(latents),
        outcome_of(image),
        f"{pictures.psnr_db:.1f}" if pictures else "",
        f"{pictures.ssim:.4f}" if pictures else "",
        cell(latents.first.row.module) if latents and latents.first else "",
        cell(pictures.causes) if pictures else "",
    )


def _drawing(facts: RunFacts, record: CaseRecord) -> Iterator[str]:
    """Yield the worst picture of a case whose pictures differ by more than rounding."""
    pictures, worst = pictures_of(record), worst_drawing(record)
    if pictures and not pictures.clean:
        name = word(facts.names[record.key])
        yield f"\n{name}: PyTorch, candidate, difference\n"
        if worst:
            yield f"![{name}]({quote(worst[1], safe=_OF_PATHS)})"
