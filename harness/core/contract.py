"""What a file promises of its inputs and outputs, and what breaks that.

Plug-ins compare it with the component: of the exported graph, of a transformed graph
and of a converted file.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harness.core.case import Component, ExportSettings
from harness.core.onnx_ports import Port
from harness.core.plugins import answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The inputs and outputs of a file, in the file's order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def is_batch(symbol: str) -> bool:
    """Whether an axis is one of items: foreign files name it ``batch_size``."""
    return "batch" in symbol.lower()


def breach(
    component: Component,
    settings: ExportSettings | None,
    sides: Sides,
    *,
    where: str,
    **about: object,
) -> str:
    """Return a message about the first promise that a file breaks, or "".

    Args:
        component: The component whose contract it is.
        settings: Settings that say which sizes must stay open; None if the file does
            not declare open sizes.
        sides: Inputs and outputs of the file.
        where: Name of the file in the message.
        **about: ``ordered``, whether the file keeps an order of inputs and outputs; and
            ``run``, PyTorch's module as a function, with ``sizes`` to call it at.

    """
    found = answers("interfaces", component, settings, sides, where=where, **about)
    return next(filter(None, found), "")


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
