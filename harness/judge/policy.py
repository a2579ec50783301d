"""Choose the tolerance of a value: read tolerances.toml and look it up.

    [onnxruntime.fp32]                  # backend.variant, for every component
    outputs = "strict"                  # a tier ...
    layers = "standard"

    [mnn.int8-weights]
    outputs = { tier = "quantized", sqnr_db = 30.0 }    # ... or a tier, bounds changed
    layers = "quantized"

    [unet.mnn.fp32]                     # component.backend.variant, narrower
    outputs = { tier = "standard", floors = 40.0 }
    why = "GroupNorm sums in another order; 21 floors when set"

    [mnn.fp32."@phone-low"]             # one target or precision, narrower too
    layers = "relaxed"
    why = "float16 arithmetic"

    [unet.mnn.fp32.probes."*.attn2.*"]  # narrower still: probe name or module path
    layers = { tier = "standard", floors = 64.0 }
    allow_constant = true
    why = "the mask is one value everywhere for a full prompt"

The narrowest table that states a key decides that key; each key is decided alone. If
two probe patterns match whose tables state it, the first one in the file decides.
Patterns are shell patterns: ``*`` also crosses dots, and ``[`` must be written
``[[]``. A variant may also be a pattern, as in ``[mixed."*"]``: the backend of a
pipeline with several runtimes is `mixed`. A table of a target is narrower than every
table without one, also than those of a component: float16 arithmetic changes more than
the component does.

A table that loosens must give its reason in `why`. Looser means: looser than the tier
that it names, or than the wider table that it narrows. Bounds without a tier, and
``allow_* = true``, also count as looser.

``within = "self-bf16"`` bounds an output or a picture by PyTorch's own error in
bfloat16, on the same sample. It may stand alone, or beside other bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import structs

from harness.core.case import AT, base_variant
from harness.core.end_to_end import IMAGE, MIXED
from harness.core.errors import SpecError, SuiteError
from harness.core.record import OUTPUTS, SELF
from harness.core.runtime import runtimes
from harness.core.text import count
from harness.core.toml_file import Table, TomlFile, did_you_mean, dotted
from harness.core.toml_schema import Keys, one_of, read
from harness.judge.tolerance import (
    BOUNDS,
    GROUPS,
    OF_PICTURES,
    TIER_NAMES,
    TIERS,
    BoundFields,
    Tolerance,
    check_word,
    first_tier,
    first_tiers,
)

JUDGED_WITHIN: Final = (OUTPUTS, IMAGE)
"""The groups of values that PyTorch also computes in fewer bits."""

FLAGS: Final = ("allow_nonfinite", "allow_constant", "allow_misread")

CaseName = tuple[str, str, str]
"""Names of component, backend and variant."""

Tier = Annotated[str, one_of(TIER_NAMES)]


class Bounds(BoundFields, frozen=True, kw_only=True):
    """A tier with some bounds changed, or bounds that stand alone.

    Attributes:
        tier: The tier that the bounds change.

    """

    tier: Tier | None = None


class Stated(Keys, frozen=True, kw_only=True):
    """How far values may be from their reference; wider tables decide the rest.

    Attributes:
        outputs: Tolerance of a component's outputs.
        layers: Tolerance of the values within a component.
        latents: Tolerance of a pipeline's latents at every step.
        image: Tolerance of a pipeline's pictures.
        allow_nonfinite: NaN and infinities may be there, at the same places.
        allow_constant: One value everywhere is not suspicious.
        allow_misread: A reader may see something else in a picture, and an output of
            booleans, or of integers of 32 or 64 bits, may differ within its tolerance.
        why: The reason of what is looser than the tier, or than a wider table.

    """

    outputs: Tier | Bounds | None = None
    layers: Tier | Bounds | None = None
    latents: Tier | Bounds | None = None
    image: Tier | Bounds | None = None
    allow_nonfinite: bool | None = None
    allow_constant: bool | None = None
    allow_misread: bool | None = None
    why: str = ""


class StatedOfComponent(Stated, frozen=True, kw_only=True):
    """How far the values of one component may be from their reference.

    Attributes:
        probes: Narrower tables by a shell pattern over probe names and module paths.

    """

    probes: dict[str, Stated] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The tolerance of one value with the flags of `Stated`, and where it was written.

    Attributes:
        tolerance: Bounds of the value.
        tier: Tier from which the bounds start; empty for bounds without a tier.
        why: Reason from the narrowest table that gives one.
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
    """One table of tolerances.toml.

    Attributes:
        case: Component (empty in the widest tables), backend and variant of the table,
            with the target or precision as in ids.
        pattern: Pattern of the probes to which it applies; empty for all.
        rules: Rule of each group that the table states, still without the flags.
        stated: Table as it was read. A key that is None is left to a wider table.
        source: ``path:line`` of the table's header.

    """

    case: CaseName
    pattern: str
    rules: Mapping[str, Rule]
    stated: Stated
    source: str

    @property
    def why(self) -> str:
        """The table's reason for anything in it that loosens."""
        return self.stated.why.strip()

    @property
    def header(self) -> str:
        """The table's header, as in the file."""
        return f"[{dotted(key_path(self.case, self.pattern))}]"

    def covers(self, case: CaseName) -> bool:
        """Whether the table applies to this case, without regard to its pattern."""
        component, backend, variant = self.case
        return (
            component in {"", case[0]}
            and backend == case[1]
            and _is_variant(case[2], variant)
        )

    def matches(self, names: Iterable[str]) -> bool:
        """Whether one of a probe's names matches the pattern; true without one."""
        return not self.pattern or any(fnmatchcase(n, self.pattern) for n in names)


def key_path(case: CaseName, pattern: str = "") -> tuple[str, ...]:
    """Return the path of a table in the file.

    >>> key_path(("", "mnn", "fp32@phone-low"))
    ('mnn', 'fp32', '@phone-low')
    """
    variant, at, place = case[2].partition(AT)
    path = (*case[:2], variant, at + place)
    return (*filter(None, path), *(("probes", pattern) if pattern else ()))


def _is_variant(how: str, pattern: str) -> bool:
    """Whether a table's variant is that of a case: in all places, or in its own."""
    return fnmatchcase(how, pattern) or fnmatchcase(base_variant(how), pattern)


def _read_scopes(root: Table) -> Iterator[Scope]:
    """Yield every table of a file, in order.

    Raises:
        SuiteError: A word is unknown, a bound is not possible, or a table states
            nothing.

    """
    backends = (*runtimes(), MIXED)
    for name, table in root.children():
        component = "" if name in backends else name
        for backend, variants in table.children() if component else [(name, table)]:
            if backend not in backends:
                raise _unknown_backend(table, name, backend)
            for variant, inner in variants.children():
                yield from _of_variant(inner, (component, backend, variant))


def _unknown_backend(table: Table, name: str, backend: str) -> SuiteError:
    # [onnxruntim.fp32] would be component "onnxruntim" on backend "fp32".
    if close := get_close_matches(name, runtimes(), n=1):
        text = f"unknown backend {name!r}; did you mean {close[0]!r}?"
    else:
        text = f"unknown backend {backend!r}; {did_you_mean(backend, runtimes())}"
    return table.error(text, backend)


def _of_variant(table: Table, case: CaseName) -> Iterator[Scope]:
    """Yield the tables of a variant, of its targets and precisions, and of probes."""
    component, backend, variant = case
    if AT in variant:
        path = dotted((*table.at[:-1], *key_path(("", "", variant))))
        text = f"a target has a table of its own; write [{path}]."
        raise table.error(text)
    places = [key for key in table.data if key.startswith(AT)]
    own = {key: value for key, value in table.data.items() if key not in places}
    for place in ("", *places):
        inner = table.table(place) if place else replace(table, data=own)
        stated = read(inner, StatedOfComponent if component else Stated)
        probes = stated.probes if isinstance(stated, StatedOfComponent) else {}
        here = (component, backend, variant + place)
        is_parent = bool(probes) or (not place and bool(places))
        yield _scope(stated, here, is_parent=is_parent)
        for pattern, narrow in probes.items():
            if not pattern:
                text = 'a probe pattern is empty; "*" matches every probe.'
                raise narrow.error(text)
            yield _scope(narrow, here, pattern)


def _scope(
    stated: Stated, case: CaseName, pattern: str = "", *, is_parent: bool = False
) -> Scope:
    """Return a table; only the parent of others may state nothing itself."""
    rules = {group: _stated_rule(stated, group) for group in GROUPS}
    scope = Scope(
        case=case,
        pattern=pattern,
        rules={group: rule for group, rule in rules.items() if rule},
        stated=stated,
        source=stated.place.where(),
    )
    flags = {getattr(stated, flag) for flag in FLAGS}
    if not scope.rules and flags == {None} and not is_parent:
        text = f'{scope.header} states nothing; give it {GROUPS[0]} = "standard".'
        raise stated.error(text)
    return scope


def _stated_rule(table: Stated, group: str) -> Rule | None:
    stated: str | Bounds | None = getattr(table, group)
    if stated is None:
        return None
    bounds = structs.asdict(stated) if isinstance(stated, Bounds) else {}
    if bounds.get("within") and group not in JUDGED_WITHIN:
        text = (
            f"within is for {' and '.join(JUDGED_WITHIN)}; {group} need another bound."
        )
        raise table.error(text, group)
    tier = bounds.pop("tier", None) or "" if bounds else str(stated)
    changes = {name: bound for name, bound in bounds.items() if bound is not None}
    with table.place.errors_at(group):
        base = TIERS[tier][group] if tier else None
        tolerance = structs.replace(base, **changes) if base else Tolerance(**changes)
    return Rule(tolerance=tolerance, tier=tier, source=table.place.where(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The content of tolerances.toml, and the changes from the command line.

    Attributes:
        path: Path of the file.
        scopes: Tables of the file, in file order.
        tier: Tier that replaces the file's tolerance of every value; empty for none.
        changes: Bounds changed in every tolerance, as sorted pairs.

    """

    path: Path
    scopes: tuple[Scope, ...] = field(repr=False)
    tier: str = ""
    changes: tuple[tuple[str, float], ...] = ()
    # A value has one rule in all samples, and a run has 100,000 rows.
    _found: dict[tuple[CaseName, str, str, str], Rule] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read tolerances.toml.

        Raises:
            SuiteError: The file is not TOML, a word in it is unknown, a bound is not
                possible, or something looser has no `why`.

        """
        if not path.exists():
            msg = (
                f"{path}: there is no such file. Write it; for one variant it may be "
                '[onnxruntime.fp32] with outputs = "standard" and layers = "standard" '
                "(docs/bounds.md). `parity init` writes one for a checkpoint."
            )
            raise SuiteError(msg)
        return cls.of(TomlFile.load(path))

    @classmethod
    def of(cls, file: TomlFile) -> Policy:
        """Return the policy of a file that was read; see `load`."""
        scopes = tuple(_read_scopes(file.root))
        for scope in scopes:
            if not scope.why and (loose := next(_loosens(scope, scopes), None)):
                what, source = loose
                msg = f'{source}: {what}; add why = "..." to {scope.header}.'
                raise SuiteError(msg)
        return cls(path=file.path, scopes=scopes)

    def for_probe(
        self, case: CaseName, *, group: str, probe: str, module: str = ""
    ) -> Rule:
        """Return the rule for one value of a case.

        `group` is one of `GROUPS`. Patterns are compared with the name of the probe,
        and with the path of its `module`.

        Raises:
            SuiteError: No table states a tolerance for this value.
            SpecError: A changed bound does not fit the others.

        """
        value = case, group, probe, module
        if value not in self._found:
            self._found[value] = self._rule(*value)
        return self._found[value]

    def _rule(self, case: CaseName, group: str, probe: str, module: str) -> Rule:
        check_word("group", group, GROUPS)
        names = [name for name in (probe, module) if name]
        chain = _chain(self.scopes, case, names)
        rule = next((s.rules[group] for s in chain if group in s.rules), None)
        if self.tier:
            given = TIERS[self.tier][group]
            rule = Rule(tolerance=given, tier=self.tier, source="--tier")
        if rule is None:
            raise self._none([(case, group, ())])
        flags: dict[str, Any] = {}
        for scope in reversed(chain):  # the narrowest one is the last to decide
            stated = {flag: getattr(scope.stated, flag) for flag in FLAGS}
            flags |= {flag: on for flag, on in stated.items() if on is not None}
        return replace(
            rule,
            tolerance=self._changed(rule.tolerance, group),
            **flags,
            why=next((s.why for s in chain if s.why), ""),
        )

    def require(self, checks: Iterable[tuple[CaseName, str, Collection[str]]]) -> None:
        """Refuse checks without a tolerance, before anything runs for them.

        Args:
            checks: For each check its component, backend and variant; its group, one
                of `GROUPS`; and the built-in variants from which it is made, whose
                tier the message proposes.

        Raises:
            SuiteError: Some have no tolerance; the message has every missing table.

        """
        if lacking := [check for check in checks if not self.states(*check[:2])]:
            raise self._none(lacking)

    def states(self, case: CaseName, group: str) -> bool:
        """Whether a table states a tolerance for a group of values of a case."""
        scopes = (scope for scope in self.scopes if group in scope.rules)
        return bool(self.tier) or any(scope.covers(case) for scope in scopes)

    def _none(
        self, checks: Iterable[tuple[CaseName, str, Collection[str]]]
    ) -> SuiteError:
        cases: dict[str, dict[str, None]] = {}
        tables: dict[str, dict[str, None]] = {}
        for case, group, made in checks:
            _, backend, variant = case
            variant = base_variant(variant)
            tier = first_tier(made or [f"{backend}.{variant}"])
            if backend == MIXED:
                variant = "*"  # one table serves all mixtures
            header = f"[{dotted((backend, variant))}]"
            tables.setdefault(header, {})[f'{group} = "{tier}"'] = None
            cases.setdefault("/".join(case), {})[group] = None
        (first, groups), *others = cases.items()
        more = f" and {count(len(others), 'other case')}" if others else ""
        added = (f"{' and '.join(keys)} under {head}" for head, keys in tables.items())
        what = f"no {' or '.join(groups)} tolerance for {first}{more}"
        return SuiteError(f"{self.path}: {what}; add {', '.join(added)}.")

    def within(self, case: CaseName) -> tuple[str, ...]:
        """Return the names of `SELF` by which a case's tolerances bound values."""
        if self.tier:
            return ()
        plain = _chain(self.scopes, case, ())
        narrow = [s for s in self.scopes if s.pattern and s.covers(case)]
        found = {
            scope.rules[group].tolerance.within
            for group in JUDGED_WITHIN
            for scope in (
                *[one for one in plain if group in one.rules][:1],
                *[one for one in narrow if group in one.rules],
            )
        }
        return tuple(name for name in SELF if name in found)

    def with_tier(self, tier: str) -> Policy:
        """Return a policy that judges every value by one tier.

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
        """Return the tables that decide nothing in a suite, and what it lacks.

        A table for all components of a built-in variant is not stale if the suite has
        the backend. It holds the tolerance for the day when the suite lists that
        variant.
        """
        return tuple(
            (scope, words)
            for scope in self.scopes
            if (words := _unknown(scope.case, components, variants_by_backend))
        )

    def unmatched_patterns(
        self, case: CaseName, names: Collection[str]
    ) -> tuple[str, ...]:
        """Return a complaint about each probe pattern that matches no name.

        `names` are all probe names and module paths of the case.
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
            return structs.replace(tolerance, **changes)
        except SpecError as error:
            words = " ".join(f"{name}={value:g}" for name, value in self.changes)
            msg = f"{words} does not fit the tolerance of {group}: {error}"
            raise SpecError(msg) from None


def _unknown(
    case: CaseName,
    components: Collection[str],
    variants_by_backend: Mapping[str, Collection[str]],
) -> str:
    """Return the part of a table's case that the suite lacks, with a proposal."""
    component, backend, variant = case
    variants = sorted(variants_by_backend.get(backend, ()))
    if component and component not in components:
        return f"component {component!r}; {did_you_mean(component, components)}"
    built_in = (
        backend in variants_by_backend and f"{backend}.{variant}" in first_tiers()
    )
    if (built_in and not component) or any(_is_variant(n, variant) for n in variants):
        return ""
    return f"variant {variant!r} for {backend}; {did_you_mean(variant, variants)}"


def _chain(
    scopes: Iterable[Scope], case: CaseName, names: Collection[str]
) -> list[Scope]:
    """Return the scopes that apply to a probe, the narrowest first."""
    covering = [s for s in scopes if s.covers(case) and s.matches(names)]
    own = {case[2], base_variant(case[2])}
    chain: list[Scope] = []
    for names_place in (True, False):  # whether it is of a target or of a precision
        some = [scope for scope in covering if (AT in scope.case[2]) is names_place]
        chain += [scope for scope in some if scope.pattern]
        # A table with a component is narrower than one without. A variant is narrower
        # than a pattern of variants.
        chain += sorted(
            (scope for scope in some if not scope.pattern),
            key=lambda scope: (not scope.case[0], scope.case[2] not in own),
        )
    return chain


def _loosens(scope: Scope, scopes: tuple[Scope, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a table loosens, and the place where it does."""
    for flag in FLAGS:
        if getattr(scope.stated, flag):
            yield f"{flag} loosens", scope.source
    plain = [other for other in scopes if not other.pattern]
    for group, rule in scope.rules.items():
        if not rule.tier:
            yield f"{group} states bounds of its own", rule.source
            continue
        tier = TIERS[rule.tier][group]
        wider = {f"tier {rule.tier!r}": rule.tolerance.looser_bounds(tier)}
        for base in _replaced(scope, plain, group):
            wider[base.header] = _loosened(rule, base.rules[group])
        for name, looser in wider.items():
            if looser:
                yield (
                    f"{group} is looser than {name} ({', '.join(looser)})",
                    rule.source,
                )


def _replaced(scope: Scope, plain: Collection[Scope], group: str) -> Iterator[Scope]:
    """Yield each wider table that would decide in place of `scope`.

    A variant's pattern also covers variants that other tables name exactly, and a table
    of all components also covers those that other tables name.
    """
    component, backend, variant = scope.case
    there = [s.case for s in plain if s.case[1] == backend]
    components = [component] if component else sorted({"", *(c for c, _, _ in there)})
    covered = {name for _, _, name in there if fnmatchcase(name, variant)}
    for case in product(components, [backend], sorted(covered | {variant})):
        chain = [s for s in _chain(plain, case, ()) if group in s.rules]
        if scope not in chain[1:]:  # otherwise a narrower table decides
            yield from [other for other in chain if other is not scope][:1]


def _loosened(rule: Rule, wider: Rule) -> tuple[str, ...]:
    if not wider.tier or rule.tier == wider.tier:
        return rule.tolerance.looser_bounds(wider.tolerance)
    if TIER_NAMES.index(rule.tier) > TIER_NAMES.index(wider.tier):
        return (f"tier {rule.tier!r} for {wider.tier!r}",)
    # A tighter tier may state other bounds than the looser tier that it replaces.
    return rule.tolerance.looser_bounds(wider.tolerance, stated_only=True)
