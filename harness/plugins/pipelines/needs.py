"""The memory of drawings.

A pipeline releases networks when memory is low (`plugins.pipelines.drawing.networks`).
Only its largest network must fit. All networks stay loaded if there is enough memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from harness.core.memory import GIB, MIB, Extent, Need
from harness.core.runtime import Cost
from harness.engine.needs import TaskStep, Weigh
from harness.plugins.pipelines.case import (
    DENOISING,
    REMEMBERED_BYTES,
    Pipeline,
    PipelineCase,
)
from harness.plugins.pipelines.read import role_sizes, vae_factor
from harness.recipes.checkpoint import read_config
from harness.suite.forecast import FLOAT32_BYTES, cost_of, extent_of

# diffusers and both runtimes. The cases of digits, with few weights, took 490 MiB.
_BASE_BYTES: Final = 700 * MIB

_FLOAT32: Final = Cost(copies=1.1, live=8)
_FLOAT64: Final = Cost(copies=2.6, live=48)
# bfloat16 or float16. Nothing shows that its values need less than those of float32.
_HALF: Final = Cost(copies=0.6, live=8)
_ATTENDING: Final = {_HALF: 50, _FLOAT32: 50, _FLOAT64: 120}
"""Costs of PyTorch's own modules, and their live values if there is attention.

PyTorch never holds all attention scores at once. Measured on Stable Diffusion 1.5 with
widths cut to three tenths and two layers of text: the memory beyond their weights of
the UNet (48 and 64 latents a side) and the decoder (32), and of pipelines with every
network loaded.
"""


def needs(case: PipelineCase, step: TaskStep, weigh: Weigh) -> Iterator[Need | None]:
    """Yield the memory of PyTorch's drawing, and of one with deployed files.

    It is None where the weights of a network are unknown.
    """
    if step.makes:
        yield drawing_need(case.pipeline, weigh)
    if step.runs:
        yield pipeline_need(case, weigh)


def drawing_need(pipeline: Pipeline, weigh: Weigh) -> Need | None:
    """Return the memory of PyTorch's drawing; its float64 networks need the most.

    The result is None if the weights of a network are unknown.
    """
    extents = _extents(pipeline, weigh).values()
    stage = f"drawing {pipeline.name} in PyTorch"
    return _need(stage, [(_pytorch(_FLOAT64, one), one) for one in extents], 0)


def pipeline_need(pipeline_case: PipelineCase, weigh: Weigh) -> Need | None:
    """Return the memory of an end-to-end case: deployed files, and PyTorch's networks.

    The result is None if the weights of a network are unknown.
    """
    pipeline = pipeline_case.pipeline
    extents = _extents(pipeline, weigh)
    loaded: list[tuple[Cost, Extent]] = []
    answers = 0
    for role, case in pipeline_case.roles:
        costs = [] if case is None else [cost_of(case, case.backend)]
        float32 = _pytorch(_FLOAT32, extents[role])
        # Attribution exchanges roles with PyTorch's. A single step is compared with
        # PyTorch's conditions as inputs.
        before = role not in {*DENOISING, "vae_decoder"}
        if case is None or before or pipeline.attribution:
            costs.append(float32)
        answers += len(costs) * _answers(pipeline, role)
        # PyTorch draws every pair too. No network's outputs are kept of them.
        if pipeline.seeds and float32 not in costs:
            costs.append(float32)
        if pipeline.yardstick:
            costs.append(_pytorch(_HALF, extents[role]))
        loaded += [(cost, extents[role]) for cost in costs]
    return _need(f"drawing {pipeline_case.id}", loaded, answers)


def _pytorch(cost: Cost, extent: Extent) -> Cost:
    return replace(cost, live=_ATTENDING[cost]) if extent.scores else cost


def _extents(pipeline: Pipeline, weigh: Weigh) -> Mapping[str, Extent]:
    extents = {}
    for role, component in zip(pipeline.roles, pipeline.components, strict=True):
        sizes = role_sizes(pipeline, role, component)
        if role == "vae_decoder" and pipeline.vae_tiling:
            config = read_config(pipeline.source, "vae")
            tile = config.whole("sample_size") // vae_factor(pipeline.source)
            sizes |= {side: min(sizes[side], tile) for side in ("height", "width")}
        extents[role] = extent_of(component, [sizes], weigh(component))
    return extents


def _answers(pipeline: Pipeline, role: str) -> int:
    """Return the bytes of a network's outputs that are kept over all steps."""
    component = pipeline.components[pipeline.roles.index(role)]
    sizes = role_sizes(pipeline, role, component)
    one = sum(prod(spec.bind(sizes)) for spec in component.outputs) * FLOAT32_BYTES
    steps = pipeline.steps if role in DENOISING else 1
    return min(one * steps, REMEMBERED_BYTES)


def _need(
    stage: str, loaded: Sequence[tuple[Cost, Extent]], answers: int
) -> Need | None:
    if not all(extent.weights for _, extent in loaded):
        return None
    weights = [cost.weights_of(extent) for cost, extent in loaded]
    values = [cost.values_of(extent) for cost, extent in loaded]
    largest = max(map(sum, zip(weights, values, strict=True)))
    rest = _BASE_BYTES + answers
    most = rest + sum(weights) + max(values)
    reason = (
        f"its largest network at work {largest / GIB:.1f}, answers kept "
        f"{answers / GIB:.1f}, the rest code; with every network loaded "
        f"{most / GIB:.1f}"
    )
    return Need(stage=stage, size_bytes=rest + largest, reason=reason, most_bytes=most)
