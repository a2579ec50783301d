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
from harness.core.errors import SuiteError
from harness.core.private import public_values
from harness.core.record import CaseRecord, Key
from harness.core.whole_file import write_whole
from harness.judge.case import CaseVerdict

EXPLANATIONS = "explanations"
"""The subfolder of a run for these results."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `parity explain` for one case, as text.

    Attributes:
        suite: Absolute path of the suite's file.
        measured: Digest of what was measured; see `measured_by`.
        first: The value at the first divergence.
        facts: Name and text of each fact; an empty name continues the fact before.
        toml: Lines of parity.toml that fix the case; empty where nothing fixes it.

    """

    suite: str
    case: str
    measured: str
    first: str
    command: str
    facts: tuple[tuple[str, str], ...]
    toml: str

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
    files = {stage: entry["digest"] for stage, entry in artifacts.items()}
    return digest_value(strict([record.asked, record.ran, record.inputs, files]))


def explanations_in(folder: Path) -> Mapping[Key, Explained]:
    """Return the results in a run's folder, by suite and case.

    Raises:
        SuiteError: A file is damaged.

    """
    found = {}
    for path in (folder / EXPLANATIONS).glob("*.json"):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Explained)
        except (OSError, msgspec.MsgspecError) as error:
            msg = (
                f"{path} cannot be read ({error}); delete it, then run `parity "
                "explain` again."
            )
            raise SuiteError(msg) from error
        found[one.suite, one.case] = one
    return found
