"""Resources that a step of a case needs: threads, GPUs and memory.

A pipeline releases networks when memory is low (`runtimes.diffusion.networks`). Only
its largest network must fit. All networks stay loaded if there is enough memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Final

from harness.core.case import Case, Component, Device
from harness.core.errors import ParityError
from harness.core.memory import GIB, MIB, Extent, Need
from harness.core.pipeline import DENOISING, Pipeline, PipelineCase, Tested
from harness.core.runtime import Cost, is_made, reference_host
from harness.recipes.checkpoint import read_config
from harness.suite.forecast import (
    CONVERT,
    FLOAT32_BYTES,
    cost_of,
    extent_of,
    known_weights,
    need_of,
)
from harness.suite.pipelines import role_sizes, vae_factor

Weigh = Callable[[Component], int]
"""A function that returns the bytes of a component's float32 weights; 0 if unknown."""

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

REMEMBERED_BYTES: Final = 1 << 30
"""The largest number of bytes of one network's outputs that are kept.
`runtimes.diffusion.networks.Remembered` keeps them."""


class TaskStep(Enum):
    """What a task does for its cases."""

    PREPARE = "export, and record or draw the reference"
    EXPORT = "export alone"
    RUN = "deploy and run"
    ALL = "everything"

    @property
    def makes(self) -> bool:
        """Whether it makes what cases share."""
        return self is not TaskStep.RUN

    @property
    def runs(self) -> bool:
        """Whether it deploys and runs cases."""
        return self in {TaskStep.RUN, TaskStep.ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a task takes of its node.

    Attributes:
        threads: Number of threads.
        gpus: Number of GPUs.
        memory_bytes: Forecast memory; 0 if it is unknown.

    """

    threads: int = 1
    gpus: int = 0
    memory_bytes: int = 0


def file_cases(case: Tested) -> list[Case]:
    """Return the case of each deployed file: a pipeline's roles, or the case itself."""
    if isinstance(case, PipelineCase):
        return [role for _, role in case.roles if role is not None]
    return [case]


def gpus_of(cases: Iterable[Tested], step: TaskStep) -> int:
    """Return the number of GPUs that a step of cases uses: one or none."""
    devices = (one.device for case in cases for one in devices_of(case, step))
    return int(any(device in {"cuda", "tensorrt"} for device in devices))


def devices_of(case: Tested, step: TaskStep) -> Iterator[Device]:
    """Yield the devices, with their threads, that a step of a case uses."""
    if isinstance(case, PipelineCase):
        yield case.device  # of PyTorch, which draws beside the files too
    for one in file_cases(case):
        # What its files need of PyTorch are tasks of their own.
        if step.makes and (one is case or step.runs):
            yield one.reference
        if step.runs:
            yield one.device


def needs_of(case: Tested, step: TaskStep, weigh: Weigh) -> Iterator[Need | None]:
    """Yield the memory of each stage of a step of a case; None if it is unknown.

    The store is taken to be empty.

    Raises:
        ParityError: A checkpoint cannot be read.

    """

    def need(one: Case, host: str) -> Need | None:
        return need_of(one, host, one.samples, weigh(one.component))

    if isinstance(case, PipelineCase):
        if step.makes:
            yield drawing_need(case.pipeline, weigh)
        if step.runs:
            yield pipeline_need(case, weigh)
    for one in file_cases(case):
        if step.makes and (one is case or step.runs):
            yield need(one, reference_host(one))
        if step.runs and one is case:
            yield need(one, one.backend)
        if step.runs and is_made(one):
            yield need(one, f"{CONVERT}{one.backend}")


def takes(cases: Sequence[Tested], step: TaskStep) -> Takes:
    """Return what a step of cases takes, one case after another."""
    threads = [one.threads for case in cases for one in devices_of(case, step)]
    needs = [0]
    for case in cases:
        with suppress(ParityError):  # the case itself reports a damaged checkpoint
            found = needs_of(case, step, known_weights)
            needs += [need.size_bytes for need in found if need]
    return Takes(
        threads=max(threads, default=1),
        gpus=gpus_of(cases, step),
        memory_bytes=max(needs),
    )


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
