"""What works, as a Markdown table: a row a network and exporter, a column a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.core.record import LAYERS, OUTPUTS
from harness.core.runtime import runtimes
from harness.core.text import number_of_floors
from harness.judge.case import CaseVerdict, max_floors

BEGIN = "<!-- families:begin -->"
END = "<!-- families:end -->"


Reasons = dict[str, dict[str, None]]
"""Why checks did not agree, in the order of their numbers, and how these ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What stands first in a row.

    Attributes:
        family: The pipeline that the checkpoint is of.
        suite: Name of the suite's folder.
        recipe: Which of its networks.
        component: What the suite calls it.
        exporter: How it became ONNX.

    """

    family: str
    suite: str
    recipe: str
    component: str
    exporter: str

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """Where its row stands: a recipe's components and exporters side by side."""
        return self.family, self.suite, self.recipe, self.exporter, self.component

    @property
    def name(self) -> str:
        """Its recipe, and its own name where that is another."""
        own = f" (`{self.component}`)" if self.component != self.recipe else ""
        return f"`{self.recipe}`{own}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One case of a network: where, made how, and how its checks ended."""

    backend: str
    variant: str
    verdicts: tuple[CaseVerdict, ...]


def family_table(networks: Mapping[Network, Sequence[Ran]]) -> str:
    """Return the table, and below it each reason that a cell refers to."""
    reasons: Reasons = {}
    there = {run.backend for found in networks.values() for run in found}
    ran = [one for one in runtimes().values() if one.name in there]
    heads = ["Family", "Network", "Exporter", *(one.title for one in ran)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for network in sorted(networks, key=lambda one: one.place):
        cells = [
            " · ".join(
                _cell(one, reasons)
                for one in networks[network]
                if one.backend == backend
            )
            for backend in (one.name for one in ran)
        ]
        head = (
            f"{network.family} (`{network.suite}`)",
            network.name,
            network.exporter,
        )
        lines.append(f"| {' | '.join((*head, *cells))} |")
    lines += [""] if reasons else []
    lines += [
        f"{number}. {', '.join(ended)}: {why}"
        for number, (why, ended) in enumerate(reasons.items(), start=1)
    ]
    return "\n".join(lines) + "\n"


def _cell(ran: Ran, reasons: Reasons) -> str:
    """Return ``fp32 1.3``, in floors; a cross where it fails, and its reasons."""
    words = [ran.variant]
    if not all(verdict.outcome.passed for verdict in ran.verdicts):
        words.append("✗")
    outputs = (verdict.rows for verdict in ran.verdicts if verdict.what == OUTPUTS)
    worst = max_floors(chain.from_iterable(outputs))
    if worst is not None:
        words.append(_floors(worst))
    # One cause often ends both checks; it is told once.
    noted = dict.fromkeys(
        _number(verdict, reasons)
        for verdict in ran.verdicts
        if verdict.outcome is not Outcome.WITHIN
    )
    return " ".join((*words, *(f"[{number}]" for number in noted)))


def _floors(value: float) -> str:
    """Return an error in floors with two digits; machines agree on no more."""
    return number_of_floors(float(f"{value:.2g}"))


def _number(verdict: CaseVerdict, reasons: Reasons) -> int:
    """Return the number of why a check did not agree, noting how it ended.

    A gap is one cause, however the checks that it explains ended.
    """
    why, ended = " ".join(verdict.reason.split()), verdict.outcome.value
    if verdict.gap:
        why, ended = verdict.gap.words, verdict.found.value
    elif verdict.what == LAYERS and verdict.rows:
        ended = f"{LAYERS}: {ended}"
    reasons.setdefault(why, {})[ended] = None
    return list(reasons).index(why) + 1


def refreshed(text: str, table: str, where: str) -> str:
    """Return `text` with `table` between its markers.

    Raises:
        SuiteError: The markers are not both there, in order.

    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        msg = (
            f"{where} has no place for the table: put the lines {BEGIN} and {END} "
            "where it belongs."
        )
        raise SuiteError(msg)
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"
