"""Decide the verdict of a whole run, and its exit code.

Every function here is pure: it depends only on verdicts, reads no file and writes none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY
from harness.core.record import CaseRecord
from harness.judge.case import CaseVerdict, skipped
from harness.judge.known_gaps import Gap, unmatched
from harness.judge.policy import Policy


def exit_code(
    verdicts: Iterable[CaseVerdict],
    stale: Sequence[str] = (),
    required: Collection[str] = (),
) -> int:
    """Return the exit code of a run, from the verdicts of all its checks.

    `stale` are complaints about the files that describe the run. The `required`
    runtimes may not be skipped.
    """
    told = [verdict for verdict in verdicts if not skipped(verdict, required)]
    bad = [verdict for verdict in told if not verdict.outcome.passed]
    if any(verdict.outcome.measured for verdict in bad):
        return NO_PARITY
    # A run that compared nothing, or whose own files are wrong, has no result.
    return CANNOT_TELL if bad or stale or not told else PARITY


def beside_baseline(code: int, *, worse: bool) -> int:
    """Return the exit code of a run with code `code`, compared with a baseline.

    A value that is worse than in the baseline, or gone from it, is no parity, even if
    it is within its tolerance.
    """
    return NO_PARITY if code == PARITY and worse else code


def of_part(code: int, *, ended: bool) -> int:
    """Return the exit code of a run; it cannot tell if a selected case did not end."""
    return code if ended else CANNOT_TELL


def pytest_status(code: int, status: int, *, elsewhere: bool) -> int:
    """Return the exit status of a pytest session that ran parity tests.

    Args:
        code: The exit code of the run.
        status: Status with which pytest would end: 0 if every test passed, 1 if some
            failed.
        elsewhere: Whether a test failed that is not a parity test.

    """
    if code == NO_PARITY and status == 0:
        # Every test passed, but something is worse than in the baseline.
        return NO_PARITY
    # pytest's 1 means that a test failed. If only parity tests failed, and none of them
    # because numbers differ, the run has no result, which is 2.
    if code == CANNOT_TELL and status in {0, 1} and not elsewhere:
        return CANNOT_TELL
    return status


def gate_code(*, compared: bool, reasons: bool) -> int:
    """Return the release gate's exit code: ship, do not ship, or no answer.

    There is no answer if no check of the run could be compared with the baseline's.
    """
    if not compared:
        return CANNOT_TELL
    return NO_PARITY if reasons else PARITY


def complaints(
    checks: Collection[tuple[str, str]],
    policy: Policy,
    gaps: Sequence[Gap],
    records: Iterable[CaseRecord],
) -> Iterator[str]:
    """Yield complaints about gaps and tolerances that a whole run did not use.

    `checks` has case and check of everything in the suite.
    """
    ids = [f"{case}/{what}" for case, what in checks]
    for gap in unmatched(gaps, ids):
        yield (
            f"{gap.source}: the gap {gap.case!r} matches no check; remove it, or have "
            "`parity tune --prune` do so."
        )
    for record in records:
        if record.failure is None:
            names = {row.probe for row in record.rows}
            names |= {row.module for row in record.rows}
            case = (record.component, record.backend, record.variant)
            yield from policy.unmatched_patterns(case, names)
