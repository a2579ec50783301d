"""Judge the differences between a graph and PyTorch's program, from records only.

In a graph that the harness exported, every difference is a finding. In a foreign model,
exact algebra may scale a weight, move a factor or fold a bias, and the outputs stay the
same. There a difference counts if no algebra can make it. Every difference counts if
the outputs of a file in full precision are out of tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.core.outcome import CheckFinding, Outcome, Precedence
from harness.core.record import OUTPUTS, CaseRecord
from harness.core.text import count, few, operator
from harness.measure.patterns import beyond_noise

_NEVER_ALGEBRA = ("float16", "bfloat16", "bits", "channel", "few", "other")
"""Kinds of difference of a matrix that no rewrite makes."""

_REST_EQUAL = ("channel", "few")
"""Kinds of difference that leave most numbers equal, so it is the same weight."""

_BY_NAME = (*_NEVER_ALGEBRA, "another", "transposed", "moved")
"""Kinds of difference that no rewrite makes of a constant with the weight's own
name."""

_NEVER_REWRITTEN = (
    *("epsilon", "GELU's form", "dilations", "mode"),
    *("the cubic coefficient", "select_last_index", "training mode"),
)
"""Attributes that no rewrite changes."""

_ROUNDED = ("float16", "bfloat16", "bits")
_LAST_BITS = "last-bits"
_NONFINITE = "nonfinite"
"""Kind of difference that no rewrite makes of any constant."""

_MATRIX = 2
_UNLIKE = 0.5
"""Smallest relative difference at which a weight cannot be another training step of the
same weight."""

_NAMED = 3
Weight = Mapping[str, Any]


def graph_finding(
    record: CaseRecord, what: str, *, failing: bool
) -> CheckFinding | None:
    """Return what is wrong with a case's graphs, or None.

    `failing` says whether an output is out of tolerance.
    """
    for graph in record.graphs if what == OUTPUTS else ():
        # Where the deployed file has fewer bits, they explain outputs that fail.
        lenient = bool(record.foreign) and not (failing and graph.get("exact", True))
        weights = [w for w in graph["weights"] if not lenient or _certain(w)]
        if record.foreign:  # its tool may have computed with its weights
            weights = [w for w in weights if w["kind"] != _LAST_BITS]
        attributes = [
            a
            for a in graph["attributes"]
            if not lenient or a["name"] in _NEVER_REWRITTEN
        ]
        words = []
        # A file that gives PyTorch's outputs lacks nothing.
        lost = graph.get("dropped", []) if failing and graph.get("exact", True) else []
        if weights:
            words.append(_weights(graph, weights))
        elif lost:
            words.append(
                f"no operator of the file has the weights of {few(lost)}, and all "
                "other weights are PyTorch's: the export dropped it"
            )
        if attributes:
            words.append(_attributes(attributes))
        if words:
            outcome = Outcome.WEIGHTS if weights or lost else Outcome.ATTRIBUTES
            return CheckFinding(outcome, "; ".join(words))
        if failing and (blamed := [*_blamed(record, graph)]):
            text = f"the exporter left out {few(blamed)}: try optimize = false"
            return CheckFinding(Outcome.ATTRIBUTES, text, Precedence.AFTER)
    return None


def _blamed(record: CaseRecord, graph: Mapping[str, Any]) -> Iterator[str]:
    """Yield the operators that a graph lacks, if what reads past them is off.

    Where such an operator changes nothing of the recorded values, its reader agrees.
    """
    off = {row.probe for row in record.rows if beyond_noise(row.comparison)}
    if not record.foreign:  # a tool that rewrites a file moves arithmetic
        for one in graph.get("removed", ()):
            if one["reader"] in off:
                yield _removed(one)


def _removed(one: Mapping[str, str]) -> str:
    return f"{one['words']} at {one['module'] or one['probe']}"


def graph_notes(record: CaseRecord) -> Iterator[str]:
    """Yield messages about a case's weights that were not compared."""
    for graph in record.graphs:
        absent, stored = len(graph["elsewhere"]), graph["stored"]
        if removed := graph.get("removed", ()):
            named = few(list(dict.fromkeys(map(_removed, removed))))
            yield f"the graph lacks what the exporter took for nothing: {named}"
        if stored:
            kinds = few([f"{number:,} in {kind}" for kind, number in stored.items()])
            yield f"the graph keeps tensors in fewer bits by its own word: {kinds}"
        if absent:
            yield (
                f"{absent:,} of {count(graph['tensors'], 'weight')} in another form or "
                f"not at all in the graph, and not compared: {few(graph['elsewhere'])}"
            )


def _certain(weight: Weight) -> bool:
    """Whether a foreign model's weight differs in a way that no rewrite makes."""
    if weight["kind"] == _NONFINITE:
        return True
    if weight["by"] == "name" and weight["axes"] >= _MATRIX:
        return weight["kind"] in _BY_NAME
    # A rewrite may have moved weights, so a very different one of the same shape may
    # be another weight.
    if weight["by"] == "shape":
        return False
    alike = weight["rms"] is not None and weight["rms"] < _UNLIKE
    alike |= weight["kind"] in _REST_EQUAL
    return alike and weight["axes"] >= _MATRIX and weight["kind"] in _NEVER_ALGEBRA


def _weights(graph: Mapping[str, Any], weights: Sequence[Weight]) -> str:
    """Return a message about differing weights, with many of them summarised."""
    total = graph["tensors"]
    cut = graph["differing"] > len(graph["weights"])  # a record has the first ones only
    number = graph["differing"] if cut else len(weights)
    first = weights[0]
    named = f"first {first['name']}"
    if told := graph.get("lora"):
        return f"{told}; {named}"
    if len(weights) == 1:
        return f"weight {first['name']} of the graph is not PyTorch's: {first['words']}"
    if exchanged := _exchanged(weights):
        return f"weights are exchanged in the graph: {exchanged}"
    of = f"{number:,} of {total:,} weights"
    kinds = {w["kind"] for w in weights}
    if len(kinds) == 1 and first["kind"] in _ROUNDED:
        how = first["words"].removeprefix("it is ")
        return f"{of} of the graph are {how}; {named}"
    sizes = [w["rms"] for w in weights if w["rms"] and w["axes"] >= _MATRIX]
    if 2 * graph["kinds"].get("other", 0) >= graph["matrices"] and sizes:
        low, high = min(sizes), max(sizes)
        which = "another training step" if high < _UNLIKE else "another checkpoint"
        if low < _UNLIKE <= high:
            which = "another checkpoint or another training step"
        by = " to ".join(dict.fromkeys((f"{low:.1e}", f"{high:.1e}")))
        return (
            f"the graph's weights are of {which}: {number:,} of {total:,} tensors "
            f"differ, by {by} of their size; {named}"
        )
    told = [f"{w['name']}: {w['words']}" for w in weights[:_NAMED]]
    more = f"; and {number - _NAMED:,} more" if number > _NAMED else ""
    return f"{of} of the graph are not PyTorch's: {'; '.join(told)}{more}"


def _exchanged(weights: Sequence[Weight]) -> str:
    """Return which weights are exchanged, if nothing else differs; or ""."""
    others = {w["name"]: w["other"] for w in weights}
    if any(others.get(other) != name for name, other in others.items()):
        return ""
    pairs = dict.fromkeys(tuple(sorted(pair)) for pair in others.items())
    return few([f"{one} and {other}" for one, other in pairs])


def _attributes(differing: Iterable[Mapping[str, str]]) -> str:
    """Return a message about differing operator settings, grouped by setting."""
    together: dict[str, list[str]] = {}
    for one in differing:
        place = f"{one['module'] or one['probe']} ({operator(one['op'])})"
        together.setdefault(one["words"], []).append(place)
    return "; ".join(f"{words}, at {few(places)}" for words, places in together.items())
