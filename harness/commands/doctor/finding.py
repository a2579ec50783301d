"""What the doctor says: one finding a thing looked at, and how they are shown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby

from harness.core.doctor import Finding, Status
from harness.core.runtime import runtimes

_LABEL_WIDTH = 21


_MARKS = {Status.OK: "✓", Status.WARN: "!", Status.FAIL: "✗", Status.ABSENT: "·"}


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 when parity can be measured here, and 2 when it cannot."""
    return 2 if any(each.status is Status.FAIL for each in findings) else 0


def render(
    findings: Iterable[Finding], *, has_suite: bool, width: int = 100
) -> Iterator[str]:
    """Yield the findings as lines, what is merely absent last, then a verdict.

    Args:
        findings: In reading order.
        has_suite: Whether there is a suite to run; if not, the next step writes one.
        width: In columns.

    """
    findings = list(findings)
    here = [each for each in findings if each.status is not Status.ABSENT]
    absent = [each for each in findings if each.status is Status.ABSENT]
    for block in (here, absent):
        if block:
            yield ""
            for row in _merged(block):
                yield from _lines(row, width)
    yield ""
    yield from _verdict(findings, has_suite=has_suite)


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield neighbours of one topic that say the same as one finding."""

    def likeness(each: Finding) -> tuple[str, str, str, str]:
        return (each.check.partition(" ")[0], each.status, each.says, each.mend)

    for (topic, _, says, mend), group in groupby(findings, key=likeness):
        first, *others = group
        names = [each.check.partition(" ")[2] for each in (first, *others)]
        yield Finding(
            check=topic if others else first.check,
            status=first.status,
            says=f"{', '.join(names)}: {says}" if others else says,
            mend=mend,
        )


def _lines(row: Finding, width: int) -> Iterator[str]:
    margin = " " * (_LABEL_WIDTH + 4)
    first, *more = textwrap.wrap(row.says, width - len(margin)) or [""]
    yield f" {_MARKS[row.status]} {row.check:<{_LABEL_WIDTH}} {first}"
    yield from (margin + line for line in more)
    if row.mend:
        # Not wrapped: a command is there to be copied.
        yield f"{margin}→ {row.mend}"


def _verdict(findings: Iterable[Finding], *, has_suite: bool) -> Iterator[str]:
    broken = sum(each.status is Status.FAIL for each in findings)
    if broken:
        things = "1 thing" if broken == 1 else f"{broken} things"
        yield f"Not ready: mend {things} (✗) first."
        yield "next   parity doctor"
        return
    here = [
        each.check
        for each in findings
        if each.status is Status.OK and each.check.split(" ")[0] in runtimes()
    ]
    yield f"Ready: parity can be measured on {', '.join(here)}."
    command = "pytest -m parity" if has_suite else "parity init path/to/checkpoint"
    yield f"next   {command}"
