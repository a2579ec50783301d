"""Resources that a step of a case needs: threads, GPUs and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from harness.core.case import Case, Component, Device
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.errors import ParityError
from harness.core.memory import Need
from harness.core.runtime import is_made, reference_host, resolve
from harness.suite.forecast import (
    CONVERT,
    known_weights,
    need_of,
)

Weigh = Callable[[Component], int]
"""A function that returns the bytes of a component's float32 weights; 0 if unknown."""


class TaskStep(Enum):
    """What a task does for its cases."""

    PREPARE = "export, and record or draw the reference"
    EXPORT = "export alone"
    RUN = "deploy and run"
    ALL = "everything"
    FORGET = "remove what was drawn"

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


def gpus_of(cases: Iterable[Tested], step: TaskStep) -> int:
    """Return the number of GPUs that a step of cases uses: one or none."""
    devices = (one.device for case in cases for one in devices_of(case, step))
    return int(any(device in {"cuda", "tensorrt"} for device in devices))


def devices_of(case: Tested, step: TaskStep) -> Iterator[Device]:
    """Yield the devices, with their threads, that a step of a case uses."""
    if isinstance(case, EndToEndCase):
        yield case.device  # of PyTorch, which runs beside the files too
    for part in case.parts:
        # What its files need of PyTorch are tasks of their own.
        if step.makes and (part is case or step.runs):
            yield part.reference
        if step.runs:
            yield part.device


def needs_of(case: Tested, step: TaskStep, weigh: Weigh) -> Iterator[Need | None]:
    """Yield the memory of each stage of a step of a case; None if it is unknown.

    The store is taken to be empty.

    Raises:
        ParityError: A checkpoint cannot be read.

    """

    def need(case: Case, host: str) -> Need | None:
        return need_of(case, host, weigh(case.component))

    if isinstance(case, EndToEndCase):
        yield from resolve(case.needs)(case, step, weigh)
    for one in case.parts:
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
