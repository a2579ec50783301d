"""The settings that change a case's numbers, one at a time.

A change makes a new case from a case, and `explain` runs it. The settings of a runtime
are in its declaration (`harness.core.runtime.Setting`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.case import AT, EXPORTERS, GIVEN, HERE, Case, Device, Variant
from harness.core.environment import version_of
from harness.core.runtime import EXACT, Setting, runtime
from harness.core.toml_file import dotted
from harness.suite.places import kind_of

EXPORT = "export"

_KEPT = 32
"""The largest number of values that one --keep names."""

_LENGTHS = (16, 48, 80, 112, 144, 176)
"""Lengths of the file names that are used to convert a file again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One setting, and how to change it.

    Attributes:
        name: The setting as it is written: ``--useGeluApproximation=0``.
        cause: The cause of a divergence, which the change removes.
        part: The part of a case that has the setting: ``device``, ``variant`` or
            ``export``. Another export is another graph, which no excerpt shows.
        fields: The part's fields that change, to their new values.
        converts: Whether it is a flag of the runtime's converter.
        wide: Whether it acts on more of the graph than an excerpt around one value.
        gives_up: Whether it replaces the variant by another one; such a change is
            proposed last.
        finer: Changes that each undo a part of what this one undoes; they are tried if
            this one helps.
        lines: Keys of the target's table that make the changed case beside this one;
            empty if `fields` are written.

    """

    name: str
    cause: str
    part: str
    fields: Mapping[str, Any]
    converts: bool = False
    wide: bool = False
    gives_up: bool = False
    finer: tuple[SettingChange, ...] = ()
    lines: Mapping[str, Any] = field(default_factory=dict)

    @property
    def leaves_target(self) -> bool:
        """Whether the case runs in this process then."""
        return self.fields.get("target", self) is None

    def apply(self, case: Case) -> Case:
        """Return the case with the setting changed."""
        part: Any = replace(getattr(case, self.part), **self.fields)
        return replace(case, **{self.part: part})


def changes_of(
    case: Case,
    blamed: Sequence[str],
    lost: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> Iterator[SettingChange]:
    """Yield every change of a case's settings, those that cost least first.

    `blamed` are values with a local error; a variant may keep them in full precision.
    `lost` are values that float16 would lose, as `parity ranges` shows them. `nodes`
    are the nodes of the exported graph that make the blamed values; a target may run
    them elsewhere.
    """
    declared = runtime(case.backend)
    if lost and in_float16(case):
        cause = "float16 does not hold these values, or what they are computed from"
        keep = _flag(case, f"{declared.keep}{','.join(lost)}", cause)
        yield replace(keep, wide=True)
    yield from _session_changes(case, nodes)
    yield from _variant_changes(case, blamed)
    if not case.component.foreign:  # a foreign file is not exported here
        yield from _export_changes(case)


def finished_file(case: Case) -> str:
    """Return what cannot be set because a file is given as it is; or an empty text."""
    if not case.component.foreign or case.variant.kind != GIVEN:
        return ""
    return (
        f"{case.id} is a finished file: nothing of its export or conversion can be set "
        "here. Settings of the runtime alone are tried."
    )


def in_float16(case: Case) -> bool:
    """Whether a case computes in float16 and may exclude single values from that."""
    declared = runtime(case.backend)
    built_in = declared.variants.get(case.variant.kind)
    return bool(declared.keep and built_in and built_in.half)


def converted_again(case: Case) -> Iterator[Case]:
    """Yield cases to convert again, by flags that differ only in a name's length."""
    # The name changes no number, but it changes addresses in the converter's memory.
    rename = runtime(case.backend).rename
    for length in _LENGTHS if rename else ():
        yield _flag(case, f"{rename}{'again'.ljust(length, '-')}", "").apply(case)


def _session_changes(case: Case, nodes: Sequence[str]) -> Iterator[SettingChange]:
    device, declared = case.device, runtime(case.backend)
    kind = kind_of(device.target)
    given = dict(device.hints)
    for setting in declared.settings:
        # A case that already sets this flag has been changed before.
        changed = setting.name in given if setting.finer else False
        if setting.value is None or changed or given.get(setting.name) == setting.value:
            continue
        yield _hint(case, setting)
    if kind is not None:
        yield from kind.changes(case, nodes)
    yield from _changes_of_place(case)
    for name, value in device.provider_options:
        yield _change(
            "device",
            f"without {name} = {json.dumps(value)}",
            f"the option {name} of the provider {device.device}",
            provider_options=tuple(
                pair for pair in device.provider_options if pair[0] != name
            ),
        )
    usual = declared.devices[0]
    if device.device != usual and "device" not in _of_target(case):
        yield _change(
            "device",
            f'device = "{usual}"',
            f"arithmetic of {device.device}",
            device=usual,
            provider_options=(),
            cpu_nodes=0.0,
        )
    if device.tf32:
        cause = "products in TensorFloat-32"
        yield _change("device", "tf32 = false", cause, tf32=False)
    if device.threads > 1:
        cause = "an order of summation, or a race, that depends on threads"
        yield _change("device", "threads = 1", cause, threads=1)


def _changes_of_place(case: Case) -> Iterator[SettingChange]:
    """Yield the exact precision, and then this process or the version installed here.

    Another place computes in the exact precision, because a processor without float16
    refuses `low`. Nothing is offered where the runtime is not installed here.
    """
    device, declared = case.device, runtime(case.backend)
    exact, target = declared.precision, device.target
    precision = {"precision": exact} if declared.precisions else {}
    if precision and device.precision != exact:
        cause = f"precision {device.precision}"
        if target is not None and device.precision == declared.half:
            named = f"version {target.name}" if target.version else target.name
            cause = f"right in float32 arithmetic, wrong in {named}'s float16"
        yield _change("device", f'precision = "{exact}"', cause, **precision)
    here = version_of(declared)
    if target is None or not here:
        return
    name, cause = f'targets = ["{HERE}"]', f"right here, wrong on {target.name}"
    if target.version and not target.kind:
        name = f'versions = ["{here}"]'
        cause = f"right in version {here}, wrong in {target.version}"
    # What the target sets is as it is without a target.
    usual = {name: getattr(Device(), name) for name in _of_target(case)}
    yield _change("device", name, cause, target=None, **{**usual, **precision})


def _of_target(case: Case) -> dict[str, Any]:
    """Return the fields of the device that the target of a case sets."""
    return dict(case.device.target.device) if case.device.target else {}


def _change(part: str, name: str, cause: str, **fields: object) -> SettingChange:
    return SettingChange(name=name, cause=cause, part=part, fields=fields)


def _hint(case: Case, setting: Setting) -> SettingChange:
    hints = {**dict(case.device.hints), setting.name: setting.value or 0}
    change = _change(
        "device",
        f"{setting.name} = {setting.value or 0}",
        setting.cause,
        hints=tuple(sorted(hints.items())),
    )
    return replace(change, finer=tuple(_hint(case, finer) for finer in setting.finer))


def _flag(case: Case, flag: str, cause: str) -> SettingChange:
    return _change("variant", flag, cause, flags=(*case.variant.flags, flag))


def _variant_changes(case: Case, blamed: Sequence[str]) -> Iterator[SettingChange]:
    kind, declared = case.variant.kind, runtime(case.backend)
    for setting in declared.settings:
        fits = setting.value is None and kind in setting.kinds
        if fits and setting.name not in case.variant.flags:
            yield replace(_flag(case, setting.name, setting.cause), converts=True)
    yield from _without_own_flags(case)
    built_in = declared.variants.get(kind)
    if built_in is None or not built_in.blames:
        return
    finer: tuple[SettingChange, ...] = ()
    if declared.keep and blamed:
        keep = f"{declared.keep}{','.join(blamed[:_KEPT])}"
        finer = (_flag(case, keep, built_in.blames),)
    yield SettingChange(
        name=f"{EXACT} for {kind}",
        cause=built_in.blames,
        part="variant",
        fields={"kind": EXACT, "flags": ()},
        gives_up=True,
        finer=finer,
    )


def _without_own_flags(case: Case) -> Iterator[SettingChange]:
    """Yield a change for each flag of a variant of the user's own: leave it out."""
    keep = runtime(case.backend).keep
    for flag in case.variant.flags:
        if keep and flag.startswith(keep):  # it makes the file more exact
            continue
        change = _change(
            "variant",
            f"without {flag}",
            f"the flag {flag} of the variant {case.variant.name}",
            flags=tuple(other for other in case.variant.flags if other != flag),
        )
        yield replace(change, converts=True, wide=True)


def _export_changes(case: Case) -> Iterator[SettingChange]:
    export = case.export
    dynamo = export.exporter != "torchscript"
    if dynamo and export.optimize:
        cause = "what the optimiser of the exporter changes"
        yield _change(EXPORT, "optimize = false", cause, optimize=False)
    for exporter in EXPORTERS:
        if exporter != export.exporter:
            yield _change(
                EXPORT,
                f'exporter = "{exporter}"',
                f"what the {export.exporter} exporter writes",
                exporter=exporter,
                opset=17 if exporter == "torchscript" else 18,
            )
    if dynamo:
        later, cause = export.opset + 2, f"operators of opset {export.opset}"
        yield _change(EXPORT, f"opset = {later}", cause, opset=later)
    if any(spec.draw == "tokens" for spec in case.component.inputs):
        other = "sdpa" if export.attention == "eager" else "eager"
        cause = "how attention is written"
        yield _change(EXPORT, f'attention = "{other}"', cause, attention=other)


def plain_variant(case: Case, backend: str) -> Variant:
    """Return a runtime's variant in full precision.

    A foreign file is run as it is, under its name in the tolerances.
    """
    foreign = case.component.foreign
    name = GIVEN if foreign and foreign.of(runtime(backend).reads) else EXACT
    return Variant(name=name, backend=backend, kind=name)


def listed_as(case: Case, change: SettingChange) -> str:
    """Return the id that a suite gives to the changed case; empty if it stays the same.

    Another built-in variant, place, or precision of a list has an id of its own. Lines
    that remove the case would break those that name it, such as ``[target.phone]``.
    """
    if change.gives_up:
        return replace(case, variant=plain_variant(case, case.backend)).id
    if change.fields == {"flags": ()}:  # without them it is the built-in variant
        kind = case.variant.kind
        built_in = Variant(name=kind, backend=case.backend, kind=kind)
        return replace(case, variant=built_in).id
    where, own = case.where, case.device.target
    if change.leaves_target:
        where = ""
    elif own and (target := change.fields.get("target")):
        where = where.replace(own.name, target.name, 1)
    elif "precision" in change.fields:
        listed = f"(?:{AT}|-){re.escape(case.device.precision)}$"
        where = re.sub(listed, "", where)
    return "" if where == case.where else replace(case, where=where).id


def toml_of(case: Case, change: SettingChange) -> Iterator[str]:
    """Yield the lines of parity.toml that make a change of a case's settings.

    There are none if it makes a case that has an id of its own in the suite, unless
    that case needs them.
    """
    target = case.device.target
    if target and change.lines:
        yield f"[{dotted(('target', target.table))}]"
        for name, value in change.lines.items():
            yield f"{name} = {json.dumps(value)}"
        return
    if listed_as(case, change):
        return
    if change.part == "variant":
        # One component's name in it, so that another one's table is another table.
        own = f"{case.variant.name}-{case.component.name}"
        yield f"[{dotted(('variant', case.backend, own))}]"
        yield f'from = "{case.variant.kind}"'
        # Its flags may name values of this network.
        yield f'components = ["{case.component.name}"]'
    elif change.part == EXPORT:
        yield f"[{dotted(('component', case.component.name))}]"
    elif target and change.fields.keys() <= _of_target(case).keys():
        yield f"[{dotted(('target', target.table))}]"
    else:
        yield f"[backend.{case.backend}]"
    for name, value in change.fields.items():
        pairs = name in {"hints", "provider_options"}
        yield f"{name} = {_table(value) if pairs else json.dumps(value)}"


def _table(pairs: Iterable[tuple[str, object]]) -> str:
    """Return pairs as a table of TOML."""
    return f"{{ {', '.join(f'{name} = {json.dumps(one)}' for name, one in pairs)} }}"
