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
from fnmatch import fnmatchcase
from pathlib import Path

from harness.core.errors import SpecError, SuiteError
from harness.core.pipeline import MIXED
from harness.core.toml_file import TomlFile, did_you_mean, dotted
from harness.judge.scope import FLAGS, Case, Rule, Scope, read_scopes
from harness.judge.tolerance import (
    BOUNDS,
    GROUPS,
    OF_PICTURES,
    TIER_NAMES,
    TIERS,
    Tolerance,
    check_word,
    first_tier,
    first_tiers,
)


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
        scopes = tuple(read_scopes(TomlFile.load(path).root))
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
            raise self._none((component, backend, variant), group)
        return replace(
            rule,
            tolerance=self._changed(rule.tolerance, group),
            allow_nonfinite=_first(s.allow_nonfinite for s in chain),
            allow_constant=_first(s.allow_constant for s in chain),
            allow_misread=_first(s.allow_misread for s in chain),
            why=next((s.why for s in chain if s.why), ""),
        )

    def require(self, case: Case, group: str, made: Collection[str] = ()) -> None:
        """Refuse a check that no table speaks of, before anything is run for it.

        Args:
            case: Which.
            group: Of `GROUPS`.
            made: The built-in variants that it is made of, as `first_tiers` names
                them; their tier is proposed.

        Raises:
            SuiteError: None does.

        """
        stated = any(group in s.rules for s in self.scopes if s.covers(case))
        if not (stated or self.tier):
            raise self._none(case, group, made)

    def _none(self, case: Case, group: str, made: Collection[str] = ()) -> SuiteError:
        _, backend, variant = case
        tier = first_tier(made or [f"{backend}.{variant}"])
        if backend == MIXED:
            variant = "*"  # a table for each of a dozen mixtures is what nobody wants
        return SuiteError(
            f"{self.path}: no {group} tolerance for {'/'.join(case)}"
            f'; add {group} = "{tier}" under [{dotted((backend, variant))}].'
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

    def stale(
        self,
        components: Collection[str],
        variants_by_backend: Mapping[str, Collection[str]],
    ) -> tuple[tuple[Scope, str], ...]:
        """Return the tables that decide nothing in a suite, and what it has not.

        A table of a built-in variant for every component is not stale where the suite
        has the backend: it says what the variant is held to once it is listed.
        """
        return tuple(
            (scope, words)
            for scope in self.scopes
            if not _is_spare(scope, variants_by_backend)
            if (words := _unknown(scope.case, components, variants_by_backend))
        )

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


def _unknown(
    case: Case,
    components: Collection[str],
    variants_by_backend: Mapping[str, Collection[str]],
) -> str:
    """Return what of a table's case the suite has not, and what may be meant."""
    component, backend, variant = case
    variants = sorted(variants_by_backend.get(backend, ()))
    if component and component not in components:
        hint = did_you_mean(component, components)
        return f"component {component!r}; {hint}"
    if any(fnmatchcase(name, variant) for name in variants):
        return ""
    return f"variant {variant!r} for {backend}; {did_you_mean(variant, variants)}"


def _is_spare(scope: Scope, variants_by_backend: Mapping[str, object]) -> bool:
    component, backend, variant = scope.case
    built_in = f"{backend}.{variant}" in first_tiers()
    return not component and built_in and backend in variants_by_backend


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


def _require_why(scope: Scope, scopes: tuple[Scope, ...]) -> None:
    if scope.why:
        return
    for flag in FLAGS:
        if getattr(scope, flag):
            raise _no_why(scope, f"{flag} loosens", scope.source)
    plain = [other for other in scopes if not other.pattern]
    for group, rule in scope.rules.items():
        if not rule.tier:
            raise _no_why(scope, f"{group} states bounds of its own", rule.source)
        tier = TIERS[rule.tier].for_group(group)
        if looser := rule.tolerance.looser_bounds(tier):
            what = f"{group} is looser than tier {rule.tier!r} ({', '.join(looser)})"
            raise _no_why(scope, what, rule.source)
        for base in _replaced(scope, plain, group):
            if looser := _loosened(rule, base.rules[group]):
                what = f"{group} is looser than {base.header} ({', '.join(looser)})"
                raise _no_why(scope, what, rule.source)


def _replaced(scope: Scope, plain: Collection[Scope], group: str) -> Iterator[Scope]:
    """Yield each wider table that would decide where `scope` now does.

    A variant's pattern also covers variants that other tables state word for word.
    """
    component, backend, variant = scope.case
    stated = {s.case[2] for s in plain if s.case[1] == backend}
    covered = {name for name in stated if fnmatchcase(name, variant)}
    for name in sorted(covered | {variant}):
        case = (component, backend, name)
        chain = [s for s in _chain(plain, case, ()) if group in s.rules]
        if scope not in chain[1:]:  # there a narrower one decides, whatever this says
            yield from [other for other in chain if other is not scope][:1]


def _loosened(rule: Rule, wider: Rule) -> tuple[str, ...]:
    if not wider.tier or rule.tier == wider.tier:
        return rule.tolerance.looser_bounds(wider.tolerance)
    if TIER_NAMES.index(rule.tier) > TIER_NAMES.index(wider.tier):
        return (f"tier {rule.tier!r} for {wider.tier!r}",)
    # A tighter tier may state other bounds than the looser one it replaces.
    return rule.tolerance.looser_bounds(wider.tolerance, stated_only=True)


def _no_why(scope: Scope, what: str, source: str) -> SuiteError:
    return SuiteError(f'{source}: {what}; add why = "..." to {scope.header}.')
