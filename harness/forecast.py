"""Forecast the memory that a stage needs, before it starts.

    base + weights * copies + values in flight

Each number was measured; `benchmarks/bench_forecast.py` measures them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from harness.components import folders_of
from harness.room import GIB, Need
from harness.spec import Component, Sample, TensorSpec

FLOAT32_BYTES: Final = 4
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a stage takes.

    Attributes:
        words: What it does, for ``{component}``.
        base: MiB of a process that has imported what the stage needs.
        copies: Of all weights, in float32.
        live: Values as wide as the network's first block that are held at once.

    """

    words: str
    base: int
    copies: float
    live: float


COSTS: Final[Mapping[str, Cost]] = {
    "torch": Cost(
        words="exporting {component} and recording its reference in float64",
        base=700,
        copies=3.2,
        live=24,
    ),
    "convert-mnn": Cost(
        words="converting {component} to MNN", base=300, copies=2.2, live=0
    ),
    "convert-onnxruntime": Cost(
        words="rewriting {component} for ONNX Runtime", base=300, copies=2.2, live=0
    ),
    "onnxruntime": Cost(
        words="running {component} in ONNX Runtime", base=350, copies=1.2, live=16
    ),
    "mnn": Cost(words="running {component} in MNN", base=300, copies=2.6, live=16),
}
"""Copies: SD 1.5's UNet, 3.2 GiB of weights, peaks at 7.1 GiB while it is converted, at
8.3 in MNN, at 3.9 in ONNX Runtime and, in PyTorch, at 3.8 before float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How large a component is on its largest sample.

    Attributes:
        weights: Bytes in float32.
        items: Of the batch.
        positions: Tokens or pixels of an item, at full size.
        width: Channels there.
        heads: Of attention over all the positions; 0 where there is none.

    """

    weights: int
    items: int
    positions: int
    width: int
    heads: int

    @property
    def value(self) -> int:
        """Bytes of one value as wide as the first block."""
        return FLOAT32_BYTES * self.items * self.positions * self.width

    @property
    def scores(self) -> int:
        """Bytes of attention's scores, and of them after the softmax."""
        return 2 * FLOAT32_BYTES * self.items * self.heads * self.positions**2


def need_of(component: Component, host: str, extent: Extent) -> Need:
    """Return what one stage of a component is forecast to take.

    Args:
        component: What is worked on.
        host: A key of `COSTS`.
        extent: How large it is.

    """
    cost = COSTS[host]
    weights = cost.copies * extent.weights
    doubled = 2 if host == "torch" else 1
    values = doubled * (cost.live * extent.value + extent.scores) if cost.live else 0
    reason = f"weights {weights / GIB:.1f}, values {values / GIB:.1f}, the rest code"
    return Need(
        stage=cost.words.format(component=component.name),
        size_bytes=round(cost.base * _MIB + weights + values),
        reason=reason,
    )


def extent_of(component: Component, samples: Iterable[Sample], weights: int) -> Extent:
    """Return a component's extent on the largest of some samples."""
    found = [_extent(component, dict(s.shapes), weights) for s in samples]
    return max(found, key=lambda one: one.value + one.scores)


def _extent(component: Component, sizes: Mapping[str, int], weights: int) -> Extent:
    config = _config(component)
    specs = (*component.inputs, *component.outputs)
    shapes = [spec.bind(sizes) for spec in specs]
    heads = config.get("num_attention_heads") or config.get("attention_head_dim") or 0
    # Where there is attention it is what counts, and it is never over a hint's pixels.
    sides = (
        [spec.bind(sizes) for spec in specs if not _scaled(spec)] if heads else shapes
    )
    positions = max(map(_positions, sides or shapes))
    widths = config.get("block_out_channels") or [config.get("hidden_size") or 64]
    return Extent(
        weights=weights,
        items=max((shape[0] for shape in shapes if len(shape) > 1), default=1),
        positions=positions,
        width=int(widths[0]),
        heads=int(heads if isinstance(heads, int) else heads[0]),
    )


def _scaled(spec: TensorSpec) -> bool:
    """Whether a side is a multiple of a symbol, as a hint's or a picture's are."""
    return any(isinstance(size, str) and "*" in size for size in spec.shape)


def _positions(shape: tuple[int, ...]) -> int:
    """Return tokens of ``[batch, tokens]`` and more, pixels of a picture."""
    return prod(shape[2:]) if len(shape) == 4 else prod(shape[1:2])  # noqa: PLR2004


def _config(component: Component) -> dict[str, Any]:
    for folder in folders_of(component.recipe, component.options):
        path = component.source.path / folder / "config.json"
        if path.is_file():
            config = json.loads(path.read_text(encoding="utf-8"))
            return dict(config)
    return {}


def stored_weights(component: Component) -> int | None:
    """Return the bytes of a checkpoint's weights in float32, from their headers alone.

    None where they are drawn from a seed, or not kept as safetensors.
    """
    if component.source.seed is not None:
        return None
    folders = folders_of(component.recipe, component.options)
    files = [
        f for n in folders for f in (component.source.path / n).glob("*.safetensors")
    ]
    return sum(map(_elements, files)) * FLOAT32_BYTES if files else None


def _elements(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    return sum(prod(t["shape"]) for n, t in header.items() if n != "__metadata__")
