"""A run's findings as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from harness.core.record import CaseRecord, coverage_share
from harness.core.shown import written
from harness.core.text import Line, in_floors
from harness.judge.case import CaseVerdict
from harness.judge.value import max_floors
from harness.report.pictures import pictures_of, worst_drawing
from harness.report.run_facts import RunFacts, least_sqnr

_COMPONENTS = """\
| case | layers | outputs | worst output | SQNR dB | coverage |
|---|---|---|--:|--:|--:|"""
_PIPELINES = """\
| pipeline | latents | image | PSNR dB | SSIM | first diverges at | caused by |
|---|---|---|--:|--:|---|---|"""


_MARKUP = re.compile(r"[\\`*<>\[\]|!#&~]")
"""Characters of Markdown and HTML; an underscore inside of a word means nothing."""


def markdown(facts: RunFacts, lines: Sequence[Line]) -> str:
    """Return a run's summary, `lines`, and a table with a row for each case."""
    parts = [f"## Parity {cell(facts.run)}\n\n{fenced(line.text for line in lines)}\n"]
    pipelines = [record for record in facts.requested if facts.is_pipeline(record)]
    components = [one for one in facts.requested if not facts.is_pipeline(one)]
    if components:
        rows = (_component(facts, record) for record in components)
        parts.append("\n".join((_COMPONENTS, *rows)) + "\n")
    if pipelines:
        rows = (_pipeline(facts, record) for record in pipelines)
        drawings = (line for one in pipelines for line in _drawing(facts, one))
        parts.append("\n".join((_PIPELINES, *rows, *drawings)) + "\n")
    return "\n".join(parts)


def _component(facts: RunFacts, record: CaseRecord) -> str:
    layers, outputs = facts.both(record)
    worst, sqnr = max_floors(outputs.rows if outputs else ()), least_sqnr(outputs)
    return _row(
        cell(facts.names[record.key]),
        _outcome(layers),
        _outcome(outputs),
        "" if worst is None else in_floors(worst),
        "" if sqnr is None else f"{sqnr:.1f}",
        f"{coverage_share(record):.1%}" if record.coverage else "",
    )


def _pipeline(facts: RunFacts, record: CaseRecord) -> str:
    latents, image = facts.both(record)
    pictures = pictures_of(record)
    return _row(
        cell(facts.names[record.key]),
        _outcome(latents),
        _outcome(image),
        f"{pictures.psnr_db:.1f}" if pictures else "",
        f"{pictures.ssim:.4f}" if pictures else "",
        cell(latents.first.row.module) if latents and latents.first else "",
        cell(pictures.causes) if pictures else "",
    )


def _drawing(facts: RunFacts, record: CaseRecord) -> Iterator[str]:
    """Yield the worst picture of a case whose pictures differ by more than rounding."""
    pictures, worst = pictures_of(record), worst_drawing(record)
    if pictures and not pictures.clean:
        name = cell(facts.names[record.key])
        yield f"\n{name}: PyTorch, candidate, difference\n"
        if worst:
            yield f"![{name}]({quote(worst[1])})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    r"""Return a text as it stands in a line of Markdown: no part of it is markup.

    >>> print(cell("unet/down_blocks.0"), cell("a|b\n<img src=x> ![c](d)"))
    unet/down_blocks.0 a\|b\\n\<img src=x\> \!\[c\](d)
    """
    return _MARKUP.sub(r"\\\g<0>", written(text, lines=False))


def fenced(lines: Iterable[str]) -> str:
    """Return lines as a block of Markdown that shows them as they are.

    >>> print(fenced([" ✓ unet/mnn/fp32"]))
    ```text
     ✓ unet/mnn/fp32
    ```
    """
    body = [written(line, lines=False) for line in lines]
    inside = re.findall("`{3,}", "\n".join(body))
    fence = max(["```", *(f"{ticks}`" for ticks in inside)], key=len)
    return "\n".join((f"{fence}text", *body, fence))


def _outcome(verdict: CaseVerdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.outcome.value if verdict.outcome.passed else f"**{verdict.outcome}**"
