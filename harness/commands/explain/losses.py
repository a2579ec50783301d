"""What float16 would lose of a case, read from its references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.core.probes import load_probes
from harness.measure.float16 import Loss, scan
from harness.measure.trace import open_trace

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.engine.engine import Engine


def losses_of(engine: Engine, case: Case) -> list[Loss]:
    """Return the values that float16 would lose, each once, in order of execution.

    Raises:
        ParityError: A stage ended without an answer.

    """
    losses: dict[str, Loss] = {}
    for probes, readings in engine.references(case):
        traces = (open_trace(r.reference.path) for r in readings if r.layers)
        for loss in scan(load_probes(probes), traces):
            losses.setdefault(loss.probe.name, loss)
    return list(losses.values())
