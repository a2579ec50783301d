"""Which tolerance a value is held to: tolerances.toml, parsed and looked up.

    [onnxruntime.fp32]                  # backend.variant, for every component
    outputs = "strict"                  # a tier ...
    layers = "standard"

    [mnn.int8-weights]
    outputs = { tier = "quantized", sqnr_db = 30.0 }    # ... or a tier, bounds changed
    layers = "quantized"

    [unet.mnn.fp32]                     # component.backend.variant, narrower
    outputs = { tier = "standard", floors = 40.0 }
    why = "GroupNorm sums in another order; 21 floors when set"

    [unet.mnn.fp32.probes."*.attn2.*"]  # narrower still: probe name or module path
    layers = { tier = "standard", floors = 64.0 }
    allow_constant = true
    why = "the mask is one value everywhere for a full prompt"

The narrowest table that states a thing decides it, thing by thing. Of two probe
patterns that both match, the first in the file does. Patterns are shell patterns:
``*`` also crosses dots, and ``[`` must be written ``[[]``. A variant may be one too,
as in ``[mixed."*"]``: a pipeline whose seats are taken by several runtimes is `mixed`.

A table that loosens gives its reason in `why`. Looser means: than the tier it names,
or than the wider table it narrows; bounds without a tier and ``allow_* = true`` count
as looser too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from harness.e2e.plan import MIXED
from harness.errors import SpecError, SuiteError
from harness.spec import BACKENDS
from harness.tolerance import (
    BOUNDS,
    GROUPS,
    OF_PICTURES,
    TIER_NAMES,
    TIERS,
    Tolerance,
    check_word,
)
from harness.toml_file import Table, TomlFile, did_you_mean, dotted

_FLAGS = ("allow_nonfinite", "allow_constant", "allow_misread")
_SIDES = (*BACKENDS, MIXED)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The parsed tolerances.toml, and what the command line puts in its place.

    Attributes:
        path: The file.
        scopes: Its tables in file order.
        tier: Given for every value in place of what the file says; empty if not.
        changes: Bounds changed in every tolerance, as sorted pairs.

    """

    path: Path
    scopes: tuple[Scope, ...] = field(repr=False)
    tier: str = ""
    changes: tuple[tuple[str, float], ...] = ()

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read tolerances.toml.

        Raises:
            SuiteError: It is not TOML, a word in it is unknown, a bound is nonsense,
                or something looser has no `why`.

        """
        scopes = tuple(_scopes(TomlFile.load(path).root))
        for scope in scopes:
            _require_why(scope, scopes)
        return cls(path=path, scopes=scopes)

    def for_probe(
        self,
        *,
        component: str,
        backend: str,
        variant: str,
        group: str,
        probe: str,
        module: str = "",
    ) -> Rule:
        """Return the rule for one value.

        `group` is one of `GROUPS`. Patterns match the name of the probe, and the path
        of the `module` it belongs to.

        Raises:
            SuiteError: No table states a tolerance for it.
            SpecError: A changed bound makes no sense with the others.

        """
        check_word("group", group, GROUPS)
        names = [name for name in (probe, module) if name]
        chain = _chain(self.scopes, (component, backend, variant), names)
        rule = next((s.rules[group] for s in chain if group in s.rules), None)
        if self.tier:
            given = TIERS[self.tier].for_group(group)
            rule = Rule(tolerance=given, tier=self.tier, source="--tier")
        if rule is None:
            msg = (
                f"{self.path}: no {group} tolerance for {component}/{backend}/{variant}"
                f'; add {group} = "standard" under [{dotted((backend, variant))}].'
            )
            raise SuiteError(msg)
        return replace(
            rule,
            tolerance=self._changed(rule.tolerance, group),
            allow_nonfinite=_first(s.allow_nonfinite for s in chain),
            allow_constant=_first(s.allow_constant for s in chain),
            allow_misread=_first(s.allow_misread for s in chain),
            why=next((s.why for s in chain if s.why), ""),
        )

    def with_tier(self, tier: str) -> Policy:
        """Return a policy that holds every value to one tier.

        Raises:
            SpecError: There is no such tier.

        """
        check_word("tier", tier, TIER_NAMES)
        return replace(self, tier=tier)

    def with_changes(self, changes: Mapping[str, float]) -> Policy:
        """Return a policy with some bounds changed in every tolerance.

        Raises:
            SpecError: There is no such bound.

        """
        for name in changes:
            check_word("bound", name, BOUNDS)
        merged = {**dict(self.changes), **changes}
        return replace(self, changes=tuple(sorted(merged.items())))

    def check_names(
        self,
        components: Collection[str],
        variants_by_backend: Mapping[str, Collection[str]],
    ) -> None:
        """Refuse tables about components and variants that the suite has not.

        Raises:
            SuiteError: A table names one; its settings would silently do nothing.

        """
        for scope in self.scopes:
            component, backend, variant = scope.case
            variants = variants_by_backend.get(backend, ())
            if component and component not in components:
                hint = did_you_mean(component, components)
                word = f"component {component!r}"
            elif not any(fnmatchcase(name, variant) for name in variants):
                hint = did_you_mean(variant, variants)
                word = f"variant {variant!r} for {backend}"
            else:
                continue
            msg = f"{scope.source}: the suite has no {word}; {hint}"
            raise SuiteError(msg)

    def unmatched_patterns(self, case: Case, names: Collection[str]) -> tuple[str, ...]:
        """Complain about each probe pattern of a case that matches none of `names`.

        `names` are all the probe names and module paths the case has.
        """
        return tuple(
            f"{scope.source}: {scope.header} matches no probe of {'/'.join(case)}."
            for scope in self.scopes
            if scope.pattern and scope.covers(case) and not scope.matches(names)
        )

    def _changed(self, tolerance: Tolerance, group: str) -> Tolerance:
        changes = {
            name: bound
            for name, bound in self.changes
            if group == "image" or name not in OF_PICTURES
        }
        try:
            return replace(tolerance, **changes)
        except SpecError as error:
            words = " ".join(f"{name}={value:g}" for name, value in self.changes)
            msg = f"{words} does not fit the tolerance of {group}: {error}"
            raise SpecError(msg) from None


def _first(flags: Iterable[bool | None]) -> bool:
    """Return the first that is stated; what nobody states is not allowed."""
    return next((flag for flag in flags if flag is not None), False)


def _chain(scopes: Iterable[Scope], case: Case, names: Collection[str]) -> list[Scope]:
    """Return the scopes that decide for a probe, narrowest first."""
    covering = [s for s in scopes if s.covers(case) and s.matches(names)]
    patterned = [scope for scope in covering if scope.pattern][:1]
    plain = [scope for scope in covering if not scope.pattern]
    # A component is narrower than none, and a variant than a pattern of them.
    return patterned + sorted(
        plain, key=lambda scope: (not scope.case[0], scope.case[2] != case[2])
    )


def _scopes(root: Table) -> Iterator[Scope]:
    for name, table in root.children():
        if name in _SIDES:
            for variant, inner in table.children():
                yield _scope(inner, ("", name, variant))
            continue
        for backend, variants in table.children():
            if backend not in _SIDES:
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
    if close := get_close_matches(name, BACKENDS, n=1):
        text = f"unknown backend {name!r}; did you mean {close[0]!r}?"
    else:
        text = f"unknown backend {backend!r}; {did_you_mean(backend, BACKENDS)}"
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
    flags = [getattr(scope, flag) for flag in _FLAGS]
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


def _require_why(scope: Scope, scopes: tuple[Scope, ...]) -> None:
    if scope.why:
        return
    for flag in _FLAGS:
        if getattr(scope, flag):
            raise _no_why(scope, f"{flag} loosens", scope.source)
    plain = [other for other in scopes if not other.pattern]
    wider = [other for other in _chain(plain, scope.case, ()) if other is not scope]
    for group, rule in scope.rules.items():
        if not rule.tier:
            raise _no_why(scope, f"{group} states bounds of its own", rule.source)
        tier = TIERS[rule.tier].for_group(group)
        if looser := rule.tolerance.looser_bounds(tier):
            what = f"{group} is looser than tier {rule.tier!r} ({', '.join(looser)})"
            raise _no_why(scope, what, rule.source)
        base = next((other for other in wider if group in other.rules), None)
        if base and (looser := _loosened(rule, base.rules[group])):
            what = f"{group} is looser than {base.header} ({', '.join(looser)})"
            raise _no_why(scope, what, rule.source)


def _loosened(rule: Rule, wider: Rule) -> tuple[str, ...]:
    if not wider.tier or rule.tier == wider.tier:
        return rule.tolerance.looser_bounds(wider.tolerance)
    if TIER_NAMES.index(rule.tier) > TIER_NAMES.index(wider.tier):
        return (f"tier {rule.tier!r} for {wider.tier!r}",)
    # A tighter tier may state other bounds than the looser one it replaces.
    return rule.tolerance.looser_bounds(wider.tolerance, stated_only=True)


def _no_why(scope: Scope, what: str, source: str) -> SuiteError:
    return SuiteError(f'{source}: {what}; add why = "..." to {scope.header}.')
