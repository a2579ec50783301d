"""The time of each module: operator times of the deployed file, summed by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.core.probes import Probe
from harness.core.text import Line, count, few
from harness.measure.align import source_value, wanted_values
from harness.runtimes.session import Spent

DEPTH = 2
"""A row of the table stands for so many parts of a module's path."""

NOWHERE = "(not in any module)"


def found_where(
    case: str, spent: Sequence[Spent], whole_s: float, probes: Iterable[Probe]
) -> dict[str, Any]:
    """Return a case's modules with the times of their operators, the slowest first.

    An operator counts for the first value of the exported graph that it makes or leads
    to. If the runtime shows no such value, the operator counts with the next one.

    Args:
        case: Id of the case.
        spent: The time of each operator, in order of execution.
        whole_s: Median time of a run as deployed, without a recorder.
        probes: The named values, each with its module.

    Returns:
        The case, its `whole_ms`, the share of time that was counted with the next
        operator (`guessed`), and `places`: each module with its `ms`, its number of
        `operators` and their `kinds`, the slowest kind first.

    """
    modules = {value: probe.module for value, probe in wanted_values(probes).items()}
    took: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    guessed_s, module = 0.0, NOWHERE
    for one in reversed(spent):
        known = [source_value(name) for name in one.values]
        own = next((modules[name] for name in known if name in modules), None)
        if own is None:
            guessed_s += one.took_s
        else:
            module = _shortened(own) or NOWHERE
        took.setdefault(module, Counter())[one.op] += one.took_s  # type: ignore[assignment]
        counts[module] += 1
    total_s = sum(one.took_s for one in spent)
    return {
        "case": case,
        "whole_ms": whole_s * 1e3,
        "guessed": guessed_s / total_s if total_s else 0.0,
        "places": [
            {
                "module": module,
                "ms": kinds.total() * 1e3,
                "operators": counts[module],
                "kinds": [kind for kind, _ in kinds.most_common()],
            }
            for module, kinds in sorted(took.items(), key=lambda one: -one[1].total())
        ],
    }


def _shortened(module: str) -> str:
    """Return the first parts of a path; a number counts with the name before it.

    >>> _shortened("encoder.layers.3.mlp"), _shortened("down_blocks.0.resnets.1")
    ('encoder.layers.3', 'down_blocks.0')
    """
    parts = module.split(".")
    depth = DEPTH + (len(parts) > DEPTH and parts[DEPTH].isdigit())
    return ".".join(parts[:depth])


def where_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    """Yield a line for each module of a case, the slowest first."""
    places = found["places"]
    total = sum(place["ms"] for place in places)
    operators = sum(place["operators"] for place in places)
    yield Line(text="")
    yield Line(
        text=f"{found['case']}: {count(operators, 'operator')}, "
        f"{total:.3g} ms in them, {found['whole_ms']:.3g} ms unwatched"
    )
    yield Line(text=f"{'ms':>9} {'share':>6} {'ops':>4}   module", tone="quiet")
    for place in places:
        share = place["ms"] / total if total else 0.0
        yield Line(
            text=f"{place['ms']:>9.3g} {share:>6.1%} {place['operators']:>4}   "
            f"{place['module']}  {few(place['kinds'], 3)}"
        )
    if found["guessed"]:
        text = "in operators of the runtime's own, counted with the next"
        yield Line(text=f"     {found['guessed']:.1%} {text}", tone="quiet")
