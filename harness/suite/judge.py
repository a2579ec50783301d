"""Judge records by a suite's tolerances and known gaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.case import GIVEN, Case
from harness.core.end_to_end import PAIRS, Tested
from harness.core.errors import SuiteError
from harness.core.record import CaseRecord
from harness.core.settings import Settings
from harness.core.toml_file import TomlFile
from harness.judge.case import CaseVerdict, judge_case
from harness.judge.known_gaps import Gap, gaps_of, load_gaps
from harness.judge.policy import Policy
from harness.judge.tolerance import parse_changes
from harness.suite.stale import refuse_stale

if TYPE_CHECKING:
    from harness.suite.suite import Suite

OneCase = TypeVar("OneCase", bound=Tested)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A suite's tolerances and known gaps, which judge its records."""

    policy: Policy
    gaps: tuple[Gap, ...]
    min_coverage: float

    @classmethod
    def of(cls, suite: Suite, settings: Settings) -> Judge:
        """Read the files beside a suite, and apply the command line's changes.

        Raises:
            SuiteError: A file is missing or wrong.
            SpecError: A change names no bound or tier.

        """
        policy = Policy.load(suite.tolerances_path)
        refuse_stale(suite, policy)
        policy = _changed(policy, settings)
        gaps = load_gaps(suite.gaps_path) if suite.gaps_path.is_file() else ()
        return cls(policy=policy, gaps=gaps, min_coverage=suite.limits.coverage)

    @classmethod
    def recorded(
        cls, path: Path, told: Mapping[str, Any], settings: Settings
    ) -> Judge | None:
        """Return the judge by what a run keeps of its suite; None if it keeps nothing.

        No file of the suite is opened. `told` are the facts about the suite in the
        report at `path`: the texts ``tolerances`` and ``known_gaps``, and the share
        ``coverage``.

        Raises:
            SuiteError: A text is damaged.
            SpecError: A change names no bound or tier.

        """
        if not {"tolerances", "known_gaps", "coverage"} <= told.keys():
            return None
        policy, gaps = (
            TomlFile.parsed(path / f"{name}.toml", told[name])
            for name in ("tolerances", "known_gaps")
        )
        return cls(
            policy=_changed(Policy.of(policy), settings),
            gaps=gaps_of(gaps),
            min_coverage=told["coverage"],
        )

    def require(self, checks: Iterable[tuple[Tested, str]]) -> None:
        """Refuse checks without a tolerance, before anything is run.

        Raises:
            SuiteError: Some checks have no tolerance, or one that cannot be measured.

        """
        checks = [*checks]
        for case, _ in checks:
            self.asking(case)
        self.policy.require(
            ((case.subject, case.backend, case.how), what, _made_of(case))
            for case, what in checks
            if what != PAIRS  # the pipeline's own table has its margin
        )

    def asking(self, case: OneCase) -> OneCase:
        """Return a case that measures PyTorch's own error where a tolerance needs it.

        Raises:
            SuiteError: A file that is its own reference has no PyTorch model.

        """
        within = self.policy.within((case.subject, case.backend, case.how))
        if within and isinstance(case, Case) and case.component.recipe == GIVEN:
            msg = (
                f'{self.policy.path}: {case.id} is bounded within = "{within[0]}", and '
                f"{case.subject} has no PyTorch model; state another bound."
            )
            raise SuiteError(msg)
        return replace(case, within=within)  # type: ignore[type-var]  # a dataclass too

    def check(self, record: CaseRecord, what: str) -> CaseVerdict:
        """Judge one check of a record."""
        return judge_case(
            record,
            what,
            self.policy,
            self.gaps,
            min_coverage=self.min_coverage,
            today=datetime.now(tz=UTC).date(),
        )


def _changed(policy: Policy, settings: Settings) -> Policy:
    """Return a policy with the tier and the bounds of the command line."""
    if settings.tier:
        policy = policy.with_tier(settings.tier)
    if settings.changes:
        policy = policy.with_changes(parse_changes(settings.changes))
    return policy


def _made_of(case: Tested) -> tuple[str, ...]:
    """Return the built-in variants of a case's deployed files."""
    return tuple(f"{part.backend}.{part.variant.kind}" for part in case.parts)
