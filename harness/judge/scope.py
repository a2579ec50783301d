"""One table of tolerances.toml, parsed. `policy` chooses among several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from harness.core.errors import SpecError, SuiteError
from harness.core.pipeline import MIXED
from harness.core.runtime import runtimes
from harness.core.toml_file import Table, did_you_mean, dotted
from harness.judge.tolerance import BOUNDS, GROUPS, TIER_NAMES, TIERS, Tolerance

FLAGS: Final = ("allow_nonfinite", "allow_constant", "allow_misread")

Case = tuple[str, str, str]
"""Component, backend and variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one value is held to, and where that was written.

    Attributes:
        tolerance: The bounds.
        tier: The tier they start from; empty for bounds that stand alone.
        allow_nonfinite: NaN and infinities may be there, at the same places.
        allow_constant: One value everywhere is not suspicious.
        allow_misread: A reader may see something else in a picture.
        why: The reason given by the narrowest table that gives one.
        source: ``path:line`` of the tolerance.

    """

    tolerance: Tolerance
    tier: str
    allow_nonfinite: bool = False
    allow_constant: bool = False
    allow_misread: bool = False
    why: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One table of tolerances.toml; None is what it leaves to a wider one.

    Attributes:
        case: Component (empty in the widest tables), backend and variant.
        pattern: Of the probes it is for; empty for all.
        rules: Group → what it states, as yet without the flags.
        allow_nonfinite: As `Rule`.
        allow_constant: As `Rule`.
        allow_misread: As `Rule`.
        why: The reason for whatever in it loosens.
        source: ``path:line`` of its header.

    """

    case: Case
    pattern: str
    rules: Mapping[str, Rule]
    allow_nonfinite: bool | None
    allow_constant: bool | None
    allow_misread: bool | None
    why: str
    source: str

    @property
    def header(self) -> str:
        """As the file writes it."""
        path = tuple(key for key in self.case if key)
        return f"[{dotted((*path, 'probes', self.pattern) if self.pattern else path)}]"

    def covers(self, case: Case) -> bool:
        """Whether it speaks about this case, pattern aside."""
        component, backend, variant = self.case
        return (
            component in {"", case[0]}
            and backend == case[1]
            and fnmatchcase(case[2], variant)
        )

    def matches(self, names: Iterable[str]) -> bool:
        """Whether its pattern, if it has one, matches one of a probe's names."""
        return not self.pattern or any(fnmatchcase(n, self.pattern) for n in names)


def read_scopes(root: Table) -> Iterator[Scope]:
    """Parse every table of a file, in order.

    Raises:
        SuiteError: A word is unknown, a bound is nonsense, or a table states nothing.

    """
    for name, table in root.children():
        if name in (*runtimes(), MIXED):
            for variant, inner in table.children():
                yield _scope(inner, ("", name, variant))
            continue
        for backend, variants in table.children():
            if backend not in (*runtimes(), MIXED):
                raise _unknown_backend(table, name, backend)
            for variant, inner in variants.children():
                # Taken first: `_scope` refuses what is left in the table.
                probes = inner.table("probes").children()
                case = (name, backend, variant)
                yield _scope(inner, case, is_parent=bool(probes))
                for pattern, narrow in probes:
                    if not pattern:
                        text = 'a probe pattern is empty; "*" matches every probe.'
                        raise narrow.error(text)
                    yield _scope(narrow, case, pattern)


def _unknown_backend(table: Table, name: str, backend: str) -> SuiteError:
    # [onnxruntim.fp32] reads as component "onnxruntim" on backend "fp32".
    if close := get_close_matches(name, runtimes(), n=1):
        text = f"unknown backend {name!r}; did you mean {close[0]!r}?"
    else:
        text = f"unknown backend {backend!r}; {did_you_mean(backend, runtimes())}"
    return table.error(text, backend)


def _scope(
    table: Table,
    case: Case,
    pattern: str = "",
    *,
    is_parent: bool = False,
) -> Scope:
    found = {group: _rule(table, group) for group in GROUPS}
    scope = Scope(
        case=case,
        pattern=pattern,
        rules={group: rule for group, rule in found.items() if rule},
        allow_nonfinite=table.take("allow_nonfinite", bool, None),
        allow_constant=table.take("allow_constant", bool, None),
        allow_misread=table.take("allow_misread", bool, None),
        why=table.take("why", str, "").strip(),
        source=table.where(),
    )
    table.done()
    flags = [getattr(scope, flag) for flag in FLAGS]
    if not scope.rules and flags == [None] * len(flags) and not is_parent:
        text = f'{scope.header} states nothing; give it {GROUPS[0]} = "standard".'
        raise table.error(text)
    return scope


def _rule(table: Table, group: str) -> Rule | None:
    if not table.holds(group, dict):
        tier = table.choice(group, TIER_NAMES, "")
        if not tier:
            return None
        tolerance = TIERS[tier].for_group(group)
        return Rule(tolerance=tolerance, tier=tier, source=table.where(group))
    inner = table.table(group)
    tier = inner.choice("tier", TIER_NAMES, "")
    taken = ((name, inner.take(name, float, None)) for name in BOUNDS)
    bounds = {name: bound for name, bound in taken if bound is not None}
    inner.done()
    try:
        base = TIERS[tier].for_group(group) if tier else None
        tolerance = replace(base, **bounds) if base else Tolerance(**bounds)
    except SpecError as error:
        text = str(error)
        raise inner.error(text) from None
    return Rule(tolerance=tolerance, tier=tier, source=inner.where())
