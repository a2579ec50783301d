"""One case in many versions of its runtime: what changed, as text and page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY, Outcome
from harness.core.record import OUTPUTS, CaseRecord
from harness.core.table import Column, ReportTable
from harness.core.text import FLOORS, Line, in_floors, operator, wrapped
from harness.core.whole_file import write_whole
from harness.judge.case import CaseVerdict
from harness.judge.value import max_floors
from harness.plugins.page.page import templates

Version = TypeVar("Version")

RIGHT: Final = "right"
WRONG: Final = "wrong"

_STATES: Final = {
    Outcome.CONVERT: "cannot be converted",
    Outcome.LOAD: "cannot be read",
    Outcome.RUN: "cannot be run",
    Outcome.CRASHED: "crashes",
    Outcome.TIMED_OUT: "does not end",
    Outcome.ABSENT: "cannot be installed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionResult:
    """How a case ended in one version.

    Attributes:
        question: Which file ran: a heading of the table.
        state: `RIGHT`, `WRONG`, or why nothing was compared.
        words: The error and its place, or the message of the failure.

    """

    version: str
    question: str
    state: str
    words: str

    @property
    def cell(self) -> str:
        """The state, with the error if there is one."""
        compared = self.state in {RIGHT, WRONG}
        return f"{self.state}, {self.words}" if compared and self.words else self.state

    @property
    def because(self) -> str:
        """The place of an error, or the message of a failure, to end a sentence."""
        if self.state == RIGHT or not self.words:
            return ""
        return f", {self.words}" if self.state == WRONG else f": {self.words}"


def result_of(
    version: str, question: str, record: CaseRecord, verdicts: Sequence[CaseVerdict]
) -> VersionResult:
    """Return how a case ended in a version, by its record and verdicts.

    An older version may show fewer values than the suite requires. That is no error.
    """
    passes = {Outcome.COVERAGE}
    bad = [
        verdict
        for verdict in verdicts
        if not (verdict.found.passed or verdict.found in passes)
    ]
    if not bad:
        outputs = (j for one in verdicts if one.what == OUTPUTS for j in one.rows)
        floors = max_floors(outputs)
        state, words = RIGHT, "" if floors is None else in_floors(floors)
    elif bad[0].found.measured:
        state, words = WRONG, _place(next((o for o in bad if o.first), bad[0]))
    else:
        state = _STATES.get(bad[0].found, str(bad[0].found))
        words = record.failure.message if record.failure else bad[0].reason
    return VersionResult(version=version, question=question, state=state, words=words)


def _place(verdict: CaseVerdict) -> str:
    first = verdict.first
    if first is None:
        return verdict.reason
    row = first.row
    op = f" ({operator(row.op)})" if row.op else ""
    # A file that is its own reference has no floors.
    has_floors = row.comparison.floor_multiple is not None
    error = in_floors(first.floors) if has_floors else first.verdict.reason
    return f"first at {row.module or row.probe}{op}, {error}"


def bisected(
    versions: Sequence[Version],
    states: Callable[[Sequence[Version]], Iterable[object]],
    most: int,
) -> tuple[Version, ...]:
    """Return the versions to look at, so that each change lies between neighbours.

    `states` tries some versions, and returns the state of each. At first `most` of them
    are tried, evenly spread; 2 or more.

    >>> bisected("abcdefgh", lambda some: [version > "c" for version in some], 2)
    ('a', 'b', 'c', 'd', 'h')
    """
    last, steps = len(versions) - 1, min(most, len(versions)) - 1
    spread = {round(at * last / steps) if steps else 0 for at in range(steps + 1)}
    seen: dict[int, object] = {}
    wanted = sorted(spread)
    while wanted:
        found = states([versions[at] for at in wanted])
        seen |= zip(wanted, found, strict=True)
        tried = sorted(seen)
        wanted = [
            (low + high) // 2
            for low, high in pairwise(tried)
            if high - low > 1 and seen[low] != seen[high]
        ]
    return tuple(versions[at] for at in sorted(seen))


def changes(results: Iterable[VersionResult]) -> list[str]:
    """Return a sentence for each change of a question's state, the oldest first."""
    of: dict[str, list[VersionResult]] = {}
    for one in results:
        of.setdefault(one.question, []).append(one)
    said = []
    for question, some in of.items():
        found = [
            f"{new.state} since {new.version}, {old.state} in {old.version}"
            f"{(old if new.state == RIGHT else new).because}"
            for old, new in pairwise(some)
            if old.state != new.state
        ]
        every = [f"{some[0].state} in every version that was tried{some[-1].because}"]
        said += [f"{question}: {one.rstrip('.')}." for one in found or every]
    return said


def code_of(results: Sequence[VersionResult]) -> int:
    """Return the exit code: 0 if all are right, 1 if one is wrong, else 2."""
    states = {result.state for result in results}
    if WRONG in states:
        return NO_PARITY
    return PARITY if states == {RIGHT} else CANNOT_TELL


def table_of(results: Sequence[VersionResult]) -> list[list[str]]:
    """Return the rows of the table, the headings first."""
    questions = list(dict.fromkeys(result.question for result in results))
    versions = dict.fromkeys(result.version for result in results)
    cells = {(result.version, result.question): result.cell for result in results}
    rows = [[version, *(cells[version, q] for q in questions)] for version in versions]
    return [["version", *questions], *rows]


def version_lines(results: Sequence[VersionResult]) -> Iterator[Line]:
    """Yield the table as text, then what changed, then why nothing was compared."""
    rows = table_of(results)
    if any("floors" in cell for row in rows for cell in row):
        yield Line(text=f"floors: {FLOORS}", tone="quiet")
    columns = [Column(head, cells) for head, *cells in zip(*rows, strict=True)]
    wrong = [any(cell.startswith(WRONG) for cell in row) for row in rows[1:]]
    tones = ["bad" if one else "" for one in wrong]
    yield from ReportTable(columns=columns, tones=tones).lines(indent="")
    yield Line(text="")
    for sentence in changes(results):
        yield from wrapped(sentence, indent="")


def write_versions(title: str, results: Sequence[VersionResult], path: Path) -> None:
    """Write the page: a table of the versions, and what changed.

    Raises:
        OSError: The file cannot be written.

    """
    head, *rows = table_of(results)
    page = templates().get_template("versions.html")
    text = page.render(
        title=title,
        head=head,
        rows=rows,
        changes=changes(results),
        wrong={result.version for result in results if result.state == WRONG},
        floors=FLOORS,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
