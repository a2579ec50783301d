"""Results of `parity explain`, kept in the folder of a run; the run's page shows them.

A result belongs to the files, inputs and settings that it was measured with. It is kept
only with a run that measured the same, and shown only where the case still fails at the
explained value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from harness.core.comparison import strict
from harness.core.digest import digest_value
from harness.core.private import public_values
from harness.core.received import read_json
from harness.core.record import CaseRecord, Key
from harness.core.record_form import CaseId, Name, Text
from harness.core.whole_file import write_whole
from harness.engine.run_folder import refuse_damaged
from harness.judge.case import CaseVerdict

EXPLANATIONS = "explanations"
"""The subfolder of a run for these results."""

_MOST_BYTES = 16 << 20


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `parity explain` for one case, as text.

    Attributes:
        suite: Absolute path of the suite's file.
        measured: Digest of what was measured; see `measured_by`.
        first: The value at the first divergence.
        facts: Name and text of each fact; an empty name continues the fact before.
        toml: Lines of parity.toml that fix the case; empty where nothing fixes it.

    """

    suite: Name
    case: CaseId
    measured: Name
    first: Name
    command: Text
    facts: tuple[tuple[Name, Text], ...]
    toml: Text

    def explains(self, record: CaseRecord, checks: Iterable[CaseVerdict]) -> bool:
        """Whether a run measured the same, and fails at the same value."""
        return self.measured == measured_by(record) and any(
            check.first is not None and check.first.row.probe == self.first
            for check in checks
            if not check.outcome.passed
        )

    def save(self, folder: Path) -> None:
        """Write it into a run's folder.

        Raises:
            OSError: The file cannot be written.

        """
        name = digest_value([self.suite, self.case])
        path = folder / EXPLANATIONS / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        told = public_values(msgspec.to_builtins(self))
        told |= {"suite": self.suite, "case": self.case, "first": self.first}
        write_whole(path, msgspec.json.encode(told))


def measured_by(record: CaseRecord) -> str:
    """Return a digest of the files, inputs, settings and versions of a record."""
    artifacts = record.artifacts or {}
    files = {stage: entry.get("digest", "") for stage, entry in artifacts.items()}
    return digest_value(strict([record.asked, record.ran, record.inputs, files]))


def explanations_in(folder: Path) -> Mapping[Key, Explained]:
    """Return the results in a run's folder, by suite and case.

    Raises:
        SuiteError: A file is damaged.

    """
    found = {}
    for path in (folder / EXPLANATIONS).glob("*.json"):
        with refuse_damaged(path, "delete it, then run `parity explain` again"):
            one = read_json(path, Explained, _MOST_BYTES)
        found[one.suite, one.case] = one
    return found
