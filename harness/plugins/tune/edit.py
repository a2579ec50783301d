"""Write proposals into tolerances.toml; a looser bound needs a reason.

Either all changes are written or none. Before the new text replaces the old one, it is
parsed as a policy, and each proposal is looked up in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.core.errors import SuiteError
from harness.judge.policy import Policy, key_path
from harness.judge.tolerance import TIERS
from harness.plugins.tune.headroom import Headroom
from harness.plugins.tune.proposal import CONFIDENCE, Proposal, assured_share
from harness.plugins.tune.record import Tuning
from harness.plugins.tune.toml_edit import (
    MARK,
    Edit,
    TableChange,
    changed,
    inline,
    text_of,
)


def edit(
    policy: Policy,
    tuning: Tuning,
    proposals: Iterable[Proposal],
    headroom: Headroom,
    why: str = "",
) -> Edit:
    """Return tolerances.toml with every proposal that changes something.

    Raises:
        SuiteError: A table cannot be changed alone, or a bound would be looser and
            `why` is empty.

    """
    tables: dict[tuple[str, ...], list[Proposal]] = {}
    for part in proposals:
        if part.changes:
            tables.setdefault(key_path(part.case, part.pattern), []).append(part)
    changes = [
        TableChange(
            path=path,
            values=_values(path, parts, policy, why),
            provenance=_provenance(tuning, parts, headroom),
        )
        for path, parts in tables.items()
    ]
    old = text_of(policy.path)
    new = changed(policy.path, changes) if changes else old
    with TemporaryDirectory() as scratch:
        trial = Path(scratch) / policy.path.name
        trial.write_bytes(new.encode())
        _check(
            Policy.load(trial), [part for parts in tables.values() for part in parts]
        )
    return Edit(path=policy.path, old=old, new=new)


def bounds_of(tier: str, bounds: Mapping[str, float]) -> object:
    """Return the value of a group in a table, for tomlkit.

    >>> bounds_of("strict", {})
    'strict'
    >>> bounds_of("standard", {"floors": 5.5}).as_string()
    '{ tier = "standard", floors = 5.5 }'
    """
    if tier and not bounds:
        return tier
    return inline({**({"tier": tier} if tier else {}), **bounds})


def _provenance(
    tuning: Tuning, parts: Sequence[Proposal], headroom: Headroom
) -> tuple[str, ...]:
    """Return the lines above a table that explain where its numbers come from.

    For each group they give the worst input, the number of independent draws of each
    family that were within, and the share of all such inputs that this assures.
    """
    _, backend, _ = parts[0].case
    sure = ", ".join(
        f"{part.group} of {part.draws} draws ({assured_share(part.draws):.1%})"
        for part in parts
    )
    ran = ", ".join(
        f"{package} {tuning.versions[package]}"
        for package in ("torch", backend)
        if tuning.versions.get(package)
    )
    worst = ", ".join(f"{part.worst} ({part.group})" for part in parts)
    return (
        f"{MARK}{tuning.date}, {ran}: {headroom} over the worst, {worst}",
        f"{MARK}from {sure}; {CONFIDENCE:.0%} sure that as many inputs are within",
    )


def _values(
    path: tuple[str, ...], parts: Sequence[Proposal], policy: Policy, why: str
) -> dict[str, object]:
    """Return a table's new values, with a reason where it must have one."""
    values = {part.group: bounds_of(part.tier, part.bounds) for part in parts}
    looser = [part for part in parts if part.loosens]
    if looser and not why:
        names = "; ".join(f"{part.group} {part.loosens[0]}" for part in looser)
        msg = f"{'/'.join(path)} would be looser ({names}); say --why."
        raise SuiteError(msg)
    if not looser:
        if not any(map(_needs_why, parts)) or _has_why(policy, parts[0]):
            return values
        why = next((part.now.why for part in parts if part.now.why), "")
    measured = "; ".join(f"{part.group} {part.figures}" for part in looser or parts)
    return {**values, "why": "; ".join(filter(None, (why, f"{measured} when tuned")))}


def _has_why(policy: Policy, part: Proposal) -> bool:
    """Whether the proposal's table exists already, with a reason."""
    return any(
        scope.why and (scope.case, scope.pattern) == (part.case, part.pattern)
        for scope in policy.scopes
    )


def _needs_why(part: Proposal) -> bool:
    """Whether a policy refuses the proposal's table without a reason."""
    if not part.tier:
        return True
    return part.tolerance.is_looser_than(TIERS[part.tier][part.group])


def _check(policy: Policy, parts: Iterable[Proposal]) -> None:
    """Check that each proposal now decides about its probe, and no other table."""
    for part in parts:
        rule = policy.for_probe(
            part.case, group=part.group, probe=part.probe, module=part.module
        )
        if rule.tolerance != part.tolerance:
            msg = (
                f"{rule.source}: another table decides {part.group} of "
                f"{'/'.join(part.case)}; nothing was written."
            )
            raise SuiteError(msg)
