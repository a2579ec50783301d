"""How one case ended, with or without a fault, and whom the harness blames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import onnx

from harness.report.judged import CaseVerdict
from harness.report.record import OUTPUTS, CaseRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one case ended.

    Attributes:
        record: As a run keeps it.
        verdicts: Of its checks.
        places: The program's values that may be blamed: the one that the fault makes
            wrong, or where the runtime fuses or folds it away, those computed from it.
        peers: Rule of a peer to whether it tells.

    """

    record: CaseRecord
    verdicts: tuple[CaseVerdict, ...]
    places: tuple[str, ...] = ()
    peers: Mapping[str, bool] = field(default_factory=dict)

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
    def said(self) -> str:
        """Everything that the harness says of the case."""
        return said(self.record, self.verdicts)


def said(record: CaseRecord, verdicts: Sequence[CaseVerdict]) -> str:
    """Return all the words that a failing case is printed with."""
    words = [record.failure.message] if record.failure else []
    for verdict in verdicts:
        if not verdict.outcome.passed:
            words += [str(verdict.outcome), verdict.reason, verdict.sentence]
    return "\n".join(words)


def visible(
    value: str, shown: AbstractSet[str], graph: onnx.GraphProto
) -> tuple[str, ...]:
    """Return a value itself if it is shown, else the nearest shown ones made of it."""
    if value in shown:
        return (value,)
    readers = [node for node in graph.node if value in node.input]
    made = dict.fromkeys(name for node in readers for name in node.output)
    found = [there for name in made for there in visible(name, shown, graph)]
    return tuple(dict.fromkeys(found))
