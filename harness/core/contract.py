"""The contract of a component's files, and the ways in which a file can break it.

One rule is used for every file: the exported graph, a transformed graph and a converted
file. Inputs and outputs are compared by name, count, order, dtype, number of axes, and
by the axes that must stay open.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.core.case import Component, ExportSettings, TensorSpec, symbol_of
from harness.core.onnx_ports import Port

FAINT = 1e-4
"""Smallest effect of an input that is judged, as a share of an output's size. If an
input changes PyTorch's outputs by less, it is not judged, because half precision rounds
such a change away."""

DEAD = 1e-3
"""Smallest effect of an input in a file, as a share of its effect in PyTorch. An input
with a smaller effect counts as unused."""

VALUE_RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "tokens": (0.0, math.inf),
        "segments": (0.0, math.inf),
        "mask": (0.0, 1.0),
        "image": (-1.0, 1.0),  # the range of diffusers' input of a VAE
        "hint": (0.0, 1.0),
    }
)
"""The smallest and the largest value of each kind of input. A kind that is not listed
has no limits."""

_SLACK: Final = 1e-3
"""Rounding error that is allowed, for example after a picture was resized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The inputs and outputs of a file, in the file's order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


_BATCH = "batch"
"""A part of the name of a batch axis; foreign files name it ``batch_size``."""


def is_batch(symbol: str) -> bool:
    """Whether an axis is one of items, by its name."""
    return _BATCH in symbol.lower()


def breach(
    component: Component,
    settings: ExportSettings | None,
    sides: Sides,
    *,
    where: str,
    ordered: bool = True,
    effects: Mapping[str, float] | None = None,
) -> str:
    """Return a message about the first promise that a file breaks, or "".

    Args:
        component: The component whose contract it is.
        settings: Settings that say which sizes must stay open; None if the file does
            not declare open sizes.
        sides: Inputs and outputs of the file.
        where: Name of the file in the message.
        ordered: Whether the file keeps an order of inputs and outputs.
        effects: Effect of each input on PyTorch's outputs, if that is known.

    """
    for side, promised, found in (
        ("inputs", component.inputs, sides.inputs),
        ("outputs", component.outputs, sides.outputs),
    ):
        names = [spec.name for spec in promised]
        actual = [value.name for value in found]
        if not ordered:
            names, actual = sorted(names), sorted(actual)
        if names != actual:
            text = (
                f"{component.name}: {where} has the {side} {actual}, the component "
                f"promises {names}."
            )
            lost = [name for name in names if name not in actual]
            if not lost and len(actual) == len(names):
                text += " The order is another one."
            elif side == "inputs" and lost:
                text += f" {_lost(lost[0], effects or {})}"
            return text
        by_name = {value.name: value for value in found}
        for spec in promised:
            value = by_name[spec.name]
            words = _kind(spec, value) if side == "inputs" else ""
            words = words or _axes(component, spec, value, side, settings)
            if words:
                return f"{component.name}: in {where}, {words}"
    return ""


def _lost(name: str, effects: Mapping[str, float]) -> str:
    """Return a sentence that says why an input may be missing."""
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


def _kind(spec: TensorSpec, value: Port) -> str:
    """Return a message if an input's dtype differs, or an empty text.

    The dtypes of outputs are checked when they are compared with the reference.
    """
    if not value.dtype or value.dtype == spec.dtype:
        return ""
    return (
        f"input {spec.name!r} takes {value.dtype}, the component gives {spec.dtype}; "
        "state the dtype that is deployed in the recipe's signature, or cast inside "
        "forward."
    )


def _axes(
    component: Component,
    spec: TensorSpec,
    value: Port,
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
        if not isinstance(size, int):
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
    """Return advice about sizes that a file of a component has fixed."""
    listed = ", ".join(repr(symbol) for symbol in symbols)
    if component.foreign is not None:
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


def beyond(spec: TensorSpec, low: float, high: float) -> str:
    """Return a message if values from `low` to `high` leave an input's range, or "".

    >>> hint = TensorSpec(name="controlnet_cond", shape=("batch",), draw="hint")
    >>> beyond(hint, 0.0, 255.0)
    "'controlnet_cond' holds values from 0 to 1, and is given 0 to 255"
    >>> beyond(hint, 0.0, 1.0)
    ''
    """
    least, most = VALUE_RANGES.get(spec.draw, (-math.inf, math.inf))
    # NaN passes here: both comparisons are false. It is judged in the outputs.
    if not (low < least - _SLACK or high > most + _SLACK):
        return ""
    span = f"from {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
    return f"{spec.name!r} holds values {span}, and is given {low:g} to {high:g}"
