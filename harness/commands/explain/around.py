"""The smallest excerpt that shows a divergence.

It begins as one value's own operators. Where those agree, what went wrong needs more
of the graph, a fusion for example: then it begins one value earlier, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.record import LAYERS, CaseRecord
from harness.engine.excerpt import Excerpt, Spot

if TYPE_CHECKING:
    from harness.core.case import Case, Sample
    from harness.engine.engine import Engine
    from harness.judge.case import CaseVerdict
    from harness.suite.judge import Judge

RINGS = 8
"""How many values back an excerpt is begun before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """An excerpt, and what it measured.

    Attributes:
        excerpt: The smallest that shows the divergence, or the largest tried.
        record: Of its run.
        verdict: On it; None where it could not be run.

    """

    excerpt: Excerpt
    record: CaseRecord
    verdict: CaseVerdict | None

    @property
    def shows(self) -> bool:
        """Whether the divergence is seen in it."""
        return self.verdict is not None and not self.verdict.found.passed


def smallest_excerpt(
    engine: Engine, judge: Judge, case: Case, sample: Sample, spot: Spot
) -> Around:
    """Cut around a spot, wider and wider, until the divergence shows.

    Raises:
        ParityError: There is nothing to cut there.

    """
    inputs = {spec.name for spec in case.component.inputs}
    for _ in range(RINGS):
        excerpt = engine.excerpt(case, sample, spot)
        record = engine.run_excerpt(excerpt)
        verdict = None if record.failure else judge.check(record, LAYERS)
        around = Around(excerpt=excerpt, record=record, verdict=verdict)
        if around.shows or excerpt.begins <= inputs:
            break
        later = set(spot.shown) - excerpt.begins
        spot = replace(spot, shown=tuple(sorted(later)))
    return around
