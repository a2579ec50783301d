"""OpenVINO's session: outputs as deployed, layers as added outputs of a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset15

from harness.core.case import Device
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.runtimes.session import (
    Feeds,
    OnValue,
    Ran,
    check_feeds,
    check_outputs,
)

_GIVEN = "__given"
"""Suffix of the name of an input that holds a given value."""

_MAKE_NOTHING = {"Constant", "Parameter", "Result"}
_AT_ONCE_BYTES = 2**28
"""Largest size of the values that one run hands over, unless one alone is larger."""


class OpenVinoSession(AbstractContextManager["OpenVinoSession"]):
    """One file of OpenVINO's format, compiled for a device.

    Raises:
        StageError: OpenVINO refuses the file, or has no such device.

    """

    def __init__(self, path: Path, device: Device, outputs: Sequence[str]) -> None:
        self._path = path
        self._device = device
        self._outputs = tuple(outputs)
        self._core = ov.Core()
        if device.hints:
            names = ", ".join(name for name, _ in device.hints)
            msg = f"openvino takes no hints, got {names}."
            raise StageError(msg, outcome=Outcome.LOAD)
        wanted = device.device.upper()
        devices = list(self._core.available_devices)
        if wanted not in {name.partition(".")[0] for name in devices}:
            msg = (
                f"openvino was asked for {device.device} and has {', '.join(devices)}; "
                "ask for cpu, or install the driver that it needs."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        self._model = self._read()
        self._inputs = tuple(port.get_any_name() for port in self._model.inputs)
        given = [port.get_any_name() for port in self._model.outputs]
        check_outputs(given, self._outputs, path)
        self._deployed: ov.CompiledModel | None = self._compiled(self._model)
        got = self._deployed.get_property("INFERENCE_PRECISION_HINT").to_string()
        if str(got) != device.precision:
            msg = (
                f"openvino was asked for {device.precision} on {device.device} and "
                f"computes in {got}; ask for that, or use a device that has it."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        self.ran = Ran(
            backend="openvino",
            version=ov.__version__.partition("-")[0],
            device=device.device,
            threads=device.threads,
            precision=str(got),
        )

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed."""
        check_feeds(feeds, self._inputs, self._path)
        if self._deployed is None:
            self._deployed = self._compiled(self._model)
        return dict(self._called(self._deployed, feeds, self._outputs))

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run copies of the model in which wanted values are outputs too."""
        check_feeds(feeds, self._inputs, self._path)
        self._deployed = None  # one copy of the weights at a time
        made = _ports(self._model)
        wanted = {name: size for name, size in sizes.items() if name in made}
        found: dict[str, np.ndarray] = {}
        for names in _batches(wanted) or [()]:
            model = self._read()
            ports = _ports(model)
            model.add_outputs([ports[name] for name in names])
            asked = list(dict.fromkeys((*names, *self._outputs)))
            for name, value in self._called(self._compiled(model), feeds, asked):
                if name in names:
                    on_value(name, value)
                if name in self._outputs:
                    found[name] = value
        return {name: found[name] for name in self._outputs}

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run copies in which every reader of a value reads the given one instead."""
        self._deployed = None  # one copy of the weights at a time
        made = _ports(self._model)
        sizes = {name: given[name].nbytes for name in given if name in made}
        for names in _batches(sizes):
            compiled = self._compiled(self._cut(sizes, names))
            values = {}
            for port in compiled.inputs:
                name = port.get_any_name()
                own = name.removesuffix(_GIVEN)
                value = feeds[name] if name in feeds else given[own]
                dtype = port.get_element_type().to_dtype()
                values[name] = np.ascontiguousarray(value, dtype)
            for name, value in self._called(compiled, values, names):
                on_value(name, value)

    def __exit__(self, *_: object) -> None:
        self._deployed = None

    def _read(self) -> ov.Model:
        try:
            return self._core.read_model(self._path)
        except RuntimeError as error:
            msg = (
                f"openvino {ov.__version__} refuses {self._path.name}: it is truncated "
                f"or of another version ({first_line(error)})."
            )
            raise StageError(msg, outcome=Outcome.LOAD, log=str(error)) from error

    def _compiled(self, model: ov.Model) -> ov.CompiledModel:
        config = {
            "INFERENCE_PRECISION_HINT": self._device.precision,
            "INFERENCE_NUM_THREADS": str(self._device.threads),
            "NUM_STREAMS": "1",
        }
        try:
            return self._core.compile_model(model, self._device.device.upper(), config)
        except RuntimeError as error:
            msg = f"openvino {ov.__version__} cannot compile {self._path.name}: "
            msg += f"{first_line(error)}."
            raise StageError(msg, outcome=Outcome.LOAD, log=str(error)) from error

    def _called(
        self,
        compiled: ov.CompiledModel,
        feeds: Mapping[str, np.ndarray],
        names: Iterable[str],
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and a copy of each requested output."""
        try:
            found = compiled(dict(feeds), share_inputs=True)
        except RuntimeError as error:
            msg = f"openvino {ov.__version__} cannot run {self._path.name}: "
            msg += f"{first_line(error)}."
            raise StageError(msg, outcome=Outcome.RUN, log=str(error)) from error
        for name in names:
            yield name, np.array(found[compiled.output(name)])

    def _cut(self, given: Iterable[str], names: Sequence[str]) -> ov.Model:
        """Return a model that computes `names` from given values and the inputs."""
        model = self._read()
        ports = _ports(model)
        parameters = list(model.get_parameters())
        for name in given:
            port = ports[name]
            parameter = opset15.parameter(
                port.get_partial_shape(), port.get_element_type()
            )
            parameter.output(0).set_names({f"{name}{_GIVEN}"})
            for reader in port.get_target_inputs():
                reader.replace_source_output(parameter.output(0))
            parameters.append(parameter)
        results = [opset15.result(ports[name]) for name in names]
        for name, result in zip(names, results, strict=True):
            result.output(0).set_names({name})
        needed = _behind(results)
        asked = [one for one in parameters if one.get_friendly_name() in needed]
        return ov.Model(results, asked, "cut")


def _behind(results: Iterable[Any]) -> set[str]:
    """Return the friendly names of all operators that results are computed with."""
    waiting, seen = list(results), set()
    while waiting:
        node = waiting.pop()
        name = node.get_friendly_name()
        if name not in seen:
            seen.add(name)
            waiting += [one.get_source_output().get_node() for one in node.inputs()]
    return seen


def _ports(model: ov.Model) -> dict[str, Any]:
    """Return the port of each named value, without those of constants and inputs."""
    return {
        name: port
        for op in model.get_ordered_ops()
        if op.get_type_name() not in _MAKE_NOTHING
        for port in op.outputs()
        for name in port.get_names()
    }


def _batches(sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return names in batches whose values fit together; one alone always does."""
    batches: list[tuple[str, ...]] = []
    batch: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if batch and filled + size > _AT_ONCE_BYTES:
            batches.append(tuple(batch))
            batch, filled = [], 0
        batch.append(name)
        filled += size
    return [*batches, tuple(batch)] if batch else batches


open_session = OpenVinoSession
