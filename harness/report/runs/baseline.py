"""Reviewed runs that later ones are held against: one small file a suite.

    reports/baselines/digits.json.xz

It says who accepted which run, when and why, beside the run's snapshot. The same run
accepted in the same words gives the same bytes.
"""

from __future__ import annotations

import json
import lzma
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.errors import ParityError
from harness.core.outcome import Outcome
from harness.core.text import count, few
from harness.engine.run_folder import LAST, damaged, find_run, run_before
from harness.report.runs.cpu_load import is_disturbed
from harness.report.runs.snapshot import Snapshot, load_snapshot

SCHEMA = 1
SUFFIX = ".json.xz"

_NO_FAILURE = {o.value for o in Outcome if o.passed} | {Outcome.UNAVAILABLE.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Who said that a run is what later ones are held against.

    Attributes:
        who: A person's name.
        when: The day.
        why: In their words; may be empty where nothing fails.
        failing: Checks that fail in it and were accepted nevertheless.

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
    snapshot: Snapshot


def accept(  # one argument each
    snapshot: Snapshot,
    *,
    name: str,
    who: str,
    why: str,
    when: date,
    there: Baseline | None = None,
) -> Baseline:
    """Return a run as a baseline.

    Args:
        snapshot: The run.
        name: Of the baseline.
        who: Accepts it.
        why: In their words.
        when: The day.
        there: The baseline that it takes the place of.

    Raises:
        ParityError: Nobody accepts it, it has nothing to accept, or checks fail in it
            or are not in it and nobody says why that is accepted.

    """
    if not name or Path(name).name != name:
        msg = f"a baseline is a file of its folder, and {name!r} is no file's name."
        raise ParityError(msg)
    if not who.strip():
        msg = (
            "nobody accepts this baseline: git has no user.name here; say who does "
            'with --who "NAME".'
        )
        raise ParityError(msg)
    failing = failing_of(snapshot)
    if not any(case.rows for case in snapshot.cases.values()):
        msg = f"run {snapshot.id} compared nothing, so it can be no baseline."
        raise ParityError(msg)
    for doubt in _doubts(snapshot, failing, there):
        if not why.strip():
            msg = f'{doubt}, or say why that is accepted with --why "REASON".'
            raise ParityError(msg)
    return Baseline(
        name=name,
        accepted=Accepted(who=who.strip(), when=when, why=why.strip(), failing=failing),
        snapshot=snapshot,
    )


def _doubts(
    snapshot: Snapshot, failing: Sequence[str], there: Baseline | None
) -> Iterator[str]:
    """Yield what speaks against holding later runs to this one, and the way out."""
    if failing:
        verb = "check fails" if len(failing) == 1 else "checks fail"
        yield (
            f"{len(failing):,} {verb} in run {snapshot.id}: {few(failing)}. Mend them"
        )
    if snapshot.judged_by:
        yield (
            f"run {snapshot.id} was judged by {snapshot.judged_by} and not by its "
            "suite's own tolerances. Run again without"
        )
    if not snapshot.whole:
        yield (
            f"run {snapshot.id} is of a part of its suite, and the gate would not miss "
            "the rest. Run the whole suite"
        )
    disturbed = [
        entry.case for entry in snapshot.benchmarks if is_disturbed(entry.withheld)
    ]
    if disturbed:
        yield (
            f"{count(len(disturbed), 'time')} of run {snapshot.id} "
            f"{'was' if len(disturbed) == 1 else 'were'} taken beside other work, and "
            f"the gate would judge none against it: {few(disturbed)}. Time it again "
            "(`parity bench`) on a quiet machine"
        )
    gone = [] if there is None else _checks(there.snapshot) - _checks(snapshot)
    if gone:
        yield (
            f"run {snapshot.id} has not {count(len(gone), 'check')} of the baseline "
            f"that is there: {few(sorted(gone))}. Run the whole suite"
        )


def _checks(snapshot: Snapshot) -> set[str]:
    return {
        f"{name}/{what}"
        for name, case in snapshot.cases.items()
        for what in case.outcomes
    }


def failing_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the ids of the checks that fail in a run."""
    return tuple(
        f"{name}/{what}"
        for name, case in snapshot.cases.items()
        for what, outcome in case.outcomes.items()
        if outcome not in _NO_FAILURE
    )


def git_user() -> str:
    """Return who git says is at work here, or nothing."""
    try:
        done = subprocess.run(
            ["git", "config", "user.name"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def save_baseline(baseline: Baseline, folder: Path) -> Path:
    """Write a baseline in one move.

    Raises:
        ParityError: The folder cannot be written to.

    """
    about = asdict(baseline.accepted) | {"when": baseline.accepted.when.isoformat()}
    data = {
        "schema": SCHEMA,
        "accepted": about,
        "snapshot": baseline.snapshot.to_json(),
    }
    text = json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))
    path = path_of(folder, baseline.name)
    temporary = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(lzma.compress(text.encode()))
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        msg = f"{path} cannot be written ({error.strerror}); the baseline is as it was."
        raise ParityError(msg) from error
    return path


def load_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        ParityError: It cannot be read, or another version wrote it.

    """
    try:
        data = json.loads(lzma.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
        msg = f"{path} cannot be read as a baseline ({error}); restore or accept one."
        raise ParityError(msg) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        msg = (
            f"{path} has baseline schema {schema}, this version reads {SCHEMA}; "
            "accept a run again."
        )
        raise ParityError(msg)
    try:
        return Baseline(
            name=path.name.removesuffix(SUFFIX),
            accepted=_accepted(data["accepted"]),
            snapshot=Snapshot.from_json(data["snapshot"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error, "restore it, or accept a run again") from error


def _accepted(data: Mapping[str, Any]) -> Accepted:
    return Accepted(
        who=data["who"],
        when=date.fromisoformat(data["when"]),
        why=data["why"],
        failing=tuple(data["failing"]),
    )


def replaced(path: Path) -> Baseline | None:
    """Return the baseline that another is to replace, if there is one to read."""
    with suppress(ParityError):
        return load_baseline(path)
    return None


def path_of(folder: Path, name: str) -> Path:
    """Return where a baseline of a name lies."""
    return folder / f"{name}{SUFFIX}"


def baselines_in(folder: Path) -> list[Path]:
    """Return the baselines of a folder, by name."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def find_baseline(folder: Path, name: str) -> Path:
    """Return the path of a baseline, given by path or by name.

    Raises:
        ParityError: There is none.

    """
    for path in (Path(name), path_of(folder, name)):
        if path.name.endswith(SUFFIX) and path.is_file():
            return path
    there = [path.name.removesuffix(SUFFIX) for path in baselines_in(folder)]
    msg = (
        f"there is no baseline {name!r}; {folder} has {few(there) or 'none'}. "
        "`parity baseline accept RUN` makes one."
    )
    raise ParityError(msg)


def load_either(name: str, *, runs: Path, baselines: Path) -> Snapshot:
    """Read a baseline by path or name, or a run by path or id.

    Raises:
        ParityError: There is neither.

    """
    if name.endswith(SUFFIX) or path_of(baselines, name).is_file():
        return load_baseline(find_baseline(baselines, name)).snapshot
    return load_snapshot(find_run(runs, name))


def load_two(
    before: str, after: str | None, *, runs: Path, baselines: Path
) -> tuple[Snapshot, Snapshot]:
    """Read two runs or baselines that are to be compared.

    Args:
        before: The earlier one.
        after: The later one. None stands for the last run; where `before` is "last"
            too, the last run is compared with the one before it of the same suites.
        runs: Folder of runs.
        baselines: Folder of baselines.

    Raises:
        ParityError: One is not there, or both are the same run.

    """
    read = partial(load_either, runs=runs, baselines=baselines)
    one, two = read(before), read(after or LAST)
    if (one.id, one.machine) != (two.id, two.machine):
        return one, two
    earlier = run_before(runs, two.id)
    if after is None and before == LAST and earlier:
        return load_snapshot(earlier), two
    way_out = "and there is no earlier run of its suite here; run again, then compare."
    if earlier:
        other = earlier.parent.name
        way_out = f"so it would tell nothing; try `parity diff {other} {two.id}`."
    msg = f"both sides are run {two.id}, {way_out}"
    raise ParityError(msg)
