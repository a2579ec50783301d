"""The memory of drawings.

A pipeline releases networks when memory is low (`plugins.pipelines.drawing.networks`).
Only its largest network must fit. All networks stay loaded if there is enough memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.core.memory import GIB, MIB, Need
from harness.core.runtime import Cost
from harness.engine.needs import TaskStep, Weigh
from harness.plugins.pipelines.case import DENOISING, Pipeline, PipelineCase
from harness.suite.forecast import cost_of

# diffusers and both runtimes. The cases of digits, with few weights, took 490 MiB.
_BASE_BYTES: Final = 700 * MIB

# Measured on Stable Diffusion 1.5 with every network loaded.
_FLOAT32: Final = Cost(copies=1.1)
_FLOAT64: Final = Cost(copies=2.6)
# bfloat16 or float16. Nothing shows that its values need less than those of float32.
_HALF: Final = Cost(copies=0.6)


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
    weights = _weights(pipeline, weigh).values()
    stage = f"drawing {pipeline.name} in PyTorch"
    return _need(stage, [(_FLOAT64, weight) for weight in weights])


def pipeline_need(pipeline_case: PipelineCase, weigh: Weigh) -> Need | None:
    """Return the memory of an end-to-end case: deployed files, and PyTorch's networks.

    The result is None if the weights of a network are unknown.
    """
    pipeline = pipeline_case.pipeline
    weights = _weights(pipeline, weigh)
    loaded: list[tuple[Cost, int]] = []
    for role, case in pipeline_case.roles:
        costs = [] if case is None else [cost_of(case, case.backend)]
        # Attribution exchanges roles with PyTorch's. A single step is compared with
        # PyTorch's conditions as inputs. PyTorch draws every pair too.
        before = role not in {*DENOISING, "vae_decoder"}
        if case is None or before or pipeline.attribution or pipeline.seeds:
            costs.append(_FLOAT32)
        if pipeline.yardstick:
            costs.append(_HALF)
        loaded += [(cost, weights[role]) for cost in costs]
    return _need(f"drawing {pipeline_case.id}", loaded)


def _weights(pipeline: Pipeline, weigh: Weigh) -> Mapping[str, int]:
    parts = zip(pipeline.roles, pipeline.components, strict=True)
    return {role: weigh(component) for role, component in parts}


def _need(stage: str, loaded: Sequence[tuple[Cost, int]]) -> Need | None:
    if not all(weights for _, weights in loaded):
        return None
    sizes = [round(cost.copies * weights) for cost, weights in loaded]
    largest, most = _BASE_BYTES + max(sizes), _BASE_BYTES + sum(sizes)
    reason = (
        f"its largest network {max(sizes) / GIB:.1f}, the rest code; with every "
        f"network loaded {most / GIB:.1f}"
    )
    return Need(stage=stage, size_bytes=largest, reason=reason, most_bytes=most)
