"""A run's findings as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.core.plugins import sentences
from harness.core.record import CaseRecord, coverage_share
from harness.core.shown import written
from harness.core.text import Line, in_floors, one_line, screen
from harness.judge.case import CaseVerdict
from harness.judge.value import max_floors
from harness.report.run_facts import RunFacts, least_sqnr

_COMPONENTS = """\
| case | layers | outputs | worst output | SQNR dB | coverage |
|---|---|---|--:|--:|--:|"""
_MARKS = re.compile(
    r"[`*<>\[\]|\\~&#$!]|(?<!\w)@(?=\w)|://|www\.|(?<!\w)_|_(?!\w)", re.IGNORECASE
)
"""What Markdown, or a page that shows it, may take for more than text."""


def markdown(facts: RunFacts, lines: Sequence[Line]) -> str:
    """Return a run's summary, `lines`, and a table with a row for each case."""
    parts = [f"## Parity {word(facts.run)}\n\n{block(lines)}\n"]
    components = [one for one in facts.requested if not facts.is_pipeline(one)]
    if components:
        rows = (_component(facts, record) for record in components)
        parts.append("\n".join((_COMPONENTS, *rows)) + "\n")
    parts += sentences("tables", facts)
    return "\n".join(parts)


def _component(facts: RunFacts, record: CaseRecord) -> str:
    layers, outputs = facts.both(record)
    worst, sqnr = max_floors(outputs.rows if outputs else ()), least_sqnr(outputs)
    return row_of(
        cell(facts.names[record.key]),
        outcome_of(layers),
        outcome_of(outputs),
        "" if worst is None else in_floors(worst),
        "" if sqnr is None else f"{sqnr:.1f}",
        f"{coverage_share(record):.1%}" if record.coverage else "",
    )


def row_of(*cells: str) -> str:
    """Return a row of a table."""
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


def outcome_of(verdict: CaseVerdict | None) -> str:
    """Return the cell of a check's outcome; empty where it was not judged."""
    if verdict is None:
        return ""
    return verdict.outcome.value if verdict.outcome.passed else f"**{verdict.outcome}**"
