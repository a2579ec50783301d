"""From proposals to a changed tolerances.toml: tighter at once, looser if it is said.

Nothing is written unless all of it can be: the new text is parsed as a policy, and each
proposal looked up in it, before it takes the old one's place.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.commands.tune.extent import Headroom, needed
from harness.commands.tune.proposal import CONFIDENCE, Proposal, assured_share
from harness.commands.tune.record import Tuning
from harness.commands.tune.toml_edit import MARK, TableChange, changed, quoted, value_of
from harness.core.errors import SuiteError
from harness.judge.policy import Policy
from harness.judge.scope import Scope
from harness.judge.tolerance import TIERS
from harness.measure.metrics import METRIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file as it is and as it is to be."""

    path: Path
    old: str
    new: str

    @property
    def diff(self) -> list[str]:
        """As lines of a unified diff."""
        return list(
            difflib.unified_diff(
                self.old.splitlines(),
                self.new.splitlines(),
                fromfile=self.path.name,
                tofile=f"{self.path.name} (tuned)",
                lineterm="",
                n=2,
            )
        )

    def write(self) -> None:
        """Put the new text in the old one's place, in one move.

        Raises:
            SuiteError: The file has changed meanwhile, or cannot be written.

        """
        now = text_of(self.path) if self.path.is_file() else ""
        if now != self.old:
            msg = f"{self.path} has changed since it was read; tune it again."
            raise SuiteError(msg)
        temporary = self.path.with_suffix(".part")
        try:
            temporary.write_bytes(self.new.encode())
            temporary.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            msg = f"{self.path} cannot be written ({error.strerror}); nothing changed."
            raise SuiteError(msg) from error


def text_of(path: Path) -> str:
    """Return a file's text with the line ends that it has."""
    return path.read_bytes().decode()


def edit(
    policy: Policy,
    tuning: Tuning,
    proposals: Iterable[Proposal],
    headroom: Headroom,
    why: str = "",
) -> Edit:
    """Return tolerances.toml with every proposal that changes something in it.

    Raises:
        SuiteError: A table cannot be changed by itself, or something would be looser
            and `why` is empty.

    """
    old = text_of(policy.path)
    tables: dict[tuple[str, ...], list[Proposal]] = {}
    for proposal in proposals:
        if proposal.changes:
            tables.setdefault(_path(proposal), []).append(proposal)
    changes = [
        TableChange(
            path=path,
            values=_values(path, parts, policy, why),
            provenance=provenance(tuning, parts, headroom),
        )
        for path, parts in tables.items()
    ]
    new = changed(old, changes, policy.path.name) if changes else old
    with TemporaryDirectory() as scratch:
        trial = Path(scratch) / policy.path.name
        trial.write_bytes(new.encode())
        _check(Policy.load(trial), tables.values())
    return Edit(path=policy.path, old=old, new=new)


def provenance(
    tuning: Tuning, parts: Sequence[Proposal], headroom: Headroom
) -> tuple[str, ...]:
    """Return the lines above a table that say where its numbers come from.

    Of each group: its worst input, how many independent draws of each family were
    within, and which share of all such inputs that makes sure of.
    """
    _, backend, _ = parts[0].case
    sure = ", ".join(
        f"{part.group} of {part.draws} draws ({assured_share(part.draws):.1%})"
        for part in parts
    )
    ran = ", ".join(
        f"{package} {tuning.versions[package]}"
        for package in ("torch", backend)
        if package in tuning.versions
    )
    worst = ", ".join(f"{part.worst} ({part.group})" for part in parts)
    return (
        f"{MARK}{tuning.date}, {ran}: {headroom} over the worst, {worst}",
        f"{MARK}from {sure}; {CONFIDENCE:.0%} sure that as many inputs are within",
    )


def figures(part: Proposal) -> str:
    """Return what was measured of the bounds that a proposal states."""
    found = needed(part.extent, part.tolerance)
    return ", ".join(
        METRIC[bound].brief.format(value) for bound, value in found.items()
    )


def _path(proposal: Proposal) -> tuple[str, ...]:
    narrow = ("probes", proposal.pattern) if proposal.pattern else ()
    return (*proposal.case, *narrow)


def _values(
    path: tuple[str, ...], parts: Sequence[Proposal], policy: Policy, why: str
) -> dict[str, str]:
    """Return what a table is to say, with a reason where it must have one.

    Raises:
        SuiteError: Something would be looser, and no reason is given.

    """
    values = {part.group: value_of(part.tier, part.bounds) for part in parts}
    looser = [part for part in parts if part.loosens]
    if looser and not why:
        names = "; ".join(f"{part.group} {part.loosens[0]}" for part in looser)
        msg = f"{'/'.join(path)} would be looser ({names}); say --why."
        raise SuiteError(msg)
    own = _own(policy, path)
    if looser:
        told = "; ".join(f"{part.group} {figures(part)}" for part in looser)
        values["why"] = quoted(f"{why}; {told} when tuned")
    elif any(_needs_why(part) for part in parts) and not (own and own.why):
        told = "; ".join(f"{part.group} {figures(part)}" for part in parts)
        given = next((part.now.why for part in parts if part.now.why), "")
        values["why"] = quoted("; ".join(filter(None, (given, f"{told} when tuned"))))
    return values


def _own(policy: Policy, path: tuple[str, ...]) -> Scope | None:
    """Return the table that is there already."""
    for scope in policy.scopes:
        narrow = ("probes", scope.pattern) if scope.pattern else ()
        if (*(key for key in scope.case if key), *narrow) == path:
            return scope
    return None


def _needs_why(part: Proposal) -> bool:
    if not part.tier:
        return True
    return part.tolerance.is_looser_than(TIERS[part.tier].for_group(part.group))


def _check(policy: Policy, tables: Iterable[Sequence[Proposal]]) -> None:
    """See that each proposal is what its probe is now held to.

    Raises:
        SuiteError: Another table decides.

    """
    for parts in tables:
        for part in parts:
            component, backend, variant = part.case
            rule = policy.for_probe(
                component=component,
                backend=backend,
                variant=variant,
                group=part.group,
                probe=part.probe,
                module=part.module,
            )
            if rule.tolerance != part.tolerance:
                msg = (
                    f"{rule.source}: another table decides {part.group} of "
                    f"{'/'.join(part.case)}; nothing was written."
                )
                raise SuiteError(msg)
