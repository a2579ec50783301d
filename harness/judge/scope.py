"""One table of tolerances.toml, parsed. `policy` chooses among several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from msgspec import field
from msgspec.structs import asdict

from harness.core.errors import SpecError, SuiteError
from harness.core.pipeline import MIXED
from harness.core.runtime import runtimes
from harness.core.toml_file import Table, did_you_mean, dotted
from harness.core.toml_schema import Keys, json_schema, one_of, read
from harness.judge.tolerance import GROUPS, TIER_NAMES, TIERS, Tolerance

FLAGS: Final = ("allow_nonfinite", "allow_constant", "allow_misread")

Case = tuple[str, str, str]
"""Component, backend and variant."""

Tier = Annotated[str, one_of(TIER_NAMES)]


class Bounds(Keys, frozen=True, kw_only=True):
    """A tier with some bounds changed, or bounds that stand alone.

    Attributes:
        tier: The tier that the bounds change.
        rtol: Relative part, one of the rtol grid. It goes with `atol`.
        atol: Absolute part, in the unit of the value.
        floors: Most that the error's RMS may be, in noise floors.
        sqnr_db: Least ratio of signal to error, in decibels.
        cosine_distance: Most that one minus the cosine may be, from 0 to 2.
        psnr_db: Least ratio of a picture's peak to the error, in decibels.
        ssim: Least structural similarity of a picture.
        share: Share of elements that must lie within.
        cap: What `atol` is for the elements outside the share.

    """

    tier: Tier | None = None
    rtol: float | None = None
    atol: float | None = None
    floors: float | None = None
    sqnr_db: float | None = None
    cosine_distance: float | None = None
    psnr_db: float | None = None
    ssim: float | None = None
    share: float | None = None
    cap: float | None = None


class Stated(Keys, frozen=True, kw_only=True):
    """How far values may be from their reference; wider tables decide the rest.

    Attributes:
        outputs: Tolerance of a component's outputs.
        layers: Tolerance of the values within a component.
        latents: Tolerance of a pipeline's latents at every step.
        image: Tolerance of a pipeline's pictures.
        allow_nonfinite: NaN and infinities may be there, at the same places.
        allow_constant: One value everywhere is not suspicious.
        allow_misread: A reader may see something else in a picture.
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

    probes: dict[str, Stated] = field(default_factory=dict)


def tolerances_schema() -> dict[str, Any]:
    """Return the JSON Schema of tolerances.toml.

    Its first names are backends or components, which no schema can tell apart.
    """
    schema = json_schema(Stated, StatedOfComponent)
    wide, narrow = (
        {"$ref": f"#/$defs/{kind.__name__}"} for kind in (Stated, StatedOfComponent)
    )
    narrower = {"type": "object", "additionalProperties": narrow}
    tables = {"type": "object", "additionalProperties": {"anyOf": [wide, narrower]}}
    del schema["$ref"]
    return {
        **schema,
        "description": "Tolerances: tables [backend.variant], and narrower ones "
        "[component.backend.variant].",
        "type": "object",
        "additionalProperties": tables,
    }


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
                yield _scope(inner, read(inner, Stated), ("", name, variant))
            continue
        for backend, variants in table.children():
            if backend not in (*runtimes(), MIXED):
                raise _unknown_backend(table, name, backend)
            for variant, inner in variants.children():
                stated = read(inner, StatedOfComponent)
                case = (name, backend, variant)
                yield _scope(inner, stated, case, is_parent=bool(stated.probes))
                for pattern, narrow in inner.table("probes").children():
                    if not pattern:
                        text = 'a probe pattern is empty; "*" matches every probe.'
                        raise narrow.error(text)
                    yield _scope(narrow, stated.probes[pattern], case, pattern)


def _unknown_backend(table: Table, name: str, backend: str) -> SuiteError:
    # [onnxruntim.fp32] reads as component "onnxruntim" on backend "fp32".
    if close := get_close_matches(name, runtimes(), n=1):
        text = f"unknown backend {name!r}; did you mean {close[0]!r}?"
    else:
        text = f"unknown backend {backend!r}; {did_you_mean(backend, runtimes())}"
    return table.error(text, backend)


def _scope(
    table: Table,
    stated: Stated,
    case: Case,
    pattern: str = "",
    *,
    is_parent: bool = False,
) -> Scope:
    found = {group: _rule(table, group, getattr(stated, group)) for group in GROUPS}
    flags = {flag: getattr(stated, flag) for flag in FLAGS}
    scope = Scope(
        case=case,
        pattern=pattern,
        rules={group: rule for group, rule in found.items() if rule},
        **flags,
        why=stated.why.strip(),
        source=table.where(),
    )
    if not scope.rules and set(flags.values()) == {None} and not is_parent:
        text = f'{scope.header} states nothing; give it {GROUPS[0]} = "standard".'
        raise table.error(text)
    return scope


def _rule(table: Table, group: str, stated: str | Bounds | None) -> Rule | None:
    if stated is None:
        return None
    bounds = asdict(stated) if isinstance(stated, Bounds) else {}
    tier = bounds.pop("tier", None) or "" if bounds else str(stated)
    changes = {name: bound for name, bound in bounds.items() if bound is not None}
    try:
        base = TIERS[tier].for_group(group) if tier else None
        tolerance = replace(base, **changes) if base else Tolerance(**changes)
    except SpecError as error:
        text = str(error)
        raise table.error(text, group) from None
    return Rule(tolerance=tolerance, tier=tier, source=table.where(group))
