"""Values of a rewritten file that differ from the values of the same name.

A tool that rewrites a graph keeps names and moves arithmetic: a bias moves into the
next operator, or a factor from the scores into q. Such a value differs, but nothing is
wrong. The values computed from it show that it is not wrong: every value in the file
that reads it, and every output, agrees with PyTorch's. The decision needs only a
record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.core.case import ITSELF
from harness.core.comparison import Comparison
from harness.core.outcome import Outcome
from harness.core.probes import ValueKind
from harness.core.record import CaseRecord
from harness.core.text import count, few
from harness.judge.reference import has_pytorch, of_reference
from harness.judge.value import UNPAIRED, JudgedRow

Place = tuple[str, str]
"""Sample and probe of a value."""

_OFF_THE_LINE = 1e-5
"""Largest sine of the angle to a multiple of the expected value. Rounding causes a
hundredth of it."""

_SHARE_SHOWN = 16.0
"""If a reader shows more than one part in this number of an error, the error is
propagated, even if a wide tolerance lets the reader pass."""

_MASK_END = 6e4
"""The same number as `align.MASK_END`; no activation is so large. A wrong mask never
counts as rewritten, because a softmax also agrees with many weaker masks."""

_ANOTHER = "another value: "


def rewritten(
    record: CaseRecord, what: str, rows: Sequence[JudgedRow]
) -> Iterator[str]:
    """Yield a line about the values of one check that pass as other values."""
    del what
    named: dict[str, str] = {}
    for judged in rows:
        if judged.another:
            named.setdefault(judged.row.probe, f"{judged.row.place} ({judged.another})")
    if named:
        is_, them = ("is", "it") if len(named) == 1 else ("are", "them")
        text = (
            f"{count(len(named), 'value')} of the file {is_} not PyTorch's of that "
            f"name, and all that reads {them} agrees: {few(list(named.values()), 3)}"
        )
        yield text if has_pytorch(record) else of_reference(text)


def others(
    record: CaseRecord, rows: Sequence[JudgedRow], outputs: Sequence[JudgedRow]
) -> tuple[JudgedRow, ...]:
    """Return judged layers, and say which failing values are other values.

    They pass if every output agrees.

    In the harness's own export, these are values of another shape alone: a runtime or
    an exporter gave the name of an operator's result to a value of another layout.

    Args:
        record: Record of the case. It has the values that were not compared, and the
            values from which those were computed.
        rows: Judged rows of the case's layers.
        outputs: Judged rows of the case's outputs.

    """
    is_own = (record.foreign or {"by": ITSELF})["by"] == ITSELF
    taken = record.foreign or record.coverage or {}
    if "unseen" not in taken:
        return tuple(rows)
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
        view = _View(there, made, parents, taken["kinds"], is_own=is_own)
        found = view.others(agree=agree)
        words |= {(sample, name): _how(there[name].row.comparison) for name in found}
        reading |= {(sample, r) for name in found for r in view.readers(name)}

    def judged_again(judged: JudgedRow) -> JudgedRow:
        place = judged.row.sample, judged.row.probe
        reads, how, verdict = place in reading, words.get(place, ""), judged.verdict
        if how and agree:
            reason = f"{_ANOTHER}{how}"
            verdict = replace(
                verdict, outcome=Outcome.ANOTHER, usage=0.0, reason=reason
            )
        return replace(judged, verdict=verdict, other=how, reads_other=reads)

    return tuple(map(judged_again, rows))


@dataclass
class _View:
    """The values of one sample, and which of them are computed from which.

    Attributes:
        rows: Judged rows of the sample, by probe.
        outputs: Judged rows of the sample's outputs.
        parents: Nearest computed values of every probe, compared or not.
        kinds: Kinds of the compared probes that compute nothing.
        is_own: Whether the harness exported the file, or it is its own reference. Then
            only a value of another shape is another value.

    """

    rows: Mapping[str, JudgedRow]
    outputs: Sequence[JudgedRow]
    parents: Mapping[str, Sequence[str]]
    kinds: Mapping[str, str]
    is_own: bool = False

    def others(self, *, agree: bool) -> set[str]:
        """Return the differing values whose readers all agree."""
        found = {name for name in self.rows if self._may(name)}
        while wrong := {name for name in found if not self._read_well(name, found)}:
            found -= wrong
        if not agree:  # without readers only the outputs could prove it
            found = {name for name in found if self.readers(name)}
        return found

    def readers(self, name: str) -> set[str]:
        """Return the nearest compared values that are computed from a value."""
        if name not in self.kinds:
            return self._read.get(name, set())
        # A probe that only passes a value on is no parent. Its readers are the later
        # readers of the value that it passes on.
        after = self.rows[name].row.position
        made = self._sources(name)
        near = set().union(*(self._read.get(source, set()) for source in made))
        return {one for one in near if self.rows[one].row.position > after}

    @cached_property
    def _read(self) -> dict[str, set[str]]:
        read: dict[str, set[str]] = {}
        for name in self.rows:
            if name not in self.kinds and self._is_pair(name):
                for source in self._sources(name):
                    read.setdefault(source, set()).add(name)
        return read

    def _sources(self, name: str) -> set[str]:
        """Return the nearest compared values from which a value is computed.

        A value that was not compared is replaced by its own sources. A value of another
        shape has no comparison. It is a source itself, because its readers are checked,
        and its own sources are added.
        """
        found: set[str] = set()
        seen: set[str] = set()
        waiting = list(self.parents.get(name, ()))
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one in self.rows:
                found.add(one)
            if one not in self.rows or not self._is_pair(one):
                waiting += self.parents.get(one, ())
        return found

    def _is_pair(self, name: str) -> bool:
        return self.rows[name].verdict.outcome not in UNPAIRED

    def _may(self, name: str) -> bool:
        """Whether a value differs in a way that another value could."""
        outcome = self.rows[name].verdict.outcome
        if self.is_own:
            return outcome is Outcome.SHAPE
        # No row names a constant as its parent, so no reader can show that it is right.
        constant = self.kinds.get(name) == ValueKind.CONSTANT
        masks = abs(self.rows[name].row.comparison.worst_expected or 0.0) >= _MASK_END
        exceeds = outcome is Outcome.EXCEEDS and not constant and not masks
        return outcome in UNPAIRED or exceeds

    def _read_well(self, name: str, others: set[str]) -> bool:
        """Whether all readers of a value agree, or pass its factor on."""
        readers = self.readers(name)
        ends = [] if readers else self.outputs
        if not all(_shows_little(self.rows[name], one) for one in ends):
            return False
        for reader in readers:
            if self.rows[reader].verdict.passed:
                if _shows_little(self.rows[name], self.rows[reader]):
                    continue
                return False
            factors = self._factor(name), self._factor(reader)
            if reader not in others or any(map(math.isnan, factors)):
                return False
        if name in self.kinds:  # it is as wrong as the value that it passes on
            made = self._sources(name)
            return all(self.rows[o].verdict.passed or o in others for o in made)
        return True

    def _factor(self, name: str) -> float:
        return scaled_by(self.rows[name].row.comparison)


def _shows_little(judged: JudgedRow, reader: JudgedRow) -> bool:
    """Whether an agreeing reader shows almost nothing of a value's error."""
    theirs, own = reader.row.comparison, judged.row.comparison
    if theirs.floor_multiple is None or own.floor_multiple is None:
        return _SHARE_SHOWN * reader.verdict.usage <= judged.verdict.usage
    if math.isnan(own.floor_multiple):  # another shape, so nothing was measured
        return True
    return _SHARE_SHOWN * theirs.floor_multiple <= own.floor_multiple


def scaled_by(comparison: Comparison) -> float:
    """Return the factor by which a value differs; NaN if no single factor fits."""
    cosine, ratio = comparison.cosine, comparison.norm_ratio
    if not math.isfinite(cosine) or not math.isfinite(ratio) or ratio == 0.0:
        return math.nan
    sine = math.sqrt(max(0.0, 1.0 - cosine * cosine))
    return math.copysign(ratio, cosine) if sine <= _OFF_THE_LINE else math.nan


def _how(comparison: Comparison) -> str:
    """Return how a value differs: in shape, in kind, by a factor, or moved."""
    if comparison.expected_shape != comparison.actual_shape:
        there, here = comparison.expected_shape, comparison.actual_shape
        return f"of shape {list(here)}, not {list(there)}"
    if comparison.count == 0 or math.isnan(comparison.rms):
        return f"{comparison.actual_dtype}, not {comparison.expected_dtype}"
    factor = scaled_by(comparison)
    if not math.isnan(factor):
        return f"scaled by {factor:.4g}"
    return "moved or folded"
