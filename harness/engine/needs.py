"""Forecast the memory that a pipeline needs: its networks, and the values of one.

    base + answers kept + weights * copies of its networks + values of the one that runs

A pipeline lets go of networks when memory runs short
(`runtimes.diffusion.networks`). Its largest network alone must fit; all of them stay
where there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from harness.core.case import Case, Component, Sample
from harness.core.memory import GIB, Need
from harness.core.pipeline import DENOISING, Chain, Pipeline
from harness.core.runtime import runtime
from harness.recipes.checkpoint import read_config
from harness.suite.forecast import FLOAT32_BYTES, Extent, cost_of, extent_of, values_of
from harness.suite.pipelines import seat_sizes, vae_factor

Weigh = Callable[[Component], int]
"""Returns the bytes of a component's weights in float32; 0 if not known."""

_BASE_MIB: Final = 700
"""diffusers and both runtimes, of which digits' cases, hardly any weights, took 490."""

_COPIES: Final = {"float32": 1.1, "float64": 2.6}
_LIVE: Final = {
    ("float32", True): 50,
    ("float32", False): 8,
    ("float64", True): 120,
    ("float64", False): 48,
}
"""PyTorch's own modules: of all weights, and of values as wide as the first block, by
whether there is attention; its scores are never whole. Measured on Stable Diffusion 1.5
with widths cut to three tenths and two layers of text. Values are what the UNet (48 and
64 latents a side) and the decoder (32) took beyond their weights; copies follow from
pipelines with every network loaded (`bench_forecast`): stages took 0.7 to 1 of it."""

_WITHIN: Final = 1.0
"""Copies more where ONNX Runtime reads weights out of the graph's own file."""

REMEMBERED_BYTES: Final = 1 << 30
"""How many bytes of answers are kept of one network at most; the class that keeps them
is `runtimes.diffusion.networks.Remembered`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One network: bytes while it is loaded, and beside that while it runs."""

    weights: float
    values: float


def drawing_need(pipeline: Pipeline, weigh: Weigh) -> Need | None:
    """Return what PyTorch's drawing takes; its networks in float64 are the most.

    None where the weights of one are not known.
    """
    extents = _extents(pipeline, weigh).values()
    parts = [_pytorch(extent, "float64") for extent in extents]
    return _need(f"drawing {pipeline.name} in PyTorch", parts, 0)


def chain_need(chain: Chain, weigh: Weigh) -> Need | None:
    """Return what an end-to-end case takes: deployed files, and PyTorch beside them.

    None where the weights of one are not known.
    """
    extents = _extents(chain.pipeline, weigh)
    parts: list[_Part] = []
    answers = 0
    for seat, case in chain.seats:
        sitting = []
        if case is not None:
            sitting.append(_session(case, extents[seat]))
        # Seats are exchanged with PyTorch's; and a step is taken from its conditions.
        before = seat not in {*DENOISING, "vae_decoder"}
        if case is None or before or chain.pipeline.attribution:
            sitting.append(_pytorch(extents[seat], "float32"))
        answers += len(sitting) * _answers(chain.pipeline, seat)
        parts += sitting
    return _need(f"drawing {chain.id}", parts, answers)


def _pytorch(extent: Extent, dtype: str) -> _Part:
    return _Part(
        weights=_COPIES[dtype] * extent.weights,
        values=_LIVE[dtype, extent.heads > 0] * extent.value,
    )


def _session(case: Case, extent: Extent) -> _Part:
    cost = cost_of(case.backend, case.variant.kind)
    within = runtime(case.backend).inline_twice and not case.export.external_data
    copies = cost.copies + (_WITHIN if within else 0.0)
    return _Part(weights=copies * extent.weights, values=values_of(cost, extent))


def _extents(pipeline: Pipeline, weigh: Weigh) -> Mapping[str, Extent]:
    return {
        seat: extent_of(
            component, [_sample(pipeline, seat, component)], weigh(component)
        )
        for seat, component in zip(pipeline.seats, pipeline.components, strict=True)
    }


def _sample(pipeline: Pipeline, seat: str, component: Component) -> Sample:
    sizes = seat_sizes(pipeline, seat, component)
    if seat == "vae_decoder" and pipeline.vae_tiling:
        config = read_config(pipeline.source, "vae")
        tile = int(config["sample_size"]) // vae_factor(pipeline.source)
        sizes |= {side: min(sizes[side], tile) for side in ("height", "width")}
    return Sample(profile="realistic", index=0, shapes=tuple(sorted(sizes.items())))


def _answers(pipeline: Pipeline, seat: str) -> int:
    """Return the bytes of a network's answers that are remembered of all its steps."""
    component = pipeline.components[pipeline.seats.index(seat)]
    sizes = seat_sizes(pipeline, seat, component)
    one = sum(prod(spec.bind(sizes)) for spec in component.outputs) * FLOAT32_BYTES
    steps = pipeline.steps if seat in DENOISING else 1
    return min(one * steps, REMEMBERED_BYTES)


def _need(stage: str, parts: Sequence[_Part], answers: int) -> Need | None:
    if not all(part.weights for part in parts):
        return None
    fixed = _BASE_MIB * 2**20 + answers
    largest = max(parts, key=lambda part: part.weights + part.values)
    every = sum(part.weights for part in parts)
    most = fixed + every + max(part.values for part in parts)
    reason = (
        f"its largest network at work: weights {largest.weights / GIB:.1f}, values "
        f"{largest.values / GIB:.1f}, answers kept {answers / GIB:.1f}, the rest code; "
        f"with every network loaded {most / GIB:.1f}"
    )
    return Need(
        stage=stage,
        size_bytes=round(fixed + largest.weights + largest.values),
        reason=reason,
        most_bytes=round(most),
    )
