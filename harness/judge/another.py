"""Values of a rewritten file that stand for other ones than their names say.

A tool that rewrites a graph keeps names and moves arithmetic: a bias goes into the next
operator, a factor from the scores into q. Such a value differs, and nothing is wrong.
It is told from a wrong one by what is computed from it: every value in the file that
reads it, and every output, agrees with PyTorch's. Decided from a record alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness.core.case import ITSELF
from harness.core.outcome import Outcome
from harness.core.probes import Kind
from harness.core.record import CaseRecord, Key
from harness.core.text import Line, count, few, wrapped

if TYPE_CHECKING:
    from harness.core.comparison import Comparison
    from harness.judge.case import CaseVerdict, JudgedRow
    from harness.judge.value import Verdict

Place = tuple[str, str]
"""Sample and probe."""

_UNPAIRED = (Outcome.SHAPE, Outcome.DTYPE)
"""The two values are not of one kind, so neither is the other one gone wrong."""

_OFF_THE_LINE = 1e-5
"""Sine of the angle to a multiple of the expected value; rounding is a hundredth."""

_SPARED = 16.0
"""A reader that shows more than one part in so many of an error has inherited it, even
where a wide tolerance lets that pass."""

_MASK_END = 6e4
"""As `align.MASK_END`: no activation is so large. What masks a softmax is what it is,
though a softmax agrees with many a weaker one."""

_SHOWN = 3
_ANOTHER = "another value: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Which of a check's values stand for other ones.

    Attributes:
        words: Sample and probe to how it differs, in words.
        agree: Whether every output agrees, so that they may differ.
        reading: Values that were made from one; run again on PyTorch's own values
            they get what the file never gives them.

    """

    words: Mapping[Place, str]
    agree: bool
    reading: frozenset[Place] = frozenset()

    def without(
        self, failing: Sequence[JudgedRow], *, read: bool = False
    ) -> tuple[JudgedRow, ...]:
        """Return the failing values that may be to blame: others first are not.

        Args:
            failing: In order.
            read: Whether they ran on PyTorch's own values, so that those that read
                another value were given what the file never gives them.

        """
        left_out = {*self.words, *(self.reading if read else ())}
        kept = [j for j in failing if (j.row.sample, j.row.probe) not in left_out]
        # What differs and spoils nothing that reads it is only blamed if nothing else
        # differs; alone on PyTorch's values it says nothing at all.
        return tuple(kept) if kept or read else tuple(failing)


NONE = Others(words={}, agree=False)


def as_another(verdict: Verdict, words: str) -> Verdict:
    """Return the verdict on a value that stands for another one: it passes."""
    reason = f"{_ANOTHER}{words}"
    return replace(verdict, outcome=Outcome.ANOTHER, usage=0.0, reason=reason)


def how_another(judged: JudgedRow) -> str:
    """Say how a value that passes as another one differs; empty where it does not."""
    is_other = judged.verdict.outcome is Outcome.ANOTHER
    return judged.verdict.reason.removeprefix(_ANOTHER) if is_other else ""


def another_words(rows: Iterable[JudgedRow]) -> str:
    """Say in one line what passes as another value; empty where nothing does."""
    named: dict[str, str] = {}
    for judged in rows:
        row = judged.row
        if words := how_another(judged):
            named.setdefault(row.probe, f"{row.module or row.probe} ({words})")
    if not named:
        return ""
    is_, them = ("is", "it") if len(named) == 1 else ("are", "them")
    return (
        f"{count(len(named), 'value')} of the file {is_} not PyTorch's of that name, "
        f"and all that reads {them} agrees: {few(list(named.values()), _SHOWN)}"
    )


def other_values(
    record: CaseRecord, rows: Sequence[JudgedRow], outputs: Sequence[JudgedRow]
) -> Others:
    """Return which failing values of a file that others made stand for other ones.

    Args:
        record: Of the case; it says what was not compared, and what that was made from.
        rows: Its layers, judged.
        outputs: Its outputs, judged.

    """
    taken = record.taken or {}
    if taken.get("by", ITSELF) == ITSELF or "unseen" not in taken:
        return NONE
    agree = bool(outputs) and all(judged.verdict.passed for judged in outputs)
    parents = {name: tuple(made) for name, made in taken["unseen"].items()}
    parents |= {judged.row.probe: judged.row.parents for judged in rows}
    by_sample: dict[str, dict[str, JudgedRow]] = {}
    for judged in rows:
        by_sample.setdefault(judged.row.sample, {})[judged.row.probe] = judged
    words: dict[Place, str] = {}
    reading: set[Place] = set()
    for sample, there in by_sample.items():
        made = [judged for judged in outputs if judged.row.sample == sample]
        view = _View(there, made, parents, taken["kinds"])
        found = view.others(agree=agree)
        words |= {(sample, name): _how(there[name].row.comparison) for name in found}
        reading |= {(sample, r) for name in found for r in view.readers(name)}
    return Others(words=words, agree=agree, reading=frozenset(reading))


def another_lines(
    by_case: Mapping[Key, Iterable[CaseVerdict]], names: Mapping[Key, str]
) -> Iterator[Line]:
    """Yield a run's lines about values that stand for other ones; alike share one."""
    alike: dict[str, list[str]] = {}
    for key, checks in by_case.items():
        for check in checks:
            if words := another_words(check.rows):
                alike.setdefault(words, []).append(names[key])
    for words, cases in alike.items():
        yield from wrapped(f"{few(cases)}: {words}", indent=" ", tone="quiet")


class _View:
    """One sample's values, and which of them are computed from which.

    Args:
        rows: By probe.
        outputs: The same sample's.
        parents: Every probe's nearest computed values, compared or not.
        kinds: Of compared probes that compute nothing.

    """

    def __init__(
        self,
        rows: Mapping[str, JudgedRow],
        outputs: Sequence[JudgedRow],
        parents: Mapping[str, Sequence[str]],
        kinds: Mapping[str, str],
    ) -> None:
        self._rows = rows
        self._outputs = outputs
        self._parents = parents
        self._kinds = kinds

    def others(self, *, agree: bool) -> set[str]:
        """Return the values that differ where all that reads them agrees."""
        found = {name for name in self._rows if self._may(name)}
        while wrong := {name for name in found if not self._read_well(name, found)}:
            found -= wrong
        if not agree:  # what nothing compared reads, only the outputs can vouch for
            found = {name for name in found if self.readers(name)}
        return found

    def readers(self, name: str) -> set[str]:
        """Return the nearest compared values that are computed from one."""
        if name not in self._kinds:
            return self._read.get(name, set())
        # What carries a value on is no parent of anything: who reads that reads this.
        after = self._rows[name].row.position
        made = self._sources(name)
        near = set().union(*(self._read.get(source, set()) for source in made))
        return {one for one in near if self._rows[one].row.position > after}

    @cached_property
    def _read(self) -> dict[str, set[str]]:
        read: dict[str, set[str]] = {}
        for name in self._rows:
            if name not in self._kinds and self._is_pair(name):
                for source in self._sources(name):
                    read.setdefault(source, set()).add(name)
        return read

    def _sources(self, name: str) -> set[str]:
        """Return the compared values that one is made from; others are seen through.

        A value of another shape was compared with nothing. It is a source itself, for
        it is asked what reads it, and it is seen through.
        """
        found: set[str] = set()
        seen: set[str] = set()
        waiting = list(self._parents.get(name, ()))
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in self._rows:
                found.add(one)
            if one not in self._rows or not self._is_pair(one):
                waiting += self._parents.get(one, ())
        return found

    def _is_pair(self, name: str) -> bool:
        return self._rows[name].verdict.outcome not in _UNPAIRED

    def _may(self, name: str) -> bool:
        """Whether a value differs in a way that another value could."""
        outcome = self._rows[name].verdict.outcome
        # What hangs on no input is read by name in no row, so nothing vouches for it.
        constant = self._kinds.get(name) == Kind.CONSTANT
        masks = abs(self._rows[name].row.comparison.worst_expected or 0.0) >= _MASK_END
        exceeds = outcome is Outcome.EXCEEDS and not constant and not masks
        return outcome in _UNPAIRED or exceeds

    def _read_well(self, name: str, others: set[str]) -> bool:
        """Whether all that reads a value agrees, or carries its factor on."""
        readers = self.readers(name)
        ends = [] if readers else self._outputs
        if not all(_is_spared(self._rows[name], one) for one in ends):
            return False
        for reader in readers:
            if self._rows[reader].verdict.passed:
                if _is_spared(self._rows[name], self._rows[reader]):
                    continue
                return False
            factors = self._factor(name), self._factor(reader)
            if reader not in others or any(map(math.isnan, factors)):
                return False
        if name in self._kinds:  # it is as wrong as what it carries
            made = self._sources(name)
            return all(self._rows[o].verdict.passed or o in others for o in made)
        return True

    def _factor(self, name: str) -> float:
        return scaled_by(self._rows[name].row.comparison)


def _is_spared(judged: JudgedRow, reader: JudgedRow) -> bool:
    """Whether a reader that agrees shows next to nothing of a value's error."""
    theirs, own = reader.row.comparison, judged.row.comparison
    if theirs.floor_multiple is None or own.floor_multiple is None:
        return _SPARED * reader.verdict.usage <= judged.verdict.usage
    if math.isnan(own.floor_multiple):  # of another shape, so nothing was measured
        return True
    return _SPARED * theirs.floor_multiple <= own.floor_multiple


def scaled_by(comparison: Comparison) -> float:
    """Return the one factor by which a value differs; NaN where it is not one."""
    cosine, ratio = comparison.cosine, comparison.norm_ratio
    if not math.isfinite(cosine) or not math.isfinite(ratio) or ratio == 0.0:
        return math.nan
    sine = math.sqrt(max(0.0, 1.0 - cosine * cosine))
    return math.copysign(ratio, cosine) if sine <= _OFF_THE_LINE else math.nan


def _how(comparison: Comparison) -> str:
    """Say how a value differs: its shape, its kind, a factor, or something moved."""
    if comparison.expected_shape != comparison.actual_shape:
        there, here = comparison.expected_shape, comparison.actual_shape
        return f"of shape {list(here)}, not {list(there)}"
    if comparison.count == 0 or math.isnan(comparison.rms):
        return f"{comparison.actual_dtype}, not {comparison.expected_dtype}"
    factor = scaled_by(comparison)
    if not math.isnan(factor):
        return f"scaled by {factor:.4g}"
    return "moved or folded"
