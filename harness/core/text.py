"""Lines of text with a meaning, and functions that format values.

The caller decides where a line is printed, and whether it is coloured.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

WIDTH = 100
"""Largest number of columns of a screen."""

INDENT = "     "

_FLOORS = re.compile(r"(?<=\d) floors")

FLOORS = "× PyTorch's own float32 rounding error"
"""The unit of an error in floors. Every screen and page says it at the first use."""

_PLACE = 24
"""Number of columns that a place gets even if its line is long. A place is a step, or
the end of a module's path."""

NAME = 400
"""Most characters of a name, a path or a value that is not ours, where it is shown."""

MESSAGE = 4_000
"""Most characters of a message or a line that is not ours."""

LOG = 64 << 10
"""Most characters of what a process printed, in a record and on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line, a sentence, or facts side by side; a screen may need several lines.

    Attributes:
        text: The text.
        tone: Meaning of the line: ``good``, ``bad``, ``quiet`` or nothing.
        lead: Blanks, a mark or a label before the text; further lines stand below the
            text.
        breaks: Where a screen may break it: between words (one blank), between facts
            (``" · "``), or nowhere.

    """

    text: str
    tone: str = ""
    lead: str = ""
    breaks: str = ""

    @property
    def rows(self) -> list[str]:
        """The lines of a screen that it needs; no word is cut."""
        room = WIDTH - len(self.lead)
        if not self.breaks or len(self.text) <= room:
            return [f"{self.lead}{self.text}"] if self.text or not self.breaks else []
        rows = _filled(re.sub(r"\s", " ", self.text), self.breaks, room)
        blank = " " * len(self.lead)
        return [f"{blank if at else self.lead}{row}" for at, row in enumerate(rows)]


def _filled(text: str, between: str, room: int) -> list[str]:
    """Return a text in rows; only a fact that is too long is broken between words."""
    rows = [""]
    for part in text.split(between):
        longer = f"{rows[-1]}{between}{part}" if rows[-1] else part
        if len(longer) <= room:
            rows[-1] = longer
        elif between != " " and len(part) > room:
            rows += _filled(part, " ", room)
        else:
            rows.append(part)
    return [row.rstrip() for row in rows if row.strip()]


def wrapped(text: str, *, indent: str = INDENT, tone: str = "") -> Iterator[Line]:
    """Yield a sentence, which a screen breaks between words."""
    yield Line(text=text, tone=tone, lead=indent, breaks=" ")


def joined(
    parts: Iterable[str], *, indent: str = INDENT, between: str = " · ", tone: str = ""
) -> Iterator[Line]:
    """Yield facts side by side, which a screen breaks between two facts."""
    text = between.join(filter(None, parts))
    yield Line(text=text, tone=tone, lead=indent, breaks=between)


def cut(text: str, room: int) -> str:
    """Return the end of a name that is too long, because modules differ at the end.

    >>> cut("down_blocks.0.resnets.0.conv1", 16)
    '…resnets.0.conv1'
    """
    return text if len(text) <= room else f"…{text[len(text) - max(1, room - 1) :]}"


class _Escapes(dict[int, str]):
    """What stands for each character, found when it is first seen."""

    def __missing__(self, code: int) -> str:
        """Return the character, or an escape if a terminal would act on it."""
        letter = chr(code)
        # Spaces of other widths are letters like others; all else that Python would not
        # print is a control, a format or a private character, or half of a pair.
        shown = letter.isprintable() or unicodedata.category(letter) == "Zs"
        if not shown:
            letter = letter.encode("unicode_escape").decode("ascii")
        if len(self) < _KEPT:
            self[code] = letter
        return letter


_KEPT = 4_096
"""Most characters that are kept with what stands for them."""

_ESCAPES = _Escapes()
_ESCAPES_IN_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def printable(text: str, most: int = MESSAGE, *, lines: bool = False) -> str:
    r"""Return a text that is not ours, safe to show on a terminal or on a page.

    Every character that a terminal or a text layout acts on becomes an escape: control
    characters, line and paragraph separators, marks of direction and of zero width,
    lone surrogates, private and unassigned ones. A text that was made so is not changed
    again.

    Args:
        text: The text.
        most: Most characters of the result. The middle of a longer text is left out.
        lines: Whether the text has lines, as a log has. If not, a line break becomes an
            escape too, so that a name cannot look like a line of ours.

    >>> print(printable("conv\x1b[2J\u202e\n all agree"))
    conv\x1b[2J\u202e\n all agree
    >>> printable("one\r\ntwo", lines=True)
    'one\ntwo'
    >>> printable("down.0." * 9, most=21)
    'down.0.dow….0.down.0.'
    """
    if lines and "\r\n" in text:
        text = text.replace("\r\n", "\n")
    if not text.isprintable():
        text = text.translate(_ESCAPES_IN_LINES if lines else _ESCAPES)
    return shortened(text, most)


def one_line(text: str) -> str:
    r"""Return a sentence as one line; what it quotes may have several.

    >>> one_line("it fails:\n  no such file")
    'it fails: no such file'
    """
    return re.sub(r"\s*[\r\n]\s*", " ", text.strip())


def shortened(text: str, most: int) -> str:
    """Return the beginning and the end of a text that has more than `most` characters.

    >>> shortened("abcdefghijk", 5), shortened("abcde", 5)
    ('ab…jk', 'abcde')
    >>> shortened("x" * 5000, 100).strip("x")
    ' … the middle of 5,000 characters is left out … '
    """
    if len(text) <= most:
        return text
    mark = f" … the middle of {len(text):,} characters is left out … "
    if len(mark) * 2 > most:
        mark = "…"
    kept = max(0, most - len(mark))
    end = kept // 2
    return f"{text[: kept - end]}{mark}{text[len(text) - end :]}"


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


def alike(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return each phrase to the names that it applies to.

    >>> alike([("a/layers", "gone"), ("a/outputs", "gone"), ("b/size", "+9%")])
    {'gone': ['a/layers', 'a/outputs'], '+9%': ['b/size']}
    """
    together: dict[str, list[str]] = {}
    for name, words in dict.fromkeys(told):
        together.setdefault(words, []).append(name)
    return together


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


def screen(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines of a screen, with the unit of floors explained at its first use.

    >>> [line.text for line in screen([Line(text="3 floors, allowed 16", lead="  ")])]
    ["  3 floors (× PyTorch's own float32 rounding error), allowed 16"]
    """
    unit = f" floors ({FLOORS})"
    explained = False
    for line in lines:
        text = line.text if explained else _FLOORS.sub(unit, line.text, count=1)
        explained |= FLOORS in text
        breaks = line.breaks if text == line.text else line.breaks or " "
        for row in replace(line, text=text, breaks=breaks).rows:
            yield Line(text=row, tone=line.tone)


def in_bytes(value: int) -> str:
    """Return a size with its unit.

    >>> in_bytes(45_000), in_bytes(12_345_678)
    ('44 KB', '11.8 MB')
    """
    large = value >= 2**20
    return f"{value / 2**20:,.1f} MB" if large else f"{value / 2**10:,.0f} KB"


_TENTH, _TEN, _THOUSAND = 0.1, 10, 1000
_LARGE = {"": 1.0, " thousand": 1e3, " million": 1e6}


def share(usage: float) -> str:
    """Return the used share of a limit; a factor beyond it has another form.

    >>> share(0.824), share(1.07), share(61.7), share(458_409.0), share(1.3e11)
    ('82 %', '1.07 ×', '61.7 ×', '458 thousand ×', '1.3e+11 ×')
    """
    if math.isinf(usage):
        return "∞ ×"
    if usage <= 1:
        return f"{100 * usage:.{0 if usage >= _TENTH else 1}f} %"
    for words, size in _LARGE.items():
        if usage < size * _THOUSAND:
            digits = f"{usage / size:.2f}" if usage < _TEN else f"{usage / size:.3g}"
            return f"{digits}{words} ×"
    return f"{usage:.3g} ×"


def of_limit(usage: float) -> str:
    """Return a share of a limit as a phrase.

    >>> of_limit(0.824), of_limit(61.7)
    ('82 % of its limit', '61.7 × its limit')
    """
    if math.isinf(usage):
        return "beyond any limit"
    return f"{share(usage)} {'of ' if usage <= 1 else ''}its limit"


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


_HEIGHTS = " ▁▂▃▄▅▆▇█"
_COLUMNS = 72
_LEAST_TOP = 16.0


def largest(errors: Iterable[float]) -> float:
    """Return the error in floors at the top of a plot: 16, or the largest one."""
    return max([_LEAST_TOP, *filter(math.isfinite, errors)])


def height(error: float, top: float) -> int:
    """Return a height on a log scale: 0 for no error, 1 up to a floor, 8 at the top."""
    most = len(_HEIGHTS) - 1
    if not 0.0 < error < top:
        return 0 if error <= 0.0 else most
    return 1 + math.floor(math.log(max(error, 1.0)) / math.log(top) * (most - 1))


def curve(errors: Sequence[float]) -> str:
    """Return a plot of one line: the largest error in floors of each stretch.

    >>> curve([0.0, 1.0, 10.0, 100.0, math.nan])
    ' ▁▄█!'
    """
    top, step = largest(errors), math.ceil(len(errors) / _COLUMNS)
    parts = [errors[at : at + step] for at in range(0, len(errors), step)]
    return "".join(
        _HEIGHTS[max(height(error, top) for error in part)]
        if all(map(math.isfinite, part))
        else "!"
        for part in parts
    )


def case_line(case: str, checks: Mapping[str, Mapping[str, str]]) -> Line:
    """Return the line of one case, with a short result of each check.

    `checks` has the properties of each check, as a test or a run reports them.
    """
    words, place, lead, tone, mark = [], "", "", "good", "✓"
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
            if not place and (place := told.get("parity.first_divergence", "")):
                lead = f" · first diverges {told.get('parity.lead', 'at')} "
        facts = (told.get(f"parity.{name}") for name in ("own", "stored", "itself"))
        words += filter(None, facts)
    text = f" {mark} {case:<38} {' · '.join(words)}"
    if place:
        text += f"{lead}{cut(place, max(_PLACE, WIDTH - len(text) - len(lead)))}"
    return Line(text=text, tone=tone)
