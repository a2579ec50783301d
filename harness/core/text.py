"""Lines of text with a meaning, and functions that format values.

The caller decides where a line is printed, and whether it is coloured.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import ParamSpec

_P = ParamSpec("_P")

WIDTH = 100
"""Largest number of columns of a screen."""

INDENT = "     "

FLOORS = "× PyTorch's own float32 rounding error"
"""The unit of an error in floors. Every screen and page says it at the first use."""

_PLACE = 24
"""Number of columns that a place gets even if its line is long. A place is a step, or
the end of a module's path."""


_PATH = re.compile(r"(?<![^\s'\"(\[=,:])(~?/(?!/)|file:/|[A-Za-z]:[\\/]|\\\\).*")
"""A path that begins at a root or a home, and what follows it: it may have spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of text with its tone.

    Attributes:
        text: The text.
        tone: Meaning of the line: ``good``, ``bad``, ``quiet`` or nothing.

    """

    text: str
    tone: str = ""


def wrapped(text: str, *, indent: str = INDENT, tone: str = "") -> Iterator[Line]:
    """Yield a sentence in as many lines as it needs; no word is cut."""
    for line in textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield Line(text=line, tone=tone)


def joined(
    parts: Iterable[str], *, indent: str = INDENT, between: str = " · ", tone: str = ""
) -> Iterator[Line]:
    """Yield facts side by side; a line break falls only between two facts."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text}{between}{part}" if text else f"{indent}{part}"
        if text and len(longer) > WIDTH:
            yield Line(text=text, tone=tone)
            longer = f"{indent}{part}"
        text = longer
    if text:
        yield Line(text=text, tone=tone)


def cut(text: str, room: int) -> str:
    """Return the end of a name that is too long, because modules differ at the end.

    >>> cut("down_blocks.0.resnets.0.conv1", 16)
    '…resnets.0.conv1'
    """
    return text if len(text) <= room else f"…{text[len(text) - max(1, room - 1) :]}"


def without_paths(text: str) -> str:
    """Return a text in which no line names a place of this machine.

    >>> without_paths("ImportError: /home/ann lee/MNN.so: undefined symbol")
    'ImportError: PATH'
    >>> without_paths("--store file:///home/ann/store")
    '--store PATH'
    >>> without_paths("MNN 3.6.1, see https://www.mnn.zone, 1/2")
    'MNN 3.6.1, see https://www.mnn.zone, 1/2'
    """
    return _PATH.sub("PATH", text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural.

    >>> count(1, "case"), count(2, "case"), count(2, "entry"), count(2, "way")
    ('1 case', '2 cases', '2 entries', '2 ways')
    """
    consonant = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    plural = f"{noun[:-1]}ies" if consonant else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if names[most:] else shown


def in_floors(value: float) -> str:
    """Return an error in noise floors.

    >>> in_floors(411.7), in_floors(22345.0), in_floors(1.234e51)
    ('412 floors', '22,345 floors', '1.23e+51 floors')
    >>> in_floors(math.nan), in_floors(math.inf)
    ('an unknown number of floors', 'infinitely many floors')
    """
    if math.isnan(value):
        return "an unknown number of floors"
    if value == math.inf:
        return "infinitely many floors"
    return f"{number_of_floors(value)} floors"


def number_of_floors(value: float) -> str:
    """Return a number of noise floors without its unit, for a table column.

    >>> [number_of_floors(value) for value in (411.7, 22345.0, 1e6, math.nan)]
    ['412', '22,345', '1e+06', 'nan']
    """
    least, most = 1e3, 999_999.5  # six digits at most
    return f"{value:,.0f}" if least <= value < most else f"{value:.3g}"


def explain_floors(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield a screen's lines, with the unit of floors explained at its first use.

    >>> [line.text for line in explain_floors([Line(text="  3 floors, allowed 16")])]
    ["  3 floors (× PyTorch's own float32 rounding error), allowed 16"]
    """
    explained = False
    for line in lines:
        text = re.sub(r"(?<=\d) floors", f" floors ({FLOORS})", line.text, count=1)
        if explained or text == line.text:
            yield line
            continue
        explained = True
        # A line may begin with a label; a further line stands below the text.
        head = next(re.finditer(r"^ *(?:\S+(?: \S+)? {2,})?", text)).group()
        facts = text[len(head) :].strip().split(" · ")
        indent = " " * len(head)
        more = (
            joined(facts, indent=indent, tone=line.tone)
            if facts[1:]
            else wrapped(facts[0], indent=indent, tone=line.tone)
        )
        for at, below in enumerate(more):
            yield below if at else replace(below, text=head + below.text[len(head) :])


def floors_explained(
    screen: Callable[_P, Iterable[Line]],
) -> Callable[_P, Iterator[Line]]:
    """Decorate a screen's function, so that the screen explains floors once."""

    @wraps(screen)
    def explained(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Line]:
        return explain_floors(screen(*args, **kwargs))

    return explained


def in_bytes(value: int) -> str:
    """Return a size with its unit.

    >>> in_bytes(45_000), in_bytes(12_345_678)
    ('44 KB', '11.8 MB')
    """
    large = value >= 2**20
    return f"{value / 2**20:,.1f} MB" if large else f"{value / 2**10:,.0f} KB"


_LONG_S = 100.0
"""Seconds from which a duration is told in minutes."""


def in_seconds(value: float) -> str:
    """Return a duration in seconds, or in minutes if it is long.

    >>> in_seconds(89.6), in_seconds(200.0)
    ('90 s', '3 min')
    """
    return f"{value:.0f} s" if value < _LONG_S else f"{value / 60:.0f} min"


def operator(op: str) -> str:
    """Return an operator as PyTorch users know it.

    >>> operator("aten.conv2d.default")
    'conv2d'
    """
    return op.removeprefix("aten.").partition(".")[0]


def case_line(case: str, checks: Mapping[str, Mapping[str, str]]) -> Line:
    """Return the line of one case, with a short result of each check.

    `checks` has the properties of each check, as a test or a run reports them.
    """
    words, place, tone, mark = [], "", "good", "✓"
    for what, told in checks.items():
        outcome = told["parity.outcome"]
        if outcome == "unavailable":
            words, tone, mark = ["not installed"], "quiet", "-"
            break
        if told.get("parity.picture"):
            words.append(told["parity.picture"])
        elif outcome == "within":
            words.append(f"{what} use {float(told['parity.usage']):.0%} of tolerance")
        elif outcome == "gap":
            words.append(f"{what} known gap")
        if outcome not in {"within", "gap"}:
            tone, mark = "bad", "✗"
            words.append(f"{what} {outcome}")
            place = place or told.get("parity.first_divergence", "")
        words += filter(None, [told.get("parity.own")])
    text = f" {mark} {case:<38} {' · '.join(words)}"
    if place:
        room = max(_PLACE, WIDTH - len(text) - len(" · first diverges at "))
        text += f" · first diverges at {cut(place, room)}"
    return Line(text=text, tone=tone)
