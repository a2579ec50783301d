"""A run's findings as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from harness.core.record import CaseRecord, coverage_share
from harness.core.shown import written
from harness.core.text import Line, in_floors, one_line, screen
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


_OF_PATHS = "/+@=,"
"""Characters that the path of a picture keeps, beside letters and digits."""

_MARKS = re.compile(
    r"[`*<>\[\]|\\~&#$!]|(?<!\w)@(?=\w)|://|www\.|(?<!\w)_|_(?!\w)", re.IGNORECASE
)
"""What Markdown, or a page that shows it, may take for more than text."""


def markdown(facts: RunFacts, lines: Sequence[Line]) -> str:
    """Return a run's summary, `lines`, and a table with a row for each case."""
    parts = [f"## Parity {word(facts.run)}\n\n{block(lines)}\n"]
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
        name = word(facts.names[record.key])
        yield f"\n{name}: PyTorch, candidate, difference\n"
        if worst:
            yield f"![{name}]({quote(worst[1], safe=_OF_PATHS)})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def word(text: str) -> str:
    r"""Return a text of others within a line of Markdown.

    It is code where Markdown may take it for more than text: then no link, picture,
    mention or HTML of theirs takes effect.

    >>> word("conv2d in MNN, 3 threads"), word("a_b"), word("<img src=x>")
    ('conv2d in MNN, 3 threads', 'a_b', '`<img src=x>`')
    >>> word("a`b\n# c"), word("unet/mnn@phone/fp32")
    ('``a`b # c``', 'unet/mnn@phone/fp32')
    """
    text = written(one_line(text), lines=False)
    if not _MARKS.search(text):
        return text
    ticks = _ticks(text, least=1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def cell(text: str) -> str:
    r"""Return a text of others as a cell of a table in Markdown.

    >>> cell("a|b")
    '`a\\|b`'
    """
    return word(text).replace("|", r"\|")


def fenced(text: str) -> str:
    r"""Return lines of others as a block of code in Markdown.

    >>> print(fenced("one\n```"))
    ````
    one
    ```
    ````
    """
    return _fenced(written(text), "")


def block(lines: Iterable[Line]) -> str:
    """Return the lines of a screen as a block of Markdown."""
    # Each line has its bound, and there are as many as there are cases.
    text = "\n".join(written(line.text, lines=False) for line in screen(lines))
    return _fenced(text, "text")


def _fenced(text: str, language: str) -> str:
    ticks = _ticks(text, least=3)
    return f"{ticks}{language}\n{text}\n{ticks}"


def _ticks(text: str, least: int) -> str:
    """Return more backticks than stand together in a text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def _outcome(verdict: CaseVerdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.outcome.value if verdict.outcome.passed else f"**{verdict.outcome}**"
