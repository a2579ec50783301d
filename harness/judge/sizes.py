"""At which sizes a case fails, where it agrees at others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.core.record import CaseRecord
from harness.core.text import few
from harness.judge.value import JudgedRow


def only_at(record: CaseRecord, rows: Iterable[JudgedRow]) -> str:
    """Return at which sizes alone a case fails: ``only from batch 3 on``.

    It is empty if the sizes do not tell the samples that fail from those that agree.
    Several axes that do are named together, because any of them may be the cause.
    """
    passed: dict[str, bool] = {}
    for judged in rows:
        sample = judged.row.sample
        passed[sample] = passed.get(sample, True) and judged.verdict.passed
    known = record.sizes or {}
    wrong = [known[s] for s, right in passed.items() if not right and s in known]
    right = [known[s] for s, right in passed.items() if right and s in known]
    if not wrong or not right or len(wrong) + len(right) < len(passed):
        return ""
    axes = wrong[0].keys()
    for told in (_ends, _places):
        if found := [words for axis in axes for words in told(axis, wrong, right)]:
            return f"only {' or '.join(found)}"
    return ""


def _ends(
    axis: str, wrong: Sequence[Mapping[str, int]], right: Sequence[Mapping[str, int]]
) -> Iterator[str]:
    """Yield from which size on, or up to which, every sample fails.

    If sizes between those that fail and those that agree did not run, both are named.
    """
    fail, agree = [one[axis] for one in wrong], [one[axis] for one in right]
    if (least := min(fail)) > (most := max(agree)):
        between = least - most > 1  # nothing is known of sizes that did not run
        yield f"from {axis} {least} on{f' (up to {most} it agrees)' * between}"
    elif (most := max(fail)) < (least := min(agree)):
        between = least - most > 1
        yield f"up to {axis} {most}{f' (from {least} on it agrees)' * between}"


def _places(
    axis: str, wrong: Sequence[Mapping[str, int]], right: Sequence[Mapping[str, int]]
) -> Iterator[str]:
    """Yield the sizes of an axis at which every sample fails, and no other does."""
    fail = sorted({one[axis] for one in wrong})
    if not set(fail) & {one[axis] for one in right}:
        yield f"at {axis} {few([str(size) for size in fail])}"
