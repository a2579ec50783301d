"""Compare the inputs and outputs of a file with those that its component promises.

One rule is used for every file: the exported graph, a transformed graph and a converted
file. Inputs and outputs are compared by name, count, order, dtype, number of axes, and
by the axes that must stay open.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.case import Component, ExportSettings, TensorSpec, symbol_of
from harness.core.contract import Sides, unfreeze
from harness.core.onnx_ports import Port
from harness.measure.named_arrays import Run
from harness.plugins.contracts.runs.reference import Sizes, effects_at


def breach(
    component: Component,
    settings: ExportSettings | None,
    sides: Sides,
    *,
    where: str,
    ordered: bool = True,
    run: Run | None = None,
    sizes: Sizes = (),
) -> str:
    """Return a message about the first promise that a file breaks, or "".

    Args:
        component: The component whose contract it is.
        settings: Settings that say which sizes must stay open; None if the file does
            not declare open sizes.
        sides: Inputs and outputs of the file.
        where: Name of the file in the message.
        ordered: Whether the file keeps an order of inputs and outputs.
        run: PyTorch's module, to learn what an input that the file lacks does; or None.
        sizes: Sizes to call the module at.

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
                # It costs some runs, and matters only where an input was lost.
                tried = run if len(actual) < len(names) else None
                effects = effects_at(tried, component, sizes) if tried else {}
                text += f" {_lost(lost[0], effects)}"
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
