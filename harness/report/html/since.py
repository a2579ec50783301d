"""What changed since a baseline that the run was held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.html.table import Column, Table, Words


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One thing that is not as it was.

    Attributes:
        how: ``worse``, ``better``, ``new``, ``gone`` or ``incomparable``.
        name: Case, and what of it.
        words: How, with numbers.

    """

    how: str
    name: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Since:
    """A run held against an earlier one.

    Attributes:
        before: Name of the earlier one.
        blocks: Whether any of it speaks against the later run.
        changes: What is not as it was, the worst first.
        totals: How much went which way, in words.

    """

    before: str
    blocks: bool
    changes: Sequence[Changed]
    totals: Sequence[str]

    @property
    def table(self) -> Table | None:
        """Every change, to sort and filter; None where nothing changed."""
        if not self.changes:
            return None
        ways, names, words = Words(), Words(), Words()
        rows = [
            [ways.at(one.how), names.at(one.name), words.at(one.words)]
            for one in self.changes
        ]
        return Table(
            id="since-table",
            caption=f"What is not as it was in {self.before}, the worst first",
            columns=(
                Column(title="change", words=ways.all),
                Column(title="of", words=names.all),
                Column(title="how", words=words.all),
            ),
            rows=rows,
            unit="change",
        )
