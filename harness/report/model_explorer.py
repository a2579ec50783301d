"""A case's errors as node data for Google's Model Explorer, seen on the graph there.

A node is found there by its id, or by the name of a tensor that it makes. Both are the
names of PyTorch's program: Model Explorer takes them as ids of an exported program, and
the dynamo exporter gives them to nearly all of its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.judge.case import CaseVerdict
from harness.report.layers import worst_rows

_HALF, _LIMIT = 0.5, 1.0
_GOOD, _NEAR, _BAD = "#b7e1c0", "#ffe08a", "#f2a29b"
_TEXT = "#1b2027"


def node_data(verdicts: Sequence[CaseVerdict]) -> dict[str, Any]:
    """Return each value's error in noise floors, the worst of all samples.

    Colours go by how much of its tolerance a value uses: up to half, up to all of it,
    more. A value without a number is given one above all others.

    Args:
        verdicts: Of one case's checks.

    """
    rows = worst_rows(verdicts)
    floors = [judged.row.comparison.floor_multiple for judged in rows]
    finite = [value for value in floors if value is not None and math.isfinite(value)]
    beyond = 10.0 * max([1.0, *finite])
    results = {}
    for judged, value in zip(rows, floors, strict=True):
        known = value is not None and math.isfinite(value)
        results[judged.row.probe] = {
            "value": value if known else beyond,
            "bgColor": _colour(judged.verdict.usage, passed=judged.verdict.passed),
            "textColor": _TEXT,
        }
    return {"results": results}


def _colour(usage: float, *, passed: bool) -> str:
    if not passed or usage > _LIMIT:
        return _BAD
    return _NEAR if usage > _HALF else _GOOD
