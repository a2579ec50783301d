"""Reviewed runs with which later runs are compared: one small file for each suite.

    reports/baselines/digits.json.xz

The file says who accepted which run, when and why. It also holds that run's report with
fewer columns and shorter numbers: a report of 50 MB becomes well under one, which a
repository can keep. The same run, accepted with the same words, gives the same bytes.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path

from msgspec import structs

from harness.core.comparison import Comparison
from harness.core.end_to_end import PAIRS
from harness.core.environment import printed
from harness.core.errors import ParityError
from harness.core.outcome import Outcome
from harness.core.private import from_tilde
from harness.core.received import read_bytes, unpacked
from harness.core.record import (
    ISOLATED,
    READ,
    SELF,
    CaseRecord,
    Row,
    suite_prefixes,
)
from harness.core.text import count, few
from harness.core.whole_file import write_whole, writing
from harness.engine.finished_run import Report, decoded, of_form
from harness.engine.report_form import BaselineForm
from harness.engine.run_folder import compact, refuse_damaged
from harness.plugins.release.pairs import COMPARED
from harness.report.times import is_disturbed

SCHEMA = 2
SUFFIX = ".json.xz"

_LONGEST = 100
_NAME = re.compile(rf"\w[\w .+@-]{{0,{_LONGEST - 1}}}")

MOST_BYTES = 256 << 20
"""Largest size of a baseline, unpacked; 65,000 rows have 9 MB."""

DIGITS = 3
"""Significant digits of an error: half a percent, while a tenth counts as a change."""

REFERENCE_DIGITS = 6
"""Significant digits of numbers that identify a reference, which differ by rounding."""

_KEPT = (
    *("case", "component", "backend", "variant", "suite"),
    *("asked", "inputs", "made_of", "peak_bytes"),
)
_KEPT_OF_ROW = ("sample", "what", "probe", "module")

_NO_FAILURE = {o.value for o in Outcome if o.passed} | {Outcome.UNAVAILABLE.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The acceptance of a run as the one with which later runs are compared.

    Attributes:
        who: Name of the person who accepts it.
        why: The person's reason; may be empty where nothing fails.
        failing: Checks that fail in the run and were accepted nevertheless.

    """

    who: str
    when: date
    why: str = ""
    failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A run that was accepted."""

    name: str
    accepted: Accepted
    report: Report


def accept(
    run: Report,
    *,
    name: str,
    who: str,
    why: str,
    when: date,
    there: Baseline | None = None,
) -> Baseline:
    """Return a run as a baseline of this name, accepted as `Accepted` says.

    It may replace the baseline `there`.

    Raises:
        ParityError: Nobody accepts the run, it has nothing to accept, or checks fail or
            are missing and no reason is given.

    """
    # The name may be that of a folder in a run of somebody else.
    if Path(name).name != name or not _NAME.fullmatch(name):
        msg = (
            f"a baseline is a file of its folder, and {name[:_LONGEST]!r} is no file's "
            "name; give another with --name."
        )
        raise ParityError(msg)
    if not who.strip():
        msg = (
            "nobody accepts this baseline: git has no user.name here; say who does "
            'with --who "NAME".'
        )
        raise ParityError(msg)
    if not any(record.rows for record in run.records.values()):
        msg = f"run {run.id} compared nothing, so it can be no baseline."
        raise ParityError(msg)
    failing = tuple(
        name for name, end in run.checks.items() if end.outcome not in _NO_FAILURE
    )
    for doubt in _doubts(run, failing, there):
        if not why.strip():
            msg = f'{doubt}, or say why that is accepted with --why "REASON".'
            raise ParityError(msg)
    return Baseline(
        name=name,
        accepted=Accepted(who=who.strip(), when=when, why=why.strip(), failing=failing),
        report=_shortened(run),
    )


def _doubts(
    run: Report, failing: Sequence[str], there: Baseline | None
) -> Iterator[str]:
    """Yield each reason why the run should be no baseline, and how to fix it."""
    if failing:
        verb = "check fails" if len(failing) == 1 else "checks fail"
        yield f"{len(failing):,} {verb} in run {run.id}: {few(failing)}. Fix them"
    tier = [f"--tier {run.about['tier']}"] if run.about["tier"] else []
    judged_by = [*tier, *(f"--set {change}" for change in run.about["changes"])]
    if judged_by:
        yield (
            f"run {run.id} was judged by {' '.join(judged_by)} and not by its "
            "suite's own tolerances. Run again without"
        )
    if not run.about["whole"]:
        yield (
            f"run {run.id} is of a part of its suite, and the gate would not miss "
            "the rest. Run the whole suite"
        )
    disturbed = [
        benchmark.case
        for benchmark in run.benchmarks
        if is_disturbed(benchmark.withheld)
    ]
    if disturbed:
        yield (
            f"{count(len(disturbed), 'time')} of run {run.id} "
            f"{'was' if len(disturbed) == 1 else 'were'} taken beside other work, and "
            f"the gate would judge none against it: {few(disturbed)}. Time it again "
            "(`parity bench`) on a quiet machine"
        )
    gone = [] if there is None else _checks(there.report) - _checks(run)
    if gone:
        yield (
            f"run {run.id} has not {count(len(gone), 'check')} of the baseline "
            f"that is there: {few(sorted(gone))}. Run the whole suite"
        )


def _checks(run: Report) -> set[str]:
    """Return the checks of a run whose runtime was there."""
    return {
        name for name, end in run.checks.items() if end.outcome != Outcome.UNAVAILABLE
    }


def _shortened(run: Report) -> Report:
    """Return a run with only the facts with which later runs are compared.

    A suite's path means nothing on another machine. The folder's name replaces it where
    there are several suites; an empty text replaces it where there is one.
    """
    prefixes = suite_prefixes(run.suites)
    named = run.with_suites(
        {path: prefixes[path].removesuffix(":") for path in prefixes}
    )
    kept = ("environment", "tier", "changes", "whole")
    return replace(
        named,
        records={key: _short_record(record) for key, record in named.records.items()},
        about={name: run.about[name] for name in kept},
    )


def _short_record(record: CaseRecord) -> CaseRecord:
    counts = record.coverage and {
        name: value for name, value in record.coverage.items() if isinstance(value, int)
    }
    files = record.artifacts and {
        stage: {"size_bytes": entry["size_bytes"]}
        for stage, entry in record.artifacts.items()
    }
    # Later runs are compared with the errors of these pairs, and not with the pictures.
    pairs = (record.pipeline or {}).get(PAIRS)
    return CaseRecord(
        **{name: getattr(record, name) for name in _KEPT},
        coverage=counts,
        artifacts=files,
        pipeline=pairs and {PAIRS: {name: pairs[name] for name in COMPARED}},
        rows=tuple(
            Row(
                **{name: getattr(row, name) for name in _KEPT_OF_ROW},
                comparison=_short_comparison(row.comparison),
            )
            for row in record.rows
            if row.what not in {ISOLATED, *READ.values(), *SELF}
        ),
    )


def _short_comparison(full: Comparison) -> Comparison:
    floor = full.floor
    return Comparison(
        expected_shape=full.expected_shape,
        nonfinite_mismatched=full.nonfinite_mismatched,
        expected_rms=_rounded(full.expected_rms, REFERENCE_DIGITS),
        rms=_rounded(full.rms),
        required_atol=tuple(map(_rounded, full.required_atol)),
        floor_rms=None if floor is None else _rounded(floor),
    )


def _rounded(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits - 1}e}")


def git_user() -> str:
    """Return the name of git's user here; empty if there is none."""
    return printed("git", "config", "user.name")


def save_baseline(baseline: Baseline, folder: Path) -> Path:
    """Write a baseline in one move.

    Raises:
        ParityError: The folder is not writable.

    """
    run = baseline.report
    data = {
        **run.about,
        "schema": SCHEMA,
        "accepted": asdict(baseline.accepted) | {"when": str(baseline.accepted.when)},
        "id": run.id,
        "suites": [
            {"path": path, "files": files} for path, files in run.suites.items()
        ],
        "required": run.required,
        "verdicts": [
            {"suite": suite, "id": f"{case}/{what}", **asdict(end)}
            for (suite, case, what), end in sorted(run.ends.items())
        ],
        "cases": [
            record.to_json(brief=True) for _, record in sorted(run.records.items())
        ],
        "benchmarks": [asdict(entry) for entry in run.benchmarks],
    }
    path = path_of(folder, baseline.name)
    with writing(path, "the baseline is as it was"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lzma.compress(compact(data)))
    return path


def load_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        ParityError: The file cannot be read, or another version wrote it.

    """
    with refuse_damaged(path, "restore it, or accept a run again"):
        content = unpacked(read_bytes(path), MOST_BYTES)
        form = decoded(content, BaselineForm, SCHEMA)
    return Baseline(
        name=path.name.removesuffix(SUFFIX),
        accepted=Accepted(**structs.asdict(form.accepted)),
        report=of_form(form, path),
    )


def replaced(path: Path) -> Baseline | None:
    """Return the baseline that a new one would replace, if it can be read."""
    with suppress(ParityError):
        return load_baseline(path)
    return None


def path_of(folder: Path, name: str) -> Path:
    """Return the path of a baseline of this name."""
    return folder / f"{name}{SUFFIX}"


def baselines_in(folder: Path) -> list[Path]:
    """Return the baselines of a folder, by name."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def find_baseline(folder: Path, name: str) -> Path:
    """Return the path of a baseline, given by path or by name.

    Raises:
        ParityError: There is no such baseline.

    """
    for path in (from_tilde(name), path_of(folder, name)):
        if path.name.endswith(SUFFIX) and path.is_file():
            return path
    there = [path.name.removesuffix(SUFFIX) for path in baselines_in(folder)]
    msg = (
        f"there is no baseline {name!r}; {folder} has {few(there) or 'none'}. "
        "`parity baseline accept RUN` makes one."
    )
    raise ParityError(msg)
