"""What can be turned to change a case's numbers, one setting at a time. Data.

A knob makes another case of a case; `explain` runs it. What a runtime has is in its
declaration (`harness.core.runtime.Setting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from harness.core.case import EXPORTERS, GIVEN, Case, Variant
from harness.core.runtime import EXACT, Runtime, Setting, runtime

_KEPT = 32
"""Values that one --keep names at most."""

_LENGTHS = (16, 48, 80, 112, 144, 176)
"""Of the names that a file is converted again by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One setting, and how to turn it.

    Attributes:
        name: As it is written: ``--useGeluApproximation=0``.
        cause: What is behind a divergence that it removes.
        turn: Returns the case with it turned.
        exports: It makes another graph, so that nothing cut out of this one shows it.
        converts: It is a flag of the runtime's converter.
        wide: It acts on more of the graph than what is cut around one value.
        gives_up: It leaves the variant for another; the last thing to propose.
        finer: Knobs that undo a part of what it undoes; tried where it helps.

    """

    name: str
    cause: str
    turn: Callable[[Case], Case]
    exports: bool = False
    converts: bool = False
    wide: bool = False
    gives_up: bool = False
    finer: tuple[Knob, ...] = ()


def knobs_of(
    case: Case, blamed: Sequence[str], lost: Sequence[str] = ()
) -> Iterator[Knob]:
    """Yield every knob that a case has, those that cost least first.

    Args:
        case: As it is.
        blamed: Values that part by themselves; a variant may leave them as they are.
        lost: Values that float16 would lose, as `parity ranges` names them.

    """
    declared = runtime(case.backend)
    if lost and in_float16(case):
        flag = f"{declared.keep}{','.join(lost)}"
        cause = "float16 does not hold these values, or what they are computed from"
        yield Knob(name=flag, cause=cause, turn=_flag(flag), wide=True)
    yield from _session(case, declared)
    if case.device.tf32:
        turn = _device(tf32=False)
        yield Knob(name="tf32 = false", cause="products in TensorFloat-32", turn=turn)
    if case.device.threads > 1:
        cause = "an order of summation, or a race, that depends on threads"
        yield Knob(name="threads = 1", cause=cause, turn=_device(threads=1))
    yield from _variant_knobs(case, blamed)
    yield from _export_knobs(case)


def in_float16(case: Case) -> bool:
    """Whether a case computes in float16 and may keep single values from that."""
    declared = runtime(case.backend)
    built_in = declared.variants.get(case.variant.kind)
    return bool(declared.keep and built_in and built_in.half)


def together(one: Knob, two: Knob) -> Knob:
    """Return two knobs turned at once."""
    return Knob(
        name=f"{one.name} and {two.name}",
        cause=f"{one.cause}, and {two.cause}",
        turn=lambda case: two.turn(one.turn(case)),
        exports=one.exports or two.exports,
        wide=one.wide or two.wide,
    )


def pairs_of(case: Case, helping: Sequence[Knob]) -> Iterator[Knob]:
    """Yield what is worth turning at once where no knob alone mends a case.

    These are the knobs that help, and another exporter with another attention: each
    exporter has its own way to write each attention, so that neither need help alone.

    Args:
        case: As it is.
        helping: Knobs that remove some of its error, in order of trying.

    """
    exports = product(_exporters(case), _attentions(case))
    pairs = [together(*pair) for pair in (*combinations(helping, 2), *exports)]
    yield from {pair.name: pair for pair in pairs}.values()


def again(case: Case) -> Iterator[Case]:
    """Yield a case converted again, by flags that differ in a name's length.

    Nothing that it computes depends on the name; where things lie in the converter's
    memory does.
    """
    rename = runtime(case.backend).rename
    for length in _LENGTHS if rename else ():
        yield _flag(f"{rename}{'again'.ljust(length, '-')}")(case)


def _session(case: Case, declared: Runtime) -> Iterator[Knob]:
    given = dict(case.device.hints)
    for setting in declared.settings:
        # A case that says how far to rewrite has been turned already.
        turned = setting.name in given if setting.finer else False
        if setting.value is None or turned or given.get(setting.name) == setting.value:
            continue
        yield _hinted(setting)
    if case.device.precision != declared.precision:
        yield Knob(
            name=f'precision = "{declared.precision}"',
            cause=f"precision {case.device.precision}",
            turn=_device(precision=declared.precision),
        )


def _hinted(setting: Setting) -> Knob:
    value = setting.value or 0
    return Knob(
        name=f"{setting.name} = {value}",
        cause=setting.cause,
        turn=_hint({setting.name: value}),
        finer=tuple(map(_hinted, setting.finer)),
    )


def _variant_knobs(case: Case, blamed: Sequence[str]) -> Iterator[Knob]:
    kind, declared = case.variant.kind, runtime(case.backend)
    for setting in declared.settings:
        flag = setting.name
        fits = setting.value is None and kind in setting.kinds
        if fits and flag not in case.variant.flags:
            turn = _flag(flag)
            yield Knob(name=flag, cause=setting.cause, turn=turn, converts=True)
    built_in = declared.variants.get(kind)
    if built_in is None or not built_in.blames:
        return
    finer: tuple[Knob, ...] = ()
    if declared.keep and blamed:
        flag = f"{declared.keep}{','.join(blamed[:_KEPT])}"
        finer = (Knob(name=flag, cause=built_in.blames, turn=_flag(flag)),)
    yield Knob(
        name=f"{EXACT} for {kind}",
        cause=built_in.blames,
        turn=_exact,
        gives_up=True,
        finer=finer,
    )


def _export_knobs(case: Case) -> Iterator[Knob]:
    export = case.export
    yield from _exporters(case)
    if export.exporter == "dynamo" and not case.component.taken:
        yield Knob(
            name=f"opset = {export.opset + 2}",
            cause=f"operators of opset {export.opset}",
            turn=_export(opset=export.opset + 2),
            exports=True,
        )
    yield from _attentions(case)


def _exporters(case: Case) -> Iterator[Knob]:
    if case.component.taken:
        return  # it is not exported here
    for exporter in EXPORTERS:
        if exporter != case.export.exporter:
            opset = 17 if exporter == "torchscript" else 18
            yield Knob(
                name=f'exporter = "{exporter}"',
                cause=f"what the {case.export.exporter} exporter writes",
                turn=_export(exporter=exporter, opset=opset),
                exports=True,
            )


def _attentions(case: Case) -> Iterator[Knob]:
    if case.component.taken:
        return
    if any(spec.draw == "tokens" for spec in case.component.inputs):
        other = "sdpa" if case.export.attention == "eager" else "eager"
        yield Knob(
            name=f'attention = "{other}"',
            cause="how attention is written",
            turn=_export(attention=other),
            exports=True,
        )


def _device(**changes: object) -> Callable[[Case], Case]:
    return lambda case: replace(case, device=replace(case.device, **changes))  # type: ignore[arg-type]  # fields by name


def _export(**changes: object) -> Callable[[Case], Case]:
    return lambda case: replace(case, export=replace(case.export, **changes))  # type: ignore[arg-type]  # fields by name


def _hint(hints: dict[str, int]) -> Callable[[Case], Case]:
    def turn(case: Case) -> Case:
        merged = tuple(sorted({**dict(case.device.hints), **hints}.items()))
        return replace(case, device=replace(case.device, hints=merged))

    return turn


def _flag(flag: str) -> Callable[[Case], Case]:
    def turn(case: Case) -> Case:
        flags = (*case.variant.flags, flag)
        return replace(case, variant=replace(case.variant, flags=flags))

    return turn


def _exact(case: Case) -> Case:
    return replace(case, variant=replace(case.variant, kind=EXACT, flags=()))


def plain_variant(case: Case, backend: str) -> Variant:
    """Return how a runtime has a case's network in full precision.

    A file of others is run as it is, under the name that tolerances know it by.
    """
    taken = case.component.taken
    theirs = taken and taken.of(runtime(backend).reads)
    name = GIVEN if theirs else EXACT
    return Variant(name=name, backend=backend, kind=name)


def toml_of(before: Case, after: Case) -> Iterator[str]:
    """Yield the lines of parity.toml that make one case of another."""
    if before.device != after.device:
        yield f"[backend.{after.backend}]"
        for name in ("threads", "precision", "tf32", "hints"):
            value = getattr(after.device, name)
            if value != getattr(before.device, name):
                yield f"{name} = {_toml(value)}"
    if before.variant.kind != after.variant.kind:
        yield f"[backend.{after.backend}]"
        yield f'variants = ["{after.variant.kind}"]'
    elif before.variant.flags != after.variant.flags:
        yield f"[variant.{after.backend}.{after.variant.name}-mended]"
        yield f'from = "{after.variant.kind}"'
        yield f"flags = {_toml(after.variant.flags)}"
    if before.export != after.export:
        yield f"[component.{after.component.name}]"
        for name in ("exporter", "opset", "attention"):
            value = getattr(after.export, name)
            if value != getattr(before.export, name):
                yield f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if not isinstance(value, tuple):
        return str(value)
    if value and isinstance(value[0], tuple):
        pairs = ", ".join(f"{name} = {number}" for name, number in value)
        return f"{{ {pairs} }}"
    return f"[{', '.join(_toml(each) for each in value)}]"
