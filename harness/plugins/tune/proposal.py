"""Propose the tightest tolerances that the records are within, with headroom.

Proposals come from records alone. Nothing is run, and the same records give the same
proposals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from msgspec import structs

from harness.core.comparison import Comparison
from harness.core.end_to_end import IMAGE
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Row
from harness.judge.known_gaps import Gap
from harness.judge.policy import CaseName, Policy, Rule, Scope
from harness.judge.tolerance import GROUPS, TIER_NAMES, TIERS, Tolerance
from harness.judge.value import judge as judged
from harness.measure.metrics import BOUNDED, METRIC
from harness.plugins.tune.headroom import Headroom, fits, is_sound, needed, worse
from harness.plugins.tune.record import Tuning, draws_of, worst_of
from harness.suite.judge import Judge

CONFIDENCE: Final = 0.95
"""Confidence that the stated share of inputs is within."""

WORTH: Final = 1.25
"""A bound is tightened only if it becomes tighter by at least this factor. Each tuning
draws other inputs, and the last digit would change with them."""

NAMED: Final = 2.0
"""A tier's bound is kept unless it exceeds the needed one by more than this factor."""

FEW: Final = 4
"""At most so many modules get their own tables, so that the others stay tight."""

LEAST: Final = 20
"""Fewer independent draws tighten no bound, because they assure too small a share."""

_UNSEEN: Final = TIERS["strict"]["image"]
"""Bounds of a picture that are tight enough: nobody sees a tenth of a level of 255."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The tolerance of one probe group of one case, as it is and as it could be.

    Attributes:
        case: Component, backend and variant.
        group: ``outputs`` or ``layers``; of a pipeline ``latents`` or ``image``.
        pattern: Pattern of the deciding table, if that is for some probes only; empty
            for other tables.
        now: The rule that decides today.
        tier: The proposed tier; empty if there are only bounds.
        tolerance: The proposed tolerance, including the tier's bounds.
        extent: The measured extent, without headroom.
        worst: Id of the sample that uses most of today's tolerance.
        probe: The value that uses most of today's tolerance.
        module: The module of that value.
        draws: Number of independent draws that the proposal rests on.
        beyond: Bounds that would have to be looser, each with its current and its
            needed value.
        remark: The reason why nothing is proposed; empty if something is.

    """

    case: CaseName
    group: str
    pattern: str
    now: Rule
    tier: str
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
        """Whether the proposal differs from today's tolerance."""
        return self.tolerance != self.now.tolerance or self.tier != self.now.tier

    @property
    def loosens(self) -> tuple[str, ...]:
        """A phrase for each bound that would be looser than today's."""
        return self.tolerance.looser_bounds(self.now.tolerance, stated_only=True)

    @property
    def figures(self) -> str:
        """The measured values of the bounds that it states."""
        found = needed(self.extent, self.tolerance)
        return ", ".join(
            METRIC[bound].brief.format(value) for bound, value in found.items()
        )

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that differ from the tier's."""
        base = TIERS[self.tier][self.group] if self.tier else None
        found = {}
        for bound in ("rtol", *(metric.name for metric in BOUNDED)):
            value = getattr(self.tolerance, bound)
            if value is not None and (base is None or value != getattr(base, bound)):
                found[bound] = value
        return found


def assured_share(draws: int) -> float:
    """Return the share of inputs that the worst of so many draws covers.

    The largest of n independent draws is above a share p of all inputs with confidence
    1 - p^n, whatever the distribution is (Wilks, 1941).

    >>> round(assured_share(200), 3), round(assured_share(59), 2), assured_share(0)
    (0.985, 0.95, 0.0)
    """
    return float((1.0 - CONFIDENCE) ** (1.0 / draws)) if draws else 0.0


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
        for group in GROUPS
        for proposal in _of_group(
            case, group, judge, headroom, allow_looser=allow_looser
        )
    ]


def has_gap(gaps: Iterable[Gap], case: str) -> bool:
    """Whether a check of a case is a known failure, so no bound is derived from it."""
    ids = [f"{case}/{group}" for group in GROUPS]
    return any(gap.matches(id_) for gap in gaps for id_ in ids)


def _of_group(
    record: CaseRecord,
    group: str,
    judge: Judge,
    headroom: Headroom,
    *,
    allow_looser: bool,
) -> Iterator[Proposal]:
    name = (record.component, record.backend, record.variant)
    draws = draws_of(record, layers=group == LAYERS)
    for rule, rows in _by_rule(record, group, judge.policy):
        scope = _scope(judge.policy, group, rule.source)
        known = "a known gap" if has_gap(judge.gaps, record.case) else ""
        remark = known or _obstacle(rows, rule, scope, name)
        given = scope.pattern if scope else ""
        parts = {given: rows}
        if allow_looser and group == LAYERS and not given and not remark:
            parts = _parts(rows, rule, headroom)
        for pattern, some in parts.items():
            used = [
                judged(row.comparison, rule.tolerance, is_output=False).usage
                for row in some
            ]
            worst = some[used.index(max(used))]
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
                pattern=pattern,
                now=rule,
                tier=tier,
                tolerance=tolerance,
                extent=extent,
                worst=worst_of(record).sample.id if group == OUTPUTS else worst.sample,
                probe=worst.probe,
                module=worst.module,
                draws=draws,
                beyond=beyond,
                remark=remark,
            )


def _by_rule(
    record: CaseRecord, group: str, policy: Policy
) -> Iterator[tuple[Rule, list[Row]]]:
    """Yield each rule that decides today, with the rows that it decides about."""
    name = record.component, record.backend, record.variant
    cells: dict[str, tuple[Rule, list[Row]]] = {}
    for row in record.rows:
        if row.what == group:
            rule = policy.for_probe(
                name, group=group, probe=row.probe, module=row.module
            )
            cells.setdefault(rule.source, (rule, []))[1].append(row)
    yield from cells.values()


def _parts(rows: list[Row], rule: Rule, headroom: Headroom) -> dict[str, list[Row]]:
    """Separate the few modules that need a looser bound from the others.

    The rows are returned by pattern, where an empty one stands for all other modules.
    """
    odd = {
        row.module or row.probe
        for row in rows
        if not fits(row.comparison, rule.tolerance, headroom.half)
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

    A tighter tier is proposed if all its bounds hold with headroom; if not, today's
    tier stays. Bounds move within the tier. They become tighter without permission.
    They become looser only if allowed, and only if less than half of the headroom is
    left.
    """
    tier = now.tier
    tighter = TIER_NAMES[1 : TIER_NAMES.index(tier)] if tier and allow_tighter else ()
    for name in tighter:
        if fits(extent, _in_tier(name, group, now.tolerance), headroom):
            tier = name
            break
    base = _in_tier(tier, group, now.tolerance) if tier else now.tolerance
    bounds: dict[str, float] = {}
    beyond: dict[str, tuple[float, float]] = {}
    least = needed(extent, base, headroom.half)
    for bound, exact in needed(extent, base, headroom).items():
        given = float(getattr(base, bound))
        # No error on this processor does not tell how another processor rounds.
        no_error = exact == METRIC[bound].without_error
        need = given if no_error else METRIC[bound].rounded(exact)
        unseen = _UNSEEN.limit(METRIC[bound]) if group == IMAGE else None
        if unseen is not None and METRIC[bound].is_looser(unseen, need):
            need = unseen
        today = getattr(now.tolerance, bound)
        value = need if METRIC[bound].times(given, need) > NAMED else given
        if METRIC[bound].times(need, given) > 1.0:
            value = need
        if today is not None:
            if METRIC[bound].times(least[bound], today) > 1.0:
                beyond[bound] = (today, need)
                value = need if allow_looser else today
            elif not allow_tighter or METRIC[bound].times(today, value) < WORTH:
                value = today  # also if it would be looser: half is left
        if math.isfinite(value):
            bounds[bound] = value
    return tier, structs.replace(base, **bounds), beyond


def _in_tier(name: str, group: str, now: Tolerance) -> Tolerance:
    """Return a tier's tolerance, at least as tight as today's.

    An rtol that is tighter than the tier's stays, and so does a bound that the tier
    does not state.
    """
    tier = TIERS[name][group]
    kept: dict[str, float] = {
        metric.name: value
        for metric in BOUNDED
        # An atol is handled below, together with its rtol.
        if metric.name != "atol"
        and tier.limit(metric) is None
        and (value := now.limit(metric)) is not None
    }
    if now.rtol is not None and now.atol is not None:
        if tier.rtol is None:
            kept |= {"rtol": now.rtol, "atol": now.atol}
        else:
            kept["rtol"] = min(tier.rtol, now.rtol)
    return structs.replace(tier, **kept)


def _scope(policy: Policy, group: str, source: str) -> Scope | None:
    for scope in policy.scopes:
        rule = scope.rules.get(group)
        if rule is not None and rule.source == source:
            return scope
    return None


def _obstacle(rows: list[Row], rule: Rule, scope: Scope | None, case: CaseName) -> str:
    """Return why no bound can be derived; empty if one can."""
    if not all(is_sound(row.comparison) for row in rows):
        return "values are not finite, or shapes differ"
    if rule.tolerance.share < 1.0:
        return "a share is stated, which is not tuned"
    if rule.tolerance.within:
        return "the model's own error is the bound, which is not tuned"
    if scope is not None and scope.pattern and scope.case != case:
        return f"{scope.header} decides, for several variants"
    return ""
