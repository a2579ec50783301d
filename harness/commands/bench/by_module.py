"""Where a run's time goes: operators of the deployed file, rolled up by module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.probes import Probe
from harness.core.text import Line, count, few
from harness.measure.align import source_value, wanted_values
from harness.runtimes.session import Spent

DEPTH = 2
"""Parts of a module's path that have a row of their own."""

NOWHERE = "(not in any module)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """What a child process found out.

    Attributes:
        spent: Each operator, in order of execution.
        whole_s: Median of a run as deployed, nothing watching.

    """

    spent: tuple[Spent, ...]
    whole_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One module's part.

    Attributes:
        module: The first parts of its path.
        took_s: All of its operators.
        ops: Kinds of operators in it, the slowest first.
        count: How many operators.

    """

    module: str
    took_s: float
    ops: tuple[str, ...]
    count: int


def rolled_up(
    spent: Sequence[Spent], probes: Iterable[Probe], depth: int = DEPTH
) -> tuple[list[Place], float]:
    """Return modules with what their operators took, the slowest first.

    An operator counts with the first value of the exported graph that it makes or leads
    to. One that leads to none, as far as the runtime tells, counts with the next.

    Returns:
        The modules, and the share of time that was counted so.

    """
    modules = {value: probe.module for value, probe in wanted_values(probes).items()}
    took: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    guessed, at = 0.0, NOWHERE
    for one in reversed(spent):
        known = [source_value(name) for name in one.values]
        own = next((modules[name] for name in known if name in modules), None)
        if own is None:
            guessed += one.took_s
        else:
            at = _shortened(own, depth) or NOWHERE
        ops = took.setdefault(at, {})
        ops[one.op] = ops.get(one.op, 0.0) + one.took_s
        counts[at] = counts.get(at, 0) + 1
    places = [
        Place(
            module=module,
            took_s=sum(ops.values()),
            ops=tuple(sorted(ops, key=lambda op, of=ops: -of[op])),  # type: ignore[misc]
            count=counts[module],
        )
        for module, ops in took.items()
    ]
    total = sum(one.took_s for one in spent)
    share = guessed / total if total else 0.0
    return sorted(places, key=lambda place: -place.took_s), share


def _shortened(module: str, depth: int) -> str:
    """Return the first parts of a path; a number stays with what it numbers.

    >>> _shortened("encoder.layers.3.mlp", 2), _shortened("down_blocks.0.resnets.1", 2)
    ('encoder.layers.3', 'down_blocks.0')
    """
    parts = module.split(".")
    if parts[depth:] and parts[depth].isdigit():
        depth += 1
    return ".".join(parts[:depth])


def found_where(case: str, clocked: Clocked, probes: Iterable[Probe]) -> dict[str, Any]:
    """Return where a case's time goes, as a run's report keeps it."""
    places, guessed = rolled_up(clocked.spent, probes)
    return {
        "case": case,
        "whole_ms": _short(clocked.whole_s * 1e3),
        "guessed": _short(guessed),
        "places": [
            {
                "module": place.module,
                "ms": _short(place.took_s * 1e3),
                "operators": place.count,
                "kinds": list(place.ops),
            }
            for place in places
        ],
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def where_lines(found: Mapping[str, Any]) -> Iterator[Line]:
    """Yield a case's modules, the slowest first."""
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
