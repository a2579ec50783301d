"""What a component promises of its files, and how a file may break it.

One rule for every hop: the exported graph, a transformed one, a converted one. Inputs
and outputs are held by name, count, order, dtype, number of axes, and by the axes that
are to stay open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.core.case import Component, ExportSettings, TensorSpec, symbol_of

FAINT = 1e-4
"""Of an output's size: an input that moves PyTorch's outputs by less is not judged, for
half precision rounds such a change away."""

DEAD = 1e-3
"""Of its effect in PyTorch: an input that has less in a file has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One input or output as a file has it.

    Attributes:
        name: As the file calls it.
        dtype: As numpy calls it; empty where the file does not say.
        shape: Sizes, None for an open one; None where the file does not say.

    """

    name: str
    dtype: str = ""
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What a file takes and gives, in its order."""

    inputs: tuple[Found, ...]
    outputs: tuple[Found, ...]


def breach(
    component: Component,
    settings: ExportSettings | None,
    sides: Sides,
    *,
    where: str,
    ordered: bool = True,
    effects: Mapping[str, float] | None = None,
) -> str:
    """Return the first promise that a file breaks, in a sentence; empty if none.

    Args:
        component: Who promises.
        settings: Which sizes were to stay open; None where a file does not say it.
        sides: What the file has.
        where: The file, as it is called in the sentence.
        ordered: Whether the file keeps an order.
        effects: How much each input matters to PyTorch, if that is known.

    """
    for side, promised, found in (
        ("inputs", component.inputs, sides.inputs),
        ("outputs", component.outputs, sides.outputs),
    ):
        words = _names(component, side, promised, found, where, ordered, effects or {})
        if words:
            return words
        by_name = {value.name: value for value in found}
        for spec in promised:
            value = by_name[spec.name]
            if words := _kind(spec, value, side) or _axes(
                component, spec, value, side, settings
            ):
                return f"{component.name}: in {where}, {words}"
    return ""


def _names(  # noqa: PLR0917  # one sentence's whole circumstances
    component: Component,
    side: str,
    promised: Sequence[TensorSpec],
    found: Sequence[Found],
    where: str,
    ordered: bool,  # noqa: FBT001
    effects: Mapping[str, float],
) -> str:
    names, actual = [spec.name for spec in promised], [value.name for value in found]
    if not ordered:
        names, actual = sorted(names), sorted(actual)
    if names == actual:
        return ""
    text = (
        f"{component.name}: {where} has the {side} {actual}, the component promises "
        f"{names}."
    )
    lost = [name for name in names if name not in actual]
    if not lost and len(actual) == len(names):
        return f"{text} The order is another one."
    if side == "inputs" and lost:
        text += f" {_lost(lost[0], effects)}"
    return text


def _lost(name: str, effects: Mapping[str, float]) -> str:
    """Say why an input may have gone."""
    if name not in effects:
        return (
            f"{name!r} was dropped: the network does not use it, or it became a "
            "constant while the network was traced."
        )
    if effects[name] == 0.0:
        return (
            f"{name!r} was dropped, and PyTorch ignores it too: take it out of the "
            "recipe's inputs."
        )
    return (
        f"{name!r} was folded into a constant, for PyTorch's outputs depend on it: "
        "keep it a tensor in forward (no int(), .item() or Python branch on it), or "
        "try the other exporter."
    )


def _kind(spec: TensorSpec, value: Found, side: str) -> str:
    """Say that a dtype is another one; outputs are held against the reference's."""
    if side == "outputs" or not value.dtype or value.dtype == spec.dtype:
        return ""
    return (
        f"input {spec.name!r} takes {value.dtype}, the component gives {spec.dtype}; "
        "state the dtype that is deployed in the recipe's signature, or cast inside "
        "forward."
    )


def _axes(
    component: Component,
    spec: TensorSpec,
    value: Found,
    side: str,
    settings: ExportSettings | None,
) -> str:
    if value.shape is None or not spec.shape:
        return ""
    what = side.removesuffix("s")
    if len(value.shape) != len(spec.shape):
        return (
            f"{what} {spec.name!r} has {len(value.shape)} axes, the component promises "
            f"{len(spec.shape)}: {list(spec.shape)}."
        )
    for axis, (promised, size) in enumerate(zip(spec.shape, value.shape, strict=True)):
        if size is None:
            continue
        if isinstance(promised, int):
            if size != promised:
                return (
                    f"axis {axis} of {what} {spec.name!r} is {size}, the component "
                    f"promises {promised}."
                )
        elif settings is not None and symbol_of(promised) in settings.dynamic:
            return (
                f"axis {axis} of {what} {spec.name!r} is fixed at {size}, though "
                f"{symbol_of(promised)!r} is to stay open; "
                f"{unfreeze(component, (symbol_of(promised),))}"
            )
    return ""


def unfreeze(component: Component, symbols: Collection[str]) -> str:
    """Return what to do about sizes that a file of a component has fixed."""
    listed = ", ".join(repr(symbol) for symbol in symbols)
    if component.taken is not None:
        return (
            "that file was made by others: have them leave the axis open, or test this "
            f"size alone, with one [[component.{component.name}.shapes]] and "
            "more_sizes = false under [inputs]."
        )
    return (
        "forward makes a Python number of that size, or the exporter took it for a "
        "constant: use x.shape in tensor operations only, try the other exporter, or "
        f"leave {listed} out of dynamic_axes, so that each size gets a file of its own."
    )
