"""The verdict of a whole run, and the exit codes that follow from it.

Everything here is a pure function over the verdicts of cases: nothing is read, and
nothing is written.
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
    """Return the exit code of a run.

    Args:
        verdicts: Of every check.
        stale: Complaints about the files that describe the run.
        required: Runtimes that may not be skipped.

    """
    told = [verdict for verdict in verdicts if not skipped(verdict, required)]
    bad = [verdict for verdict in told if not verdict.outcome.passed]
    if any(verdict.outcome.measured for verdict in bad):
        return NO_PARITY
    # A run that compared nothing, or whose own files are wrong, tells nothing.
    return CANNOT_TELL if bad or stale or not told else PARITY


def beside_baseline(code: int, *, worse: bool) -> int:
    """Return the exit code of a run that was compared with a baseline.

    Args:
        code: The exit code of the run by itself.
        worse: Whether something is worse than in the baseline, or gone from it.

    """
    # What is worse within its tolerance is no lack of parity, and yet is 1.
    return NO_PARITY if code == PARITY and worse else code


def of_part(code: int, *, ended: bool) -> int:
    """Return the exit code of a run that may have been stopped.

    Args:
        code: The exit code of what was judged.
        ended: Whether every chosen case ended.

    """
    return code if ended else CANNOT_TELL


def pytest_status(code: int, status: int, *, elsewhere: bool) -> int:
    """Return the exit status of a pytest session that ran parity tests.

    Args:
        code: The exit code of the run.
        status: The status that pytest would end with: 0 where every test passed, 1
            where some failed.
        elsewhere: Whether a test failed that is no parity test.

    """
    if code == NO_PARITY and status == 0:
        # Every test passed, and yet something is worse than in the baseline.
        return NO_PARITY
    # pytest's 1 says that a test failed. Where only parity tests failed, and none of
    # them because numbers differ, the run could not tell, which is 2.
    if code == CANNOT_TELL and status in {0, 1} and not elsewhere:
        return CANNOT_TELL
    return status


def gate_code(*, compared: bool, reasons: bool) -> int:
    """Return the exit code of the release gate: ship, do not ship, or cannot say.

    Args:
        compared: Whether any check of the run could be compared with the baseline's.
        reasons: Whether there is a reason not to ship.

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
    """Complain about known gaps and tolerances that a whole suite's run did not use.

    Args:
        checks: The case and the check of all that the suite has.
        policy: The tolerances of the suite.
        gaps: The known gaps of the suite.
        records: What the run recorded of the suite.

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
