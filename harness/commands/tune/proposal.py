"""Propose the tightest tolerances that what was recorded is within, with headroom.

From records alone: nothing is run, and the same records propose the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Final

from harness.commands.tune.extent import Headroom, is_sound, needed, strained, worse
from harness.commands.tune.record import CaseTuning, Tuning
from harness.core.comparison import Comparison
from harness.core.record import LAYERS, OUTPUTS, Row
from harness.judge.known_gaps import Gap
from harness.judge.policy import Policy
from harness.judge.scope import Case, Rule, Scope
from harness.judge.tolerance import TIER_NAMES, TIERS, Tolerance
from harness.judge.value import judge as held
from harness.measure.metrics import METRIC, TUNED
from harness.suite.judge import Judge

CONFIDENCE: Final = 0.95
"""How sure the stated share of inputs is."""

WORTH: Final = 1.25
"""A bound that is tighter by less than this is left as it is: each tuning draws other
inputs, and its last digit would move with them."""

NAMED: Final = 2.0
"""A tier's own bound is kept unless it is looser than needed by more than this."""

FEW: Final = 4
"""So many modules at most get tables of their own rather than loosen all the others."""

LEAST: Final = 20
"""Fewer independent draws than this tighten nothing: they make sure of too little."""

NONE: Final = Headroom(factor=1.0, decibels=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one probe group of one case is held to, and could be.

    Attributes:
        case: Component, backend and variant.
        group: ``outputs`` or ``layers``.
        pattern: Of the table for some probes that decides; empty for the others.
        now: What decides today.
        tier: The tier proposed; empty where bounds stand alone.
        bounds: What is changed of the tier's bounds.
        tolerance: Both together.
        extent: What was measured, without headroom.
        worst: Sample that uses most of today's tolerance.
        probe: The value that does, and so one of the group.
        module: Where that is.
        draws: Independent draws that it rests on.
        beyond: Bounds that would have to be looser than they are: now and needed.
        remark: Why nothing is proposed; empty where something is.

    """

    case: Case
    group: str
    pattern: str
    now: Rule
    tier: str
    bounds: dict[str, float]
    tolerance: Tolerance
    extent: Comparison = field(repr=False)
    worst: str
    probe: str
    module: str
    draws: int
    beyond: dict[str, tuple[float, float]]
    remark: str = ""

    @property
    def changes(self) -> bool:
        """Whether it is another tolerance than today's."""
        return self.tolerance != self.now.tolerance or self.tier != self.now.tier

    @property
    def loosens(self) -> tuple[str, ...]:
        """Which bounds would be looser than today's, in words."""
        return self.tolerance.looser_bounds(self.now.tolerance, stated_only=True)


def assured_share(draws: int, confidence: float = CONFIDENCE) -> float:
    """Return the share of inputs that surely stay within the worst of so many draws.

    Of independent draws, the largest is above the p-th part of all with confidence
    1 - p^n, whatever the distribution (Wilks, 1941).

    >>> round(assured_share(200), 3), round(assured_share(59), 2), assured_share(0)
    (0.985, 0.95, 0.0)
    """
    return float((1.0 - confidence) ** (1.0 / draws)) if draws else 0.0


def propose(
    tuning: Tuning,
    judge: Judge,
    headroom: Headroom,
    *,
    allow_looser: bool = False,
) -> list[Proposal]:
    """Return a proposal for each probe group of each case, in the suite's order."""
    return [
        proposal
        for case in tuning.cases.values()
        for group in (OUTPUTS, LAYERS)
        for proposal in _of_group(
            tuning, case, group, judge, headroom, allow_looser=allow_looser
        )
    ]


def has_gap(gaps: Iterable[Gap], case: str) -> bool:
    """Whether a check of a case is known to fail: nothing healthy to learn from."""
    ids = [f"{case}/{group}" for group in (OUTPUTS, LAYERS)]
    return any(gap.matches(id_) for gap in gaps for id_ in ids)


def _of_group(
    tuning: Tuning,
    case: CaseTuning,
    group: str,
    judge: Judge,
    headroom: Headroom,
    *,
    allow_looser: bool,
) -> Iterator[Proposal]:
    record = case.record
    name = (record.component, record.backend, record.variant)
    for rule, rows in _by_rule(case, group, judge.policy):
        scope = _scope(judge.policy, group, rule.source)
        known = "a known gap" if has_gap(judge.gaps, record.case) else ""
        remark = known or _obstacle(rows, rule, scope, name)
        given = scope.pattern if scope else ""
        apart = allow_looser and group == LAYERS and not given and not remark
        parts = _apart(rows, rule, headroom) if apart else {"": rows}
        draws = tuning.independent(case, layers=group == LAYERS)
        for pattern, some in parts.items():
            worst = max(some, key=partial(_usage, tolerance=rule.tolerance))
            extent = reduce(worse, (row.comparison for row in some))
            tier, tolerance = rule.tier, rule.tolerance
            beyond: dict[str, tuple[float, float]] = {}
            if not remark:
                tier, tolerance, beyond = tightest(
                    extent,
                    group,
                    rule,
                    headroom,
                    allow_looser=allow_looser,
                    allow_tighter=draws >= LEAST,
                )
            yield Proposal(
                case=name,
                group=group,
                pattern=given or pattern,
                now=rule,
                tier=tier,
                bounds={} if remark else _beside(tier, group, tolerance),
                tolerance=tolerance,
                extent=extent,
                worst=case.worst.sample if group == OUTPUTS else worst.sample,
                probe=worst.probe,
                module=worst.module,
                draws=draws,
                beyond=beyond,
                remark=remark,
            )


def _by_rule(
    case: CaseTuning, group: str, policy: Policy
) -> Iterator[tuple[Rule, list[Row]]]:
    """Yield what decides today, and the rows that it decides."""
    record = case.record
    cells: dict[str, tuple[Rule, list[Row]]] = {}
    for row in record.rows:
        if row.what == group:
            rule = policy.for_probe(
                component=record.component,
                backend=record.backend,
                variant=record.variant,
                group=group,
                probe=row.probe,
                module=row.module,
            )
            cells.setdefault(rule.source, (rule, []))[1].append(row)
    yield from cells.values()


def _apart(rows: list[Row], rule: Rule, headroom: Headroom) -> dict[str, list[Row]]:
    """Part a few modules that need a looser bound from the many that do not.

    Returns:
        Pattern to rows; the empty pattern is everything else.

    """
    odd = {
        row.module or row.probe
        for row in rows
        if _usage(row, rule.tolerance, headroom.half) > 1.0
    }
    every = {row.module or row.probe for row in rows}
    if not 0 < len(odd) <= FEW or odd == every:
        return {"": rows}
    parts: dict[str, list[Row]] = {"": []}
    for row in rows:
        name = row.module or row.probe
        pattern = name.replace("[", "[[]") if name in odd else ""
        parts.setdefault(pattern, []).append(row)
    return {pattern: some for pattern, some in parts.items() if some}


def tightest(
    extent: Comparison,
    group: str,
    now: Rule,
    headroom: Headroom,
    *,
    allow_looser: bool = False,
    allow_tighter: bool = True,
) -> tuple[str, Tolerance, dict[str, tuple[float, float]]]:
    """Return tier and tolerance, and the bounds that are beyond today's.

    A tighter tier is taken where all of it holds with headroom; else today's stays.
    Bounds move within the tier: tighter by themselves; looser only if allowed, and
    where less than half of the headroom is left.
    """
    asked = strained(extent, headroom)
    least = strained(extent, headroom.half)
    tier = now.tier
    tighter = TIER_NAMES[1 : TIER_NAMES.index(tier)] if tier and allow_tighter else ()
    for name in tighter:
        if _fits(asked, _in_tier(name, group, now.tolerance)):
            tier = name
            break
    base = _in_tier(tier, group, now.tolerance) if tier else now.tolerance
    bounds: dict[str, float] = {}
    beyond: dict[str, tuple[float, float]] = {}
    for bound, exact in needed(asked, base).items():
        given = float(getattr(base, bound))
        # No error at all says nothing of how another processor rounds.
        need = rounded(bound, exact) if exact else given
        held = getattr(now.tolerance, bound)
        value = need if _ratio(bound, given, need) > NAMED else given
        if _ratio(bound, need, given) > 1.0:
            value = need
        if held is not None:
            if _ratio(bound, needed(least, base)[bound], held) > 1.0:
                beyond[bound] = (held, need)
                value = need if allow_looser else held
            elif not allow_tighter or _ratio(bound, held, value) < WORTH:
                value = held  # also where it would be looser: half is left
        if math.isfinite(value):
            bounds[bound] = value
    return tier, replace(base, **bounds), beyond


def _in_tier(name: str, group: str, now: Tolerance) -> Tolerance:
    """Return a tier's tolerance, as tight as today's where that says more.

    An rtol that is tighter than the tier's stays, and so does a bound of which the
    tier says nothing.
    """
    tier = TIERS[name].for_group(group)
    kept: dict[str, float] = {
        metric.name: value
        for metric in TUNED
        # An atol goes together with its rtol, below.
        if metric.name != "atol"
        and tier.limit(metric) is None
        and (value := now.limit(metric)) is not None
    }
    if now.rtol is not None and now.atol is not None:
        if tier.rtol is None:
            kept |= {"rtol": now.rtol, "atol": now.atol}
        else:
            kept["rtol"] = min(tier.rtol, now.rtol)
    return replace(tier, **kept)


def rounded(bound: str, value: float) -> float:
    """Return a bound a person would write: two digits, or half decibels, outwards.

    >>> rounded("floors", 5.43), rounded("atol", 1.01e-5), rounded("sqnr_db", 52.4)
    (5.5, 1.1e-05, 52.0)
    """
    return METRIC[bound].rounded(value)


def _beside(tier: str, group: str, tolerance: Tolerance) -> dict[str, float]:
    """Return the bounds in which a tolerance is not its tier's."""
    base = TIERS[tier].for_group(group) if tier else None
    found = {}
    for bound in ("rtol", *(metric.name for metric in TUNED)):
        value = getattr(tolerance, bound)
        if value is not None and (base is None or value != getattr(base, bound)):
            found[bound] = value
    return found


def _fits(asked: Comparison, tolerance: Tolerance) -> bool:
    return all(
        _ratio(bound, value, getattr(tolerance, bound)) <= 1.0
        for bound, value in needed(asked, tolerance).items()
    )


def _ratio(bound: str, one: float, two: float) -> float:
    """Return how many times looser one bound is than another."""
    return METRIC[bound].times(one, two)


def _usage(row: Row, tolerance: Tolerance, headroom: Headroom = NONE) -> float:
    asked = strained(row.comparison, headroom)
    return held(asked, tolerance, is_output=False).usage


def _scope(policy: Policy, group: str, source: str) -> Scope | None:
    for scope in policy.scopes:
        rule = scope.rules.get(group)
        if rule is not None and rule.source == source:
            return scope
    return None


def _obstacle(rows: list[Row], rule: Rule, scope: Scope | None, case: Case) -> str:
    """Return why no bound can be drawn; empty where one can."""
    if not all(is_sound(row.comparison) for row in rows):
        return "values are not finite, or shapes differ"
    if rule.tolerance.share < 1.0:
        return "a share is stated, which is not tuned"
    if scope is not None and scope.pattern and scope.case != case:
        return f"{scope.header} decides, for several variants"
    return ""
