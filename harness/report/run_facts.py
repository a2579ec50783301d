"""A finished run and its verdicts, as every report reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.end_to_end import IMAGE, LATENTS, MIXED, WHATS
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Key, labels
from harness.core.settings import NextSteps
from harness.core.table import ReportTable
from harness.core.text import Line, count
from harness.judge.case import CaseVerdict, skipped

if TYPE_CHECKING:
    from harness.report.explained import Explained

_NEXT = NextSteps()

_RAN = {"backend", "version", "device", "threads", "precision"}

GOOD, BAD, QUIET = "good", "bad", "quiet"
"""States of a case: it agrees, does not agree, or was skipped."""


@dataclass(frozen=True, kw_only=True)
class Since:
    """How a run differs from its baseline.

    Attributes:
        before: Id of the baseline's run.
        tells: Whether any check could be compared.
        worse: Whether a difference counts against the run.
        lines: The differences and `conditions`, for a screen.
        conditions: Totals, and what else differed: versions, files, the machine.
        reasons: Sentences about differences that count against the run. Each has the
            name of the result that it begins with; empty for a cause of several.
        table: Every difference, the worst first; None where nothing changed.

    """

    before: str
    tells: bool
    worse: bool
    lines: Sequence[Line]
    conditions: Sequence[Line]
    reasons: Sequence[tuple[str, str]]
    table: ReportTable | None


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A finished run and its verdicts.

    Attributes:
        exit_code: Exit code: 0 parity, 1 no parity, 2 could not tell.
        about: The run's environment, command and suites, as ``report.json`` has them.
        folder: The run's folder, which holds its pictures.
        stale: Complaints about files that describe the run.
        required: Backends that may not be skipped.
        since: Differences from the baseline; None without a baseline.
        follows: The command that follows a whole run that agrees, and what it does;
            empty if none is known.
        next_steps: Options for commands that go on with the run.
        explained: Results of `parity explain`, by suite and case.

    """

    run: str
    records: Sequence[CaseRecord]
    verdicts: Sequence[CaseVerdict]
    exit_code: int
    about: Mapping[str, Any]
    folder: Path
    stale: Sequence[str] = ()
    required: Collection[str] = ()
    since: Since | None = None
    follows: str = ""
    next_steps: NextSteps = _NEXT
    explained: Mapping[Key, Explained] = field(default_factory=dict)

    @cached_property
    def names(self) -> dict[Key, str]:
        """The name of each case in this run."""
        return labels(self.records)

    @cached_property
    def checks(self) -> dict[Key, list[CaseVerdict]]:
        """The verdicts of each case."""
        checks: dict[Key, list[CaseVerdict]] = {}
        for verdict in self.verdicts:
            checks.setdefault(verdict.key, []).append(verdict)
        return checks

    @cached_property
    def requested(self) -> list[CaseRecord]:
        """Records of the requested cases, fp32 first and mixed pipelines last."""
        return sorted(
            (record for record in self.records if record.key in self.checks),
            key=lambda record: (
                record.backend == MIXED,
                record.variant != "fp32",
                record.case,
            ),
        )

    @cached_property
    def compared(self) -> list[CaseRecord]:
        """Records of the requested cases that were not skipped."""
        return [record for record in self.requested if self.state(record) != QUIET]

    def state(self, record: CaseRecord) -> str:
        """Return whether a case agrees, does not, or was skipped."""
        checks = self.checks[record.key]
        if any(skipped(check, self.required) for check in checks):
            return QUIET
        return GOOD if all(check.outcome.passed for check in checks) else BAD

    def both(self, record: CaseRecord) -> tuple[CaseVerdict | None, CaseVerdict | None]:
        """Return a case's check of values in between, and of what it gives in the end.

        These are layers and outputs; of a pipeline, latents and pictures.
        """
        checks = {check.what: check for check in self.checks[record.key]}
        return (
            checks.get(LAYERS) or checks.get(LATENTS),
            checks.get(OUTPUTS) or checks.get(IMAGE),
        )

    def subject(self, record: CaseRecord) -> str:
        """Return the name of a case's component or pipeline."""
        return self.names[record.key].removesuffix(
            f"/{record.backend}/{record.variant}"
        )

    def by_gap(self, record: CaseRecord) -> bool:
        """Whether a case passes only because of a known gap."""
        outcomes = {check.outcome for check in self.checks[record.key]}
        return self.state(record) == GOOD and Outcome.GAP in outcomes

    def skips(self) -> dict[str, int]:
        """Return the reasons for skipped cases, and how many cases each explains."""
        reasons: dict[str, set[Key]] = {}
        for verdict in self.verdicts:
            if skipped(verdict, self.required):
                reasons.setdefault(verdict.reason, set()).add(verdict.key)
        return {reason: len(keys) for reason, keys in reasons.items()}

    def is_pipeline(self, record: CaseRecord) -> bool:
        """Whether a case is a pipeline case; the checks tell, also where it failed."""
        return any(check.what in WHATS for check in self.checks[record.key])

    def ran(self) -> Iterator[str]:
        """Yield each runtime that ran, with its version, device and settings."""
        seen: dict[str, None] = {}
        for record in self.compared:
            ran = record.ran
            if ran and ran.keys() >= _RAN:  # else nothing but PyTorch ran
                threads = count(int(ran["threads"]), "thread")
                name = f"{ran['backend']} {ran['version']} on {ran['device'].upper()}"
                detail = dict(ran.get("detail", ()))
                target, api = detail.get("target", ""), detail.get("api", "")
                place = f" of target {target}" if target else ""
                facts = f"{threads}, precision {ran['precision']}"
                facts += f", api {api}" if api else ""
                seen[f"{name}{place} ({facts})"] = None
        yield from seen


def least_sqnr(check: CaseVerdict | None) -> float | None:
    """Return the least signal to error ratio of a check's values, in dB; or None."""
    rows = check.rows if check else ()
    return min((judged.row.comparison.sqnr_db for judged in rows), default=None)
