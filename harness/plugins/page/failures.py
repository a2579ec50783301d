"""Each failure of a run: where, how far off along the depth, and what to do next."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.core.record import LAYERS
from harness.core.text import of_limit
from harness.judge.case import is_loss
from harness.plugins.page.charts import thinned
from harness.report.divergence import Divergence, divergences
from harness.report.explained import Explained
from harness.report.run_facts import RunFacts
from harness.report.tables import worst_rows

_MOST_POINTS = 300
_LEAST, _MOST = 1e-2, 1e7
"""Shares of the limit at the bottom of a sketch, and the largest one at its top."""


@dataclass(frozen=True, kw_only=True)
class NextCommand:
    """The purpose of a command or of an entry of a file, and a text to copy.

    A folded one is hidden until the reader opens it.
    """

    words: str
    text: str
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class FailureSketch:
    """A small plot of one case: each error as a share of its own limit, log scale.

    Its coordinates run from 0 to 100 in both directions, from the top left.

    Attributes:
        line: Path of the errors along the depth.
        local: Path of a dot for each operator's local error; empty if not measured.
        first: Place of the first divergence.
        top: The largest error, as a share of its limit, as text.

    """

    line: str
    local: str
    limit: float
    first: float
    top: str
    alt: str


@dataclass(frozen=True, kw_only=True)
class FailedCase:
    """A failure as the page shows it.

    Attributes:
        loss: Whether a variant that loses precision by design lost too much of it.
        words: The failure in one sentence.
        sketch: The error along the depth; None if layers were not compared.
        explained: The result of `parity explain`; None if it has not run.

    """

    id: str
    found: Divergence
    loss: bool
    words: str
    steps: Sequence[NextCommand]
    sketch: FailureSketch | None
    explained: Explained | None

    @property
    def subject(self) -> str:
        """Name of its component or pipeline."""
        way = f"/{self.found.record.backend}/{self.found.record.variant}"
        return self.found.case.removesuffix(way)


def failures_of(facts: RunFacts) -> list[FailedCase]:
    """Return every failure of a run, the clearest first, defects before losses."""
    found = sorted(divergences(facts), key=lambda one: is_loss(one.checks))
    return [
        FailedCase(
            id=f"failure-{at}",
            found=one,
            loss=is_loss(one.checks),
            words=_sentence(one),
            steps=tuple(_steps(facts, one, known)),
            sketch=_sketch(one),
            explained=known,
        )
        for at, one in enumerate(found)
        for known in [_explained(facts, one)]
    ]


def _explained(facts: RunFacts, divergence: Divergence) -> Explained | None:
    known = facts.explained.get(divergence.record.key)
    return (
        known
        if known and known.explains(divergence.record, divergence.checks)
        else None
    )


def _sentence(divergence: Divergence) -> str:
    how = divergence.facts[0][0].rstrip(".") if divergence.facts else ""
    if not divergence.place:
        return f"{divergence.outcome}: {how}." if how else f"{divergence.outcome}."
    place = (
        f"{divergence.lead} {divergence.place} ({divergence.op})"
        if divergence.op
        else f"at output {divergence.place}"
    )
    return f"first diverges {place}: {how}."


def _steps(
    facts: RunFacts, divergence: Divergence, known: Explained | None
) -> Iterator[NextCommand]:
    steps, record = facts.next_steps, divergence.record
    if record.rows:
        if known and known.toml:
            yield NextCommand(words="write this into parity.toml", text=known.toml)
        elif known is None and divergence.can_be_explained:
            words = "find the cause, and the setting that fixes it"
            yield NextCommand(
                words=words, text=steps.explain(record.case, record.suite)
            )
        yield NextCommand(words="list every value", text=steps.show(divergence.case))
    elif not record.is_traced:  # a trace has its own sentence of what to do
        text = steps.again(record.case, record.suite)
        yield NextCommand(words="run this case again", text=text)
    gaps = [
        f"[[gap]]\ncase = {json.dumps(check.id)}\noutcome = {json.dumps(check.found)}\n"
        'why = ""  # say why; an empty reason is refused\n'
        for check in divergence.checks
        if not check.outcome.passed and check.gap is None
    ]
    if gaps:
        words = "accept it as a known gap, in known_gaps.toml"
        yield NextCommand(words=words, text="\n".join(gaps), folded=True)


def _sketch(divergence: Divergence) -> FailureSketch | None:
    check = next((check for check in divergence.checks if check.what == LAYERS), None)
    if check is None or check.first is None:
        return None
    rows = worst_rows([check])
    at = {judged.row.probe: number for number, judged in enumerate(rows)}
    shares = [judged.verdict.usage for judged in rows]
    kept = thinned(shares, _MOST_POINTS)
    local = [
        judged
        for judged in sorted(check.alone, key=lambda judged: judged.row.position)
        if judged.row.probe in at and judged.verdict.usage
    ]
    every = (*shares, *(judged.verdict.usage for judged in local))
    top = min(max([2.0, *filter(math.isfinite, every)]) * 1.5, _MOST)

    def place(number: int, usage: float) -> str:
        share = min(max(usage, _LEAST), top)
        height = 100 - 100 * math.log(share / _LEAST) / math.log(top / _LEAST)
        return f"{100 * number / max(1, len(rows) - 1):.1f} {height:.1f}"

    return FailureSketch(
        line="M" + "L".join(place(number, shares[number]) for number in kept),
        local="".join(f"M{place(at[j.row.probe], j.verdict.usage)}h0" for j in local),
        limit=float(place(0, 1.0).split()[1]),
        first=float(place(at[check.first.row.probe], 1.0).split()[0]),
        top=of_limit(max(shares)),
        alt=(
            f"Error of {divergence.case} along the depth, {len(rows):,} values; the "
            f"first out of its limit is {divergence.place}, the largest is "
            f"{of_limit(max(shares))}."
        ),
    )
