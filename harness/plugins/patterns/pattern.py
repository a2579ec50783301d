"""The pattern of a value that is off, from its arrays and its operator."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from harness.measure.patterns import Isolated, Off
from harness.plugins.patterns.rules import error_pattern

if TYPE_CHECKING:
    from harness.plugins.patterns.operands import Operands


def pattern(off: Off) -> str:
    """Return what the error of a value looks like; empty if no rule fits."""
    it = None
    if off.isolated is not None and off.probe is not None:
        it = _operands(off.isolated).of(off.probe)
    return error_pattern(
        off.expected, off.actual, off.floor_rms, off.op, off.near, it=it
    )


@lru_cache(maxsize=1)
def _operands(isolated: Isolated) -> Operands:
    """Return the operands of a sample, which read each weight once."""
    # It imports ONNX's reference evaluator, which most errors do not need.
    from harness.plugins.patterns.operands import Operands

    return Operands(isolated.trace, isolated.probes, isolated.feeds, isolated.graph)
