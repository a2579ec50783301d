"""Cases in groups whose shared part is made once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future

from harness.core.end_to_end import Tested
from harness.core.record import CaseRecord

Begun = tuple[Tested, Future[CaseRecord]]
"""A case, and its record to come."""


def together(begun: Iterable[Begun]) -> deque[list[Begun]]:
    """Return cases in groups: those of one export, or of one pipeline."""
    groups: dict[object, list[Begun]] = {}
    for case, record in begun:
        groups.setdefault(case.shared, []).append((case, record))
    return deque(groups.values())
