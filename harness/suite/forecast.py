"""Forecast the memory that a stage needs, before it starts.

A `Cost` describes the memory of a stage, and an `Extent` the size of a component on its
samples. Each number was measured; `benchmarks/bench_forecast.py` measures them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final

from harness.core.case import GIVEN, Case, Component, Sample, TensorSpec
from harness.core.errors import SuiteError
from harness.core.memory import Extent, Need
from harness.core.runtime import Cost, runtime
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import (
    check_weights,
    likely_files,
    read_config,
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
    copies=1.2,
    # Twelve in float64; attention computes its scores in blocks.
    live=24,
    scores=1.2,
)
# All weights in float64 at once, and all of the graph in one message.
_TORCHSCRIPT: Final = replace(_TORCH, copies=3.2)

# More copies in PyTorch if another attention makes the exported copy a second network:
# SD 1.5's text encoder (0.46 GiB) takes 1.8 GiB.
_REWRITTEN: Final = 1.5

CONVERT: Final = "convert-"
"""The prefix of the name of a host that converts for a runtime."""


def need_of(
    case: Case, host: str, samples: Sequence[Sample], weights: int
) -> Need | None:
    """Return the forecast memory of one stage of a case; None if it is unknown.

    Args:
        case: The case of the stage.
        host: ``torch``, a runtime's name, or `CONVERT` and a runtime's name.
        samples: The samples that the stage runs.
        weights: Bytes of the component's weights in float32; 0 if they are unknown.

    """
    if not weights or not samples:
        return None
    sizes = [dict(sample.shapes) for sample in samples]
    extent = extent_of(case.component, sizes, weights)
    return cost_of(case, host).need(case.component.name, extent)


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


def values_bytes(component: Component, sizes: Iterable[Mapping[str, int]]) -> int:
    """Return the bytes of values that PyTorch holds at the largest of some sizes."""
    return _TORCH.values_of(extent_of(component, sizes, 0))


def extent_of(
    component: Component, sizes: Iterable[Mapping[str, int]], weights: int
) -> Extent:
    """Return a component's extent at the largest of some sizes by symbol.

    Raises:
        SuiteError: A configuration cannot be read.

    """
    config = _config(component)
    found = [_extent(component, config, one, weights) for one in sizes]
    return max(found, key=lambda one: one.value + one.scores)


def _extent(
    component: Component,
    config: Mapping[str, Any],
    sizes: Mapping[str, int],
    weights: int,
) -> Extent:
    # A network may halve a picture so many times before its attention.
    blocks = config.get("down_block_types") or ()
    attending = (level for level, kind in enumerate(blocks) if "Attn" in kind)
    level = next(attending, max(len(blocks) - 1, 0))
    names = ("num_attention_heads", "attention_head_dim", "num_heads")
    heads = next((n for name in names if (n := _at(config.get(name), level))), 0)
    specs = (*component.inputs, *component.outputs)
    # Attention, if there is any, decides the extent. It is never over a hint's pixels,
    # whose sides are multiples of a symbol.
    seen = [s for s in specs if not (heads and any("*" in str(n) for n in s.shape))]
    patch = _at(config.get("patch_size")) or 1
    positions = max(_positions(spec, sizes, patch) for spec in seen or specs)
    if "joint_attention_dim" in config:  # over a text and a picture as one sequence
        positions = sum(_positions(spec, sizes, patch) for spec in component.inputs)
    items = FLOAT32_BYTES * sizes.get("batch", 1)
    return Extent(
        weights=weights,
        value=items * positions * _width(config),
        scores=items * heads * (positions // 4**level) ** 2,
    )


def _at(entry: Any, level: int = 0) -> int:  # noqa: ANN401  # of a configuration
    """Return a number, or the one of a level from a list; 0 if there is none."""
    if isinstance(entry, list):
        entry = entry[min(level, len(entry) - 1)] if entry else 0
    return int(entry or 0)


def _positions(spec: TensorSpec, sizes: Mapping[str, int], patch: int) -> int:
    """Return the number of patches of a picture, or of tokens of a text."""
    shape = spec.bind(sizes)
    if len(shape) == 4:  # noqa: PLR2004
        return prod(shape[2:]) // patch**2
    is_ids = len(shape) == 2 and spec.dtype.startswith("int")  # noqa: PLR2004
    return shape[1] if len(shape) == 3 or is_ids else 1  # noqa: PLR2004


def _width(config: Mapping[str, Any]) -> int:
    """Return the number of channels of a network's largest values."""
    heads, size = config.get("num_attention_heads"), config.get("attention_head_dim")
    if blocks := config.get("block_out_channels"):
        return int(blocks[0])
    if width := config.get("hidden_size") or config.get("d_model"):
        return int(width)
    return heads * size if isinstance(heads, int) and isinstance(size, int) else 64


def _config(component: Component) -> dict[str, Any]:
    source = component.source
    for folder in weight_folders(component.recipe, source, component.options):
        if (source.path / folder / "config.json").is_file():
            return read_config(source, folder)
    return {}


def stored_weights(component: Component) -> int | None:
    """Return the bytes of a checkpoint's weights in float32, from their headers alone.

    The result is None if they are drawn from a seed, or are not safetensors.

    Raises:
        SuiteError: A recipe of the harness cannot load them.

    """
    source = component.source
    if source.seed is not None or component.recipe == GIVEN:
        return None
    homes = weight_folders(component.recipe, source, component.options)
    if component.recipe in RECIPES:
        # Files that loading would refuse are refused here, before a process starts.
        files = [file for home in homes for file in check_weights(source, home)]
        return sum(map(_elements, files)) * FLOAT32_BYTES
    # A user's own recipe may read any file of a folder, so the files are not checked.
    with suppress(SuiteError):
        files = [file for home in homes for file in likely_files(source.path / home)]
        return sum(map(_elements, files)) * FLOAT32_BYTES if files else None
    return None


def file_weights(component: Component) -> int:
    """Return the bytes of weights in a component's foreign files; 0 without any."""
    return component.foreign.weight_bytes if component.foreign else 0


def known_weights(component: Component) -> int:
    """Return the bytes of a component's weights as far as files tell; 0 if unknown.

    Raises:
        SuiteError: A recipe of the harness cannot load them.

    """
    return stored_weights(component) or file_weights(component)


def _elements(path: Path) -> int:
    return sum(map(prod, shapes_of(path).values()))
