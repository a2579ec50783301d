"""Forecast the memory that a stage needs, before it starts.

    base + weights * copies + values in flight

Each number was measured; `benchmarks/bench_forecast.py` measures them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Final

from harness.core.case import GIVEN, Component, Sample, TensorSpec
from harness.core.errors import SuiteError
from harness.core.foreign_files import weight_files
from harness.core.memory import GIB, Need
from harness.core.onnx_header import read_header
from harness.core.runtime import ONNX, Cost, runtime
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import (
    check_weights,
    likely_files,
    read_config,
    shapes_of,
)

FLOAT32_BYTES: Final = 4
_MIB: Final = 2**20


_TORCH: Final = Cost(
    words="exporting {component} and recording its reference in float64",
    base=700,
    copies=1.2,
    # Twelve in float64; attention works through its scores in blocks.
    live=24,
    scores=1.2,
)
# All weights in float64 at once, and all of the graph in one message.
_TORCHSCRIPT: Final = replace(_TORCH, copies=3.2)

CONVERT: Final = "convert-"
"""Begins the name of the host that converts for a runtime."""

# What a base, copies and values are, for these as for what each runtime declares.
# Measured on SD 1.5's ControlNet, 1.35 GiB of weights, and its UNet, 3.2:
# `bench_forecast` prints each stage. A base holds the process that stages are forked
# from, which the peak of a single stage does not show. Pages of files that are merely
# mapped are not counted, as they make room for others.

REWRITTEN: Final = 1.5
"""Copies more in PyTorch, where another attention makes the exported copy a second
network: SD 1.5's text encoder, 0.46 GiB, takes 1.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How large a component is on its largest sample.

    Attributes:
        weights: Bytes in float32.
        items: Of the batch.
        positions: Tokens or pixels of an item, at full size.
        width: Channels there.
        heads: Of attention where it is over the most positions; 0 without any.
        attended: Positions there: fewer, if a picture is halved before.

    """

    weights: int
    items: int
    positions: int
    width: int
    heads: int
    attended: int

    @property
    def value(self) -> int:
        """Bytes of one value as wide as the first block."""
        return FLOAT32_BYTES * self.items * self.positions * self.width

    @property
    def scores(self) -> int:
        """Bytes of attention's scores where they are most."""
        return FLOAT32_BYTES * self.items * self.heads * self.attended**2


def need_of(
    component: Component,
    host: str,
    extent: Extent,
    *,
    kind: str = "",
    rewritten: bool = False,
) -> Need:
    """Return what one stage of a component is forecast to take.

    Args:
        component: What is worked on.
        host: ``torch``, a runtime's name, or that after `CONVERT`.
        extent: How large it is.
        kind: The exporter, or the kind of variant.
        rewritten: Whether a copy with another attention is exported.

    """
    cost = cost_of(host, kind)
    copies = cost.copies + (REWRITTEN if host == "torch" and rewritten else 0.0)
    weights = copies * extent.weights
    values = values_of(cost, extent)
    reason = f"weights {weights / GIB:.1f}, values {values / GIB:.1f}, the rest code"
    return Need(
        stage=cost.words.format(component=component.name),
        size_bytes=round(cost.base * _MIB + weights + values),
        reason=reason,
    )


def cost_of(host: str, kind: str = "") -> Cost:
    """Return what a host takes, for an exporter or a kind of variant."""
    if host == "torch":
        return _TORCHSCRIPT if kind == "torchscript" else _TORCH
    if host.startswith(CONVERT):
        return runtime(host.removeprefix(CONVERT)).cost_of_making(kind)
    return runtime(host).cost(kind)


def values_of(cost: Cost, extent: Extent) -> float:
    """Return the bytes of values in flight."""
    return cost.live * extent.value + cost.scores * extent.scores


def extent_of(component: Component, samples: Iterable[Sample], weights: int) -> Extent:
    """Return a component's extent on the largest of some samples."""
    found = [_extent(component, dict(s.shapes), weights) for s in samples]
    return max(found, key=lambda one: one.value + one.scores)


def values_bytes(component: Component, samples: Iterable[Sample]) -> int:
    """Return the bytes of values that PyTorch holds on the largest of some samples."""
    return round(values_of(_TORCH, extent_of(component, samples, 0)))


def _extent(component: Component, sizes: Mapping[str, int], weights: int) -> Extent:
    config = _config(component)
    level = _first_attention(config)
    heads = _at(
        config.get("num_attention_heads")
        or config.get("attention_head_dim")
        or config.get("num_heads"),
        level,
    )
    specs = (*component.inputs, *component.outputs)
    # Where there is attention it is what counts, and it is never over a hint's pixels.
    seen = [spec for spec in specs if not (heads and _scaled(spec))] or specs
    patch = _at(config.get("patch_size")) or 1
    positions = max(_positions(spec, sizes, patch) for spec in seen)
    if "joint_attention_dim" in config:  # over a text and a picture as one sequence
        positions = sum(_positions(spec, sizes, patch) for spec in component.inputs)
    return Extent(
        weights=weights,
        items=sizes.get("batch", 1),
        positions=positions,
        width=_width(config),
        heads=heads,
        attended=positions // 4**level,
    )


def _first_attention(config: Mapping[str, Any]) -> int:
    """Return how often a network halves a picture before it attends over it."""
    blocks = config.get("down_block_types") or ()
    attending = (level for level, kind in enumerate(blocks) if "Attn" in kind)
    return next(attending, max(len(blocks) - 1, 0))


def _at(entry: Any, level: int = 0) -> int:  # noqa: ANN401  # of a configuration
    """Return a number, or that of a level; 0 for none."""
    if isinstance(entry, list):
        entry = entry[min(level, len(entry) - 1)] if entry else 0
    return int(entry or 0)


def _scaled(spec: TensorSpec) -> bool:
    """Whether a side is a multiple of a symbol, as a hint's or a picture's are."""
    return any(isinstance(size, str) and "*" in size for size in spec.shape)


def _positions(spec: TensorSpec, sizes: Mapping[str, int], patch: int) -> int:
    """Return pixels of a picture, tokens of ``[batch, tokens, width]`` or of ids."""
    shape = spec.bind(sizes)
    if len(shape) == 4:  # noqa: PLR2004
        return prod(shape[2:]) // patch**2
    is_ids = len(shape) == 2 and spec.dtype.startswith("int")  # noqa: PLR2004
    return shape[1] if len(shape) == 3 or is_ids else 1  # noqa: PLR2004


def _width(config: Mapping[str, Any]) -> int:
    """Return the channels that a network's largest values have."""
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

    None where they are drawn from a seed, or not kept as safetensors.

    Raises:
        SuiteError: A recipe of the harness cannot load them.

    """
    source = component.source
    if source.seed is not None or component.recipe == GIVEN:
        return None
    homes = weight_folders(component.recipe, source, component.options)
    if component.recipe in RECIPES:
        # What loading would refuse is refused here, before a process starts for it.
        files = [file for home in homes for file in check_weights(source, home)]
        return sum(map(_elements, files)) * FLOAT32_BYTES
    # What somebody's own recipe makes of a folder is not known; it may read any file.
    with suppress(SuiteError):
        files = [file for home in homes for file in likely_files(source.path / home)]
        return sum(map(_elements, files)) * FLOAT32_BYTES if files else None
    return None


def file_weights(component: Component) -> int:
    """Return the bytes of weights in the files that a component takes; 0 without any.

    Halves count as float32, which processors make of them; other weights as they are
    stored. The graph, which stands in the same file, is small beside them.

    Raises:
        SuiteError: A file is no longer there.

    """
    taken = component.taken
    if taken is None:
        return 0
    kind, path = taken.files[0]
    halves = read_header(path).half_bytes if kind == ONNX else 0
    return halves + _stored(path, kind)


def _stored(path: Path, kind: str) -> int:
    files = (path, *(path.parent / name for name in weight_files(path, kind)))
    return sum(file.stat().st_size for file in files)


def _elements(path: Path) -> int:
    return sum(map(prod, shapes_of(path).values()))
