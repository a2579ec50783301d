"""The table of risk: a row for each component, a column for each way to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.core.end_to_end import MIXED
from harness.core.outcome import Outcome
from harness.core.record import CaseRecord
from harness.core.text import share
from harness.judge.case import is_loss
from harness.report.run_facts import BAD, QUIET, RunFacts

CLOSE = 0.8
"""Used share of a limit from which a case that agrees is called close to it."""

KINDS: Mapping[str, tuple[str, str]] = {
    "good": ("✓", "agrees: the largest used share of a limit"),
    "close": ("✓", f"agrees, and uses {share(CLOSE)} of its limit or more"),
    "gap": ("◐", "known gap: fails as known_gaps.toml says"),
    "loss": ("▼", "lossy variant: loses more precision than its bounds allow"),
    "bad": ("✗", "defect"),
    "quiet": ("–", "skipped"),
}
"""Kind of a cell to its sign and its meaning."""

_SEVERITY = ("quiet", "good", "close", "gap", "loss", "bad")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One case in the table.

    Attributes:
        kind: A key of `KINDS`.
        words: A share of its limit, or how the case ended.
        usage: The largest used share of a limit.
        target: Anchor of the failure, or of the component.

    """

    kind: str
    words: str
    usage: float
    case: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Every case by component and way to run it.

    Attributes:
        ways: Pairs of a runtime and a variant, left to right.
        rows: Pairs of a component and its cells by way; a way not tested has none.
        kinds: Kinds of cells that the table has.

    """

    ways: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Mapping[tuple[str, str], Cell]]]
    kinds: Sequence[str]

    @property
    def runtimes(self) -> dict[str, int]:
        """Each runtime, and the number of its columns."""
        names = [backend for backend, _ in self.ways]
        return {name: names.count(name) for name in names}


def matrix_of(
    facts: RunFacts, failing: Mapping[str, str], sections: Mapping[str, str]
) -> Matrix:
    """Return the table.

    `failing` has the anchor of each failing case's failure, by the case's name.
    `sections` has that of each component or pipeline.
    """
    rows: dict[str, dict[tuple[str, str], Cell]] = {name: {} for name in sections}
    ways: dict[str, set[str]] = {}
    for record in facts.requested:
        name = facts.names[record.key]
        subject = facts.subject(record)
        # Mixed pipelines have many ways, and each belongs to one pipeline.
        variant = "worst" if record.backend == MIXED else record.variant
        ways.setdefault(record.backend, set()).add(variant)
        kind, words, usage = _cell(facts, record)
        target = failing.get(name) or sections[subject]
        cell = Cell(kind=kind, words=words, usage=usage, case=name, target=target)
        kept = rows[subject].get((record.backend, variant), cell)
        rows[subject][record.backend, variant] = max(kept, cell, key=_severity)
    used = {cell.kind for cells in rows.values() for cell in cells.values()}
    return Matrix(
        ways=[
            (backend, variant)
            for backend, variants in ways.items()
            for variant in sorted(variants, key=lambda name: (name != "fp32", name))
        ],
        rows=list(rows.items()),
        kinds=[kind for kind in KINDS if kind in used],
    )


def _severity(cell: Cell) -> tuple[int, float]:
    return _SEVERITY.index(cell.kind), cell.usage


def _cell(facts: RunFacts, record: CaseRecord) -> tuple[str, str, float]:
    """Return a case's kind, its words, and the largest used share of a limit."""
    checks = facts.checks[record.key]
    state = facts.state(record)
    worst = max(check.usage for check in checks)
    if state == QUIET:
        return "quiet", "skipped", worst
    if state == BAD:
        kind = "loss" if is_loss(checks) else "bad"
        found = next(check.outcome for check in checks if not check.outcome.passed)
        words = share(worst) if found is Outcome.EXCEEDS else found.value
        return kind, words, worst
    if facts.by_gap(record):
        return "gap", "known gap", worst
    return "close" if worst >= CLOSE else "good", share(worst), worst
