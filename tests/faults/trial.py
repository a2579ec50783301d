"""How one case ended, with or without a fault, and whom the harness blames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.core.record import LAYERS, OUTPUTS, CaseRecord
from harness.judge.case import CaseVerdict

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one case ended.

    Attributes:
        record: As a run keeps it.
        verdicts: Of its checks.
        places: The program's values that may be blamed: the one that the fault makes
            wrong, or where the runtime fuses or folds it away, those computed from it.
        told: Sample to rule of a peer to whether it tells.

    """

    record: CaseRecord
    verdicts: tuple[CaseVerdict, ...]
    places: tuple[str, ...] = ()
    told: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)

    @property
    def peers(self) -> dict[str, bool]:
        """Rule of a peer to whether it tells by any sample."""
        rules = {name for told in self.told.values() for name in told}
        return {name: any(told[name] for told in self.told.values()) for name in rules}

    @property
    def caught(self) -> bool:
        """Whether any check failed."""
        return any(not verdict.outcome.passed for verdict in self.verdicts)

    @property
    def blamed(self) -> tuple[str, ...]:
        """First divergence, and the first operator whose own error is out."""
        return tuple(
            judged.row.probe
            for verdict in self.verdicts
            for judged in (verdict.first, *verdict.origins[:1])
            if judged is not None and judged.row.what != OUTPUTS
        )

    @property
    def localised(self) -> bool:
        """Whether the blame falls on the fault's place exactly."""
        return not set(self.places).isdisjoint(self.blamed)

    @property
    def looks(self) -> tuple[str, ...]:
        """What is said of how the error looks, clause by clause."""
        failed = [verdict for verdict in self.verdicts if not verdict.outcome.passed]
        if self.record.failure or not failed or not failed[0].looks:
            return ()
        return tuple(failed[0].looks.split("; "))

    @property
    def said(self) -> str:
        """Everything that the harness says of the case."""
        return said(self.record, self.verdicts)


def said(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> str:
    """Return the words that a failing case is printed with; none if it passes."""
    failed = [verdict for verdict in verdicts if not verdict.outcome.passed]
    if failed and record.failure:
        return f"{record.failure.outcome}: {record.failure.message}"
    words = []
    for verdict in failed:
        words += [f"{verdict.outcome}: {verdict.reason}", verdict.sentence]
    # Of several checks the first one that failed shows what its error looks like.
    words += [verdict.looks for verdict in failed[:1] if verdict.looks]
    if any(v.what == LAYERS and v.outcome.passed for v in verdicts) and failed:
        words.append("every layer within")
    return "\n".join(words)


def visible(
    value: str, shown: AbstractSet[str], graph: onnx.GraphProto
) -> tuple[str, ...]:
    """Return a value itself if it is shown, else the nearest shown ones made of it."""
    made, found = {value}, {}
    for node in graph.node:  # in order of execution
        if made.intersection(node.input):
            made.update(node.output)
        # What is shown stands for all that is made of it.
        found |= dict.fromkeys(sorted(made & shown))
        made -= shown
    return tuple(found)
