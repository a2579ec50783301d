"""What works, as a Markdown table: a row a network and exporter, a column a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from harness.errors import SuiteError
from harness.outcome import Outcome
from harness.report.judged import CaseVerdict, max_floors
from harness.report.record import LAYERS, OUTPUTS
from harness.report.text import in_floors
from harness.spec import BACKENDS

BEGIN = "<!-- families:begin -->"
END = "<!-- families:end -->"

_KNOWN = "known gap: "
"""What a verdict's reason says before the reason of the gap that explains it."""

_HEADINGS = {"onnxruntime": "ONNX Runtime", "mnn": "MNN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What stands first in a row.

    Attributes:
        family: The pipeline that the checkpoint is of.
        suite: Name of the suite's folder.
        recipe: Which of its networks.
        exporter: How it became ONNX.

    """

    family: str
    suite: str
    recipe: str
    exporter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One case of a network: where, made how, and how its checks ended."""

    backend: str
    variant: str
    verdicts: tuple[CaseVerdict, ...]


def family_table(networks: Mapping[Network, Sequence[Ran]]) -> str:
    """Return the table, and below it each reason that a cell refers to."""
    reasons: dict[str, int] = {}
    heads = ["Family", "Network", "Exporter", *(_HEADINGS[name] for name in BACKENDS)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for network in sorted(networks, key=_order):
        cells = [
            " · ".join(
                _cell(ran, reasons)
                for ran in networks[network]
                if ran.backend == backend
            )
            for backend in BACKENDS
        ]
        head = (
            f"{network.family} (`{network.suite}`)",
            f"`{network.recipe}`",
            network.exporter,
        )
        lines.append(f"| {' | '.join((*head, *cells))} |")
    lines += [""] if reasons else []
    lines += [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join(lines) + "\n"


def _order(network: Network) -> tuple[str, str, str, str]:
    return network.family, network.suite, network.recipe, network.exporter


def _cell(ran: Ran, reasons: dict[str, int]) -> str:
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
        reasons.setdefault(_reason(verdict), len(reasons) + 1)
        for verdict in ran.verdicts
        if verdict.found is not Outcome.WITHIN or verdict.outcome is Outcome.GAP
    )
    return " ".join((*words, *(f"[{number}]" for number in noted)))


def _floors(value: float) -> str:
    """Return an error in floors with two digits; machines agree on no more."""
    return in_floors(float(f"{value:.2g}")).removesuffix(" floors")


def _reason(verdict: CaseVerdict) -> str:
    """Return why a check failed, on one line that a table's reader can act on."""
    what = f"{LAYERS}: " if verdict.what == LAYERS and verdict.rows else ""
    why = " ".join(verdict.reason.split())
    if verdict.outcome.passed:
        why = f"{_KNOWN}{why.rpartition(_KNOWN)[2]}"
    return f"{what}{verdict.found}: {why}"


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
