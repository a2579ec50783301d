"""A tuning as proposals read it: the records of a run on many inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.case import VARIED
from harness.core.environment import installed
from harness.core.errors import SuiteError
from harness.core.record import CaseRecord
from harness.core.record_form import TriedInput
from harness.engine.finished_run import LAST, load_report
from harness.engine.run_folder import CASES, REPORT, RunFolder
from harness.plugins.tune.draws import REALISTIC

_EARLIER = "tuning.json"
"""The file of a tuning of an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The measurements of a tuning.

    Attributes:
        id: The name of its run, which begins with its date.
        suite: Absolute path of the suite.
        versions: Versions of PyTorch and of each runtime.
        cases: The record of each case that was compared on any input.
        failed: By case, why it did not run on all inputs.

    """

    id: str
    suite: str
    versions: Mapping[str, str]
    cases: Mapping[str, CaseRecord] = field(repr=False)
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def date(self) -> str:
        """The day, as ``2026-11-21``."""
        return self.id.partition("T")[0]


def usage_of(record: CaseRecord) -> dict[str, float]:
    """Return the part of the limits that each input uses, by sample id."""
    return {one.sample.id: one.usage for one in record.tried if one.usage is not None}


def worst_of(record: CaseRecord) -> TriedInput:
    """Return the input that uses most of the limits; there must be one."""
    usage = usage_of(record)
    worst = max(usage, key=usage.__getitem__)
    return next(one for one in record.tried if one.sample.id == worst)


def draws_of(record: CaseRecord, *, layers: bool) -> int:
    """Return the number of independent draws, of the family with the fewest."""
    compared = [one for one in record.tried if one.usage is not None]
    counts = Counter(
        one.sample.profile
        for one in compared
        if one.why == "independent" and (one.sample.layers or not layers)
    )
    # A tuning that was stopped may not have begun with the second family.
    own = {one.sample.profile for one in compared if one.why == "suite"}
    families = (REALISTIC, VARIED) if own - {REALISTIC} else (REALISTIC,)
    return min(counts[family] for family in families)


def load_tuning(runs: Path, name: str) -> Tuning:
    """Read a tuning by id or by path; ``last`` is the newest.

    One that was killed is read as far as it came.

    Raises:
        SuiteError: There is no tuning of that name, or it cannot be read.

    """
    folder = _find(runs, name)
    packages: Mapping[str, str] = installed(("torch",))
    if (folder / REPORT).is_file():
        report = load_report(runs, str(folder / REPORT))
        records = list(report.records.values())
        packages = report.versions
    elif (folder / _EARLIER).is_file():
        msg = (
            f"{folder / _EARLIER} is of an earlier version, which kept tunings in "
            "another form; run `parity tune` again."
        )
        raise SuiteError(msg)
    else:
        records = list(RunFolder(path=folder).records().values())
    failed = {one.case: one.failure.message for one in records if one.failure}
    cases = {record.case: record for record in records if usage_of(record)}
    if not cases:
        none = f"no case of {folder} ran on many inputs."
        reasons = (f"{case}: {why}" for case, why in failed.items())
        msg = f"nothing could be tuned: {next(reasons, none)}"
        raise SuiteError(msg)
    ran = [record.ran for record in records if record.ran]
    versions = {one.get("backend", ""): one.get("version", "") for one in ran}
    return Tuning(
        id=folder.absolute().name,
        suite=records[0].suite,
        versions={"torch": packages.get("torch", ""), **versions},
        cases=cases,
        failed=failed,
    )


def _find(runs: Path, name: str) -> Path:
    found = sorted(folder for folder in runs.glob("*") if _is_tuning(folder))
    newest = found[-1:] if name == LAST else []
    for path in (Path(name), runs / name, *newest):
        folder = path.parent if path.is_file() else path
        if _is_tuning(folder):
            return folder
    names = ", ".join(path.name for path in found[-3:]) or "none"
    msg = (
        f"there is no tuning {name!r} under {runs}; the newest are {names}. "
        "`parity tune` makes one."
    )
    raise SuiteError(msg)


def _is_tuning(folder: Path) -> bool:
    return any((folder / name).exists() for name in (REPORT, CASES, _EARLIER))
