"""Forecast the memory that a stage needs, before it starts: weights times a factor.

A `Cost` has the factor of a stage. Each was measured, and
`benchmarks/bench_forecast.py` measures them again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from harness.core.case import CAPTURED, GIVEN, Case, Component
from harness.core.errors import SuiteError
from harness.core.memory import Need
from harness.core.runtime import Cost, runtime
from harness.recipes import RECIPES, weight_folders
from harness.recipes.calls import read_captured
from harness.recipes.checkpoint import (
    check_weights,
    likely_files,
    shapes_of,
)

FLOAT32_BYTES: Final = 4

# Measured on SD 1.5's ControlNet (1.35 GiB of weights) and its UNet (3.2 GiB), like the
# costs that the runtimes declare. A base includes the process that stages are forked
# from, because the peak of a single stage does not show it. Pages of mapped files are
# not counted, because the system can free them.
_TORCH: Final = Cost(
    words="exporting {component} and recording its reference in float64",
    base=700,
    copies=1.5,
)
# All weights in float64 at once, and all of the graph in one message.
_TORCHSCRIPT: Final = replace(_TORCH, copies=3.5)

# More copies in PyTorch if another attention makes the exported copy a second network:
# SD 1.5's text encoder (0.46 GiB) takes 1.8 GiB.
_REWRITTEN: Final = 1.5

CONVERT: Final = "convert-"
"""The prefix of the name of a host that converts for a runtime."""


def need_of(case: Case, host: str, weights: int) -> Need | None:
    """Return the forecast memory of one stage of a case; None if it is unknown.

    Args:
        case: The case of the stage.
        host: ``torch``, a runtime's name, or `CONVERT` and a runtime's name.
        weights: Bytes of the component's weights in float32; 0 if they are unknown.

    """
    name = case.component.name
    return cost_of(case, host).need(name, weights) if weights else None


def cost_of(case: Case, host: str) -> Cost:
    """Return the cost of a stage of a case."""
    if host == "torch":
        cost = _TORCHSCRIPT if case.export.exporter == "torchscript" else _TORCH
        more = _REWRITTEN if case.export.attention else 0.0
        return replace(cost, copies=cost.copies + more)
    if not host.startswith(CONVERT):
        return runtime(host).cost(case.variant.kind)
    # A variant's conversion needs less memory only with external weights.
    kind = case.variant.kind if case.export.external_data else ""
    return runtime(host.removeprefix(CONVERT)).cost_of_making(kind)


def stored_weights(component: Component) -> int | None:
    """Return the bytes of a checkpoint's weights in float32, from their headers alone.

    The result is None if they are drawn from a seed, or are not safetensors.

    Raises:
        SuiteError: A recipe of the harness cannot load them.

    """
    source = component.source
    if component.recipe == CAPTURED:
        return read_captured(source.path).parameters * FLOAT32_BYTES
    if source.seed is not None or component.recipe == GIVEN:
        return None
    homes = weight_folders(component.recipe, source, component.options)
    if component.recipe in RECIPES:
        # Files that loading would refuse are refused here, before a process starts.
        files = [file for home in homes for file in check_weights(source, home)]
        return sum(map(_elements, files)) * FLOAT32_BYTES
    # A user's own recipe may read any file of a folder, so the files are not checked.
    with suppress(SuiteError):
        files = _likely(component)
        return sum(map(_elements, files)) * FLOAT32_BYTES if files else None
    return None


def files_bytes(component: Component) -> int:
    """Return the bytes of the files of a component's weights; 0 where they are drawn.

    No header is read, so the result may be of float16.

    Raises:
        OSError: A file cannot be looked at.

    """
    if component.recipe == CAPTURED:
        return stored_weights(component) or 0
    if component.source.seed is not None or component.recipe == GIVEN:
        return file_weights(component)
    return sum(file.stat().st_size for file in _likely(component))


def file_weights(component: Component) -> int:
    """Return the bytes of weights in a component's foreign files; 0 without any."""
    return component.foreign.weight_bytes if component.foreign else 0


def known_weights(component: Component) -> int:
    """Return the bytes of the weights in a component's files; 0 if unknown.

    A file is counted whole, also where the component needs a part of it: a decoder's
    file has the encoder too.

    Raises:
        SuiteError: A recipe of the harness cannot load them.

    """
    return stored_weights(component) or file_weights(component)


def _likely(component: Component) -> list[Path]:
    source = component.source
    homes = weight_folders(component.recipe, source, component.options)
    return [file for home in homes for file in likely_files(source.path / home)]


def _elements(path: Path) -> int:
    return sum(map(prod, shapes_of(path).values()))
