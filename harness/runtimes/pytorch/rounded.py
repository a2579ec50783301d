"""Run PyTorch's network with some of its weights as a runtime would store them.

A layer of a deployed file belongs to the parameters that have the same bytes, so no
rule about names is needed. The deployed file is in float32.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import msgpack
from torch.overrides import TorchFunctionMode

from harness.core.entry import Entry
from harness.core.rounding import FLOAT, HALF, Bits, Effects, Trials
from harness.core.runtime import runtime
from harness.engine.host import report_progress
from harness.engine.tasks import EFFECTS_FILE
from harness.measure.trace import load_inputs
from harness.recipes import recipe_module
from harness.runtimes.pytorch.prepare import ask_device
from harness.runtimes.pytorch.program import own_path
from harness.runtimes.pytorch.reference import run_of
from harness.runtimes.pytorch.weights import digest_of

Values = Mapping[str, np.ndarray]
"""Values by name; `Effects.rows` has the names."""


class Roundable:
    """A network whose weights are rounded for a while, and then restored.

    The deployed file of the trials names the layers.
    """

    def __init__(self, module: torch.nn.Module, given: Trials) -> None:
        mixed = runtime(given.backend).mixed
        assert mixed is not None  # noqa: S101  # the command refuses other runtimes
        self._mixed = mixed
        self._layers: Any = importlib.import_module(mixed.module)
        self.module = module.to(given.device.device)
        own: dict[bytes, list[str]] = {}
        for name, weights in self.module.named_parameters():
            own.setdefault(digest_of(weights.detach().cpu().numpy()), []).append(name)
        path = given.artifact.file(given.model)
        self.layers: dict[str, list[str]] = {
            layer.name: own.get(digest_of(self._layers.float_weights(path, layer)), [])
            for layer in self._layers.stored(path)
        }

    @contextmanager
    def rounded(self, bits: Bits) -> Iterator[None]:
        """Round layers as the runtime does, until the `with` ends."""
        before: dict[torch.nn.Parameter, torch.Tensor] = {}
        integers: set[torch.nn.Parameter] = set()
        try:
            for name, number in bits:
                for path in self.layers[name] if number < FLOAT else ():
                    parameter = self.module.get_parameter(path)
                    before.setdefault(parameter, parameter.data)
                    weights = before[parameter].cpu().numpy()
                    made = torch.from_numpy(self._layers.rounded(weights, number))
                    parameter.data = made.to(parameter.device)
                    if number < HALF:
                        integers.add(parameter)
            with self._inputs(integers):
                yield
        finally:
            for parameter, data in before.items():
                parameter.data = data

    def _inputs(
        self, integers: set[torch.nn.Parameter]
    ) -> AbstractContextManager[object]:
        """Round what layers read whose weights are integers, if the runtime does so."""
        if not self._mixed.rounds_inputs:
            return nullcontext()
        return _RoundedInputs(integers, self._layers.rounded_inputs)


class _RoundedInputs(TorchFunctionMode):
    """Rounds the inputs of matrix products that have one of the `weights`."""

    def __init__(
        self,
        weights: set[torch.nn.Parameter],
        rounded: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        super().__init__()
        self._weights = weights
        self._rounded = rounded

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        is_product = func is torch.nn.functional.linear
        if is_product and not self._weights.isdisjoint(args[1:2]):
            values, *rest = args
            made = torch.from_numpy(self._rounded(values.cpu().numpy()))
            args = (made.to(values.device), *rest)
        return func(*args, **(kwargs or {}))


def roundable(given: Trials) -> Roundable:
    """Build the component of some trials.

    Raises:
        StageError: PyTorch cannot run on the device.

    """
    ask_device(given.device)
    build = recipe_module(given.component.recipe).build
    return Roundable(build(given.component), given)


def output_effects(
    folder: Path, given: Trials, samples: Sequence[tuple[str, Entry]]
) -> None:
    """Write to a folder how far each trial moves a component's outputs.

    `samples` are pairs of a sample's id and the store entry of its inputs.

    Raises:
        StageError: PyTorch cannot run on the device.

    """
    network = roundable(given)
    run = run_of(network.module, given.component, given.device.device)
    some = [samples[at] for at in given.only] or samples
    feeds = {name: load_inputs(entry, given.component) for name, entry in some}

    def values() -> Values:
        return {
            f"{sample} {name}": value
            for sample, arrays in feeds.items()
            for name, value in run(arrays).items()
            if value.dtype.kind == "f"
        }

    save_effects(effects(network, given, values), folder)


def save_effects(made: Effects, folder: Path) -> None:
    """Write effects to a folder. JSON has no NaN, so they are no note of an entry."""
    (folder / EFFECTS_FILE).write_bytes(msgpack.encode(made))


def effects(network: Roundable, given: Trials, values: Callable[[], Values]) -> Effects:
    """Return the effects of each trial on the values that a function makes."""
    expected = values()
    errors = []
    for number, bits in enumerate(given.trials, start=1):
        at = f"{number} of {len(given.trials)} trials of rounded weights"
        report_progress("rounding", given.component.name, at)
        rounded = [network.layers[name] for name, number in bits if number < FLOAT]
        if rounded and not any(rounded):
            errors.append((math.nan,) * len(expected))
            continue
        with network.rounded(bits):
            found = values()
        errors.append(tuple(_power(found[row] - expected[row]) for row in expected))
    return Effects(
        rows=tuple(expected),
        powers=tuple(_power(value) for value in expected.values()),
        errors=tuple(errors),
        parameters={
            layer: tuple(own_path(name).removesuffix(".weight") for name in names)
            for layer, names in network.layers.items()
        },
    )


def _power(value: np.ndarray) -> float:
    power = float(np.mean(np.square(value, dtype=np.float64)))
    return power if math.isfinite(power) else math.inf
