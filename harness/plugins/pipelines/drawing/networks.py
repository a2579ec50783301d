"""Networks with named inputs and outputs: PyTorch's own, or a deployed file's session.

A network is loaded when it is first called, and dropped when memory runs short: a
pipeline never needs all networks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch
import xxhash

from harness.core.case import Component, Device, TensorSpec
from harness.core.errors import StageError
from harness.core.memory import GIB, available_bytes
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.plugins.pipelines.case import REMEMBERED_BYTES, RoleFile
from harness.recipes import recipe_module, weight_folders
from harness.recipes.checkpoint import likely_files
from harness.recipes.value_ranges import beyond
from harness.runtimes.pytorch.program import as_tuple, placed
from harness.runtimes.session import Session, open_session

Tensors = dict[str, torch.Tensor]

_WORK_BYTES = 2 << 30
"""Memory that is left free beside a network's weights, for the values it computes."""


Network: TypeAlias = Callable[[Mapping[str, torch.Tensor]], Tensors]
"""A function of tensors by name, on the CPU, in the caller's dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A loaded object, and the function that drops it."""

    value: Any
    close: Callable[[], None]


class Residents:
    """The networks in memory; the least recently used is dropped if memory runs short.

    Args:
        limit_gib: Memory in GiB that this process may use; None or 0 for all that the
            machine has.

    """

    def __init__(self, limit_gib: float | None = None) -> None:
        self._limit_bytes = int((limit_gib or 0) * GIB)
        self._loaded: dict[Hashable, Resident] = {}

    def use(self, key: Hashable, need_bytes: int, load: Callable[[], Resident]) -> Any:
        """Return the object under `key`; load it if it is not loaded."""
        loaded = self._loaded.pop(key, None)
        if loaded is None:
            self._make_room(need_bytes + _WORK_BYTES)
            loaded = load()
        self._loaded[key] = loaded  # the last is the most recently used
        return loaded.value

    def close(self) -> None:
        """Drop every network."""
        while self._loaded:
            self._drop_oldest()

    def _make_room(self, need_bytes: int) -> None:
        while self._loaded and self._free_bytes() < need_bytes:
            self._drop_oldest()

    def _free_bytes(self) -> int:
        free = available_bytes()
        if not self._limit_bytes:
            return free
        return min(free, self._limit_bytes - int(psutil.Process().memory_info().rss))

    def _drop_oldest(self) -> None:
        key = next(iter(self._loaded))
        self._loaded.pop(key).close()


@dataclass(frozen=True, slots=True)
class TorchNetwork:
    """A component's unmodified PyTorch module.

    `residents` holds it while there is memory. Its `dtype` is float32, or float64 for
    noise floors.
    """

    component: Component
    residents: Residents
    device: Device
    dtype: torch.dtype = torch.float32

    def __call__(self, feeds: Mapping[str, torch.Tensor]) -> Tensors:
        """Run without gradients."""
        component = self.component
        weights = _weight_bytes(component) * self.dtype.itemsize // 4
        module = self.residents.use((component, self.dtype), weights, self._load)
        return run_module(module, component, feeds, self.device, self.dtype)

    def _load(self) -> Resident:
        module = recipe_module(self.component.recipe).build(self.component)
        module = module.to(self.device.device, self.dtype)
        return Resident(value=module, close=lambda: None)


def run_module(
    module: torch.nn.Module,
    component: Component,
    feeds: Mapping[str, torch.Tensor],
    device: Device,
    dtype: torch.dtype = torch.float32,
) -> Tensors:
    """Return the outputs of a module that is on `device` in `dtype`."""
    given = (placed(spec, feeds[spec.name], dtype, device) for spec in component.inputs)
    with torch.no_grad():
        made = as_tuple(module(*given))
    names = [spec.name for spec in component.outputs]
    return {name: value.cpu() for name, value in zip(names, made, strict=True)}


def _weight_bytes(component: Component) -> int:
    """Return the size of a component's weights; 0 for weights that are drawn."""
    source = component.source
    folders = weight_folders(component.recipe, source, component.options)
    files = [file for home in folders for file in likely_files(source.path / home)]
    return sum(file.stat().st_size for file in files)


class SessionNetwork:
    """A deployed file in its runtime.

    `residents` holds its session while there is memory.
    """

    def __init__(self, role_file: RoleFile, residents: Residents) -> None:
        self._role_file = role_file
        self._residents = residents
        self.ran: Any = None

    def __call__(self, feeds: Mapping[str, torch.Tensor]) -> Tensors:
        """Run as deployed."""
        file, component = self._role_file, self._role_file.component
        need = int(file.artifact.size_bytes * runtime(file.backend).session_times)
        session: Session = self._residents.use(id(self), need, self._load)
        made = session.run(
            {
                spec.name: as_declared(spec, feeds[spec.name], component.name)
                for spec in component.inputs
            }
        )
        self.ran = session.ran
        return {name: torch.from_numpy(value) for name, value in made.items()}

    def _load(self) -> Resident:
        file, stack = self._role_file, ExitStack()
        outputs = [spec.name for spec in file.component.outputs]
        path = file.artifact.file(file.model)
        session = open_session(file.backend, path, file.device, outputs)
        return Resident(value=stack.enter_context(session), close=stack.close)


def as_declared(spec: TensorSpec, value: torch.Tensor, component: str) -> np.ndarray:
    """Return a value in the dtype of a deployed file's input, if nothing is lost.

    Raises:
        StageError: The input is declared as whole numbers, and the value is not one,
            as with a scheduler that stops between timesteps. Or the values are outside
            the input's range.

    """
    array = value.detach().numpy()
    if words := beyond(spec, float(array.min()), float(array.max())):
        msg = f"{component}: input {words}; fix what the pipeline hands it."
        raise StageError(msg, outcome=Outcome.RUN)
    declared = array.astype(spec.dtype)
    if declared.dtype.kind in "iu" and not np.array_equal(declared, array):
        msg = (
            f"{component} takes {spec.name!r} as {spec.dtype}, and the scheduler gives "
            f"{array.ravel()[0]:g}. Choose whole timesteps with scheduler_options = "
            '{ timestep_spacing = "leading" }, or export a float timestep.'
        )
        raise StageError(msg, outcome=Outcome.DTYPE)
    return np.ascontiguousarray(declared)


class Remembered:
    """A network that remembers its outputs.

    Where roles are exchanged, the same network gets the same bits again and again, and
    need not run again. A measured network always runs.

    `limit_bytes` is the largest size of the outputs that are kept.
    """

    def __init__(self, network: Network, limit_bytes: int = REMEMBERED_BYTES) -> None:
        self._network = network
        self._left_bytes = limit_bytes
        self._answers: dict[str, Tensors] = {}
        self.always_runs = False
        """Whether to run again on inputs that were seen before."""

    def __call__(self, feeds: Mapping[str, torch.Tensor]) -> Tensors:
        """Return the outputs, from memory if the same bits were seen before."""
        key = fingerprint(feeds)
        answer = None if self.always_runs else self._answers.get(key)
        if answer is None:
            answer = self._network(feeds)
            self.learn(key, answer)
        return {name: value.clone() for name, value in answer.items()}

    def learn(self, key: str, answer: Tensors) -> None:
        """Keep an output, if the limit allows it."""
        size = sum(value.nbytes for value in answer.values())
        if key not in self._answers and size <= self._left_bytes:
            self._left_bytes -= size
            self._answers[key] = {name: value.clone() for name, value in answer.items()}


def fingerprint(feeds: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of inputs, with their names, shapes and dtypes."""
    digest = xxhash.xxh3_128()
    for name, value in sorted(feeds.items()):
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        digest.update(np.ascontiguousarray(value.detach().numpy()).data)
    return digest.hexdigest()
