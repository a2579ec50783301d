"""MNN's session: the deployed file unchanged, watched by the session's own callback."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

import MNN
import MNN.expr
import MNN.nn
import numpy as np

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.align import source_value
from harness.runtimes.graph.cuts import grouped
from harness.runtimes.mnn import HINTS
from harness.runtimes.mnn.file import operators, values_made
from harness.runtimes.session import (
    Feeds,
    OnValue,
    Ran,
    Spent,
    check_feeds,
    check_outputs,
)

_BACKENDS_INFO = 2  # Interpreter::SessionInfoCode::BACKENDS
_FORWARD_TYPES = {
    "cpu": (0, 13),  # without and with this machine's instruction extensions
    "metal": (1,),
    "cuda": (2,),
    "opencl": (3,),
    "vulkan": (7,),
}
"""Device to the MNNForwardType numbers that its session may report."""
_ERRORS = {
    1: "out of memory",
    2: "not supported",
    3: "its shapes could not be computed",
    4: "no execution",
    5: "invalid value",
}
"""Error codes of ErrorCode.hpp with which a run can end."""
_INT32 = np.iinfo(np.int32)


class MnnSession(AbstractContextManager["MnnSession"]):
    """One ``.mnn`` file in an interpreter session.

    Raises:
        StageError: MNN refuses the file, or the file lost an output.

    """

    def __init__(self, path: Path, device: Device, outputs: Sequence[str]) -> None:
        self._path = path
        self._outputs = tuple(outputs)
        self._device = device
        self._config = {
            "backend": device.device.upper(),
            "precision": device.precision,
            "numThread": device.threads,
        }
        try:
            self._net = MNN.Interpreter(str(path))
            for name, value in device.hints:
                self._net.setSessionHint(_hint(name), value)
            self._session = self._net.createSession(self._config)
            self._inputs = self._net.getSessionInputAll(self._session)
            found = sorted(self._net.getSessionOutputAll(self._session))
        except StageError:
            raise
        except Exception as error:  # MNN raises no class of its own
            raise refused(path, error) from error
        check_outputs(found, self._outputs, path)
        self._check_device(device)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.ran = Ran(
            backend="mnn",
            version=MNN.version(),
            device=device.device,
            threads=device.threads,
            precision=device.precision,
            detail=tuple((f"hint {name}", str(value)) for name, value in device.hints),
        )

    @cached_property
    def _made(self) -> dict[str, str]:
        """Names of operators, to the names of the values that they make."""
        # Names are read when a run is watched: a file that is only run needs none.
        try:
            return values_made(operators(self._path))
        except ValueError as error:
            raise refused(self._path, error) from error

    def _check_device(self, device: Device) -> None:
        """Refuse a device that was not requested: MNN falls back without a message."""
        got = self._net.getSessionInfo(self._session, _BACKENDS_INFO)
        if got not in _FORWARD_TYPES[device.device]:
            msg = (
                f"MNN {MNN.version()} was asked for {device.device} and runs on "
                f"backend type {got}. This build lacks {device.device}; use one that "
                "has it, or ask for cpu; `parity doctor` says what works here."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed."""
        self._fill(feeds)
        self._check_ran(self._net.runSession(self._session))
        return self._read_outputs()

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run with a callback after every operator; the file is not changed."""
        self._fill(feeds)
        failure: list[BaseException] = []
        names = self._made  # read before: an error must not cross MNN's callback

        def begin(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            del tensors, info
            return True

        def end(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            # An operator has the name of its first output, except for those in `names`.
            named = info.getName()
            name = names.get(named, named)
            known = source_value(named) in sizes and source_value(name) in sizes
            if not tensors or not known:
                return True
            try:
                on_value(name, _copy(tensors[0]))
            except BaseException as error:  # noqa: BLE001  # must not unwind through C++
                failure.append(error)
                return False
            return True

        code = self._net.runSessionWithCallBackInfo(self._session, begin, end)
        if failure:
            raise failure[0]
        self._check_ran(code)
        return self._read_outputs()

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run cuts of the unchanged file, in a few groups; none is converted again."""
        self._session = None  # one copy of the weights at a time
        graph = MNN.expr.load_as_dict(str(self._path))
        inputs_of = {
            name: [entry.name for entry in variable.inputs]
            for name, variable in graph.items()
        }
        del graph
        made = [name for name in given if name in inputs_of]
        for group in grouped(made, inputs_of, {*made, *feeds}):
            runtime = MNN.nn.create_runtime_manager((self._config,))
            for name, value in self._device.hints:
                runtime.set_hint(_hint(name), value)
            cut = MNN.nn.load_module_from_file(
                str(self._path),
                list(group.given),
                list(group.made),
                runtime_manager=runtime,
            )
            asked = [
                _variable(name, feeds[name] if name in feeds else given[name])
                for name in group.given
            ]
            answers = cut.forward(asked)
            if len(answers) != len(group.made):
                msg = (
                    f"MNN {MNN.version()} cannot run {len(group.made)} cuts of "
                    f"{self._path.name} on the reference's values; its log says why."
                )
                raise StageError(msg, outcome=Outcome.RUN)
            for name, answer in zip(group.made, answers, strict=True):
                on_value(name, _read(answer))

    def clock(self, feeds: Mapping[str, np.ndarray], runs: int) -> list[Spent]:
        """Run with a callback before and after every operator."""
        began = [0]
        took: dict[str, tuple[str, list[float]]] = {}

        def begin(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            del tensors, info
            began[0] = time.perf_counter_ns()
            return True

        def end(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            del tensors
            ended = time.perf_counter_ns()
            _, seen = took.setdefault(info.getName(), (info.getType(), []))
            seen.append((ended - began[0]) / 1e9)
            return True

        for _ in range(runs):
            self._fill(feeds)
            self._check_ran(
                self._net.runSessionWithCallBackInfo(self._session, begin, end)
            )
        # One name may stand for several steps of a run, whose times add up.
        return [
            Spent(values=(name,), op=op, took_s=_of_a_run(seen, runs))
            for name, (op, seen) in took.items()
        ]

    def __exit__(self, *_: object) -> None:
        """Close the file, however the `with` ends."""
        self.close()

    def close(self) -> None:
        """Drop the session; MNN frees it with its interpreter."""
        self._inputs = {}
        self._session = self._net = None

    def _fill(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Resize where shapes changed, and write every input: runs overwrite inputs."""
        check_feeds(feeds, list(self._inputs), self._path)
        shapes = {name: value.shape for name, value in feeds.items()}
        for name, tensor in self._inputs.items():
            if len(tensor.getShape()) != feeds[name].ndim:
                msg = (
                    f"{self._path.name}: input {name!r} has {len(tensor.getShape())} "
                    f"axes, the component gives {feeds[name].ndim}."
                )
                raise StageError(msg, outcome=Outcome.SHAPE)
        if shapes != self._shapes:
            for name, tensor in self._inputs.items():
                self._net.resizeTensor(tensor, shapes[name])
            self._net.resizeSession(self._session)
            self._shapes = shapes
        for name, tensor in self._inputs.items():
            value = _narrowed(name, feeds[name])
            kind = (
                MNN.Halide_Type_Float
                if value.dtype == np.float32
                else MNN.Halide_Type_Int
            )
            tensor.copyFrom(
                MNN.Tensor(value.shape, kind, value, MNN.Tensor_DimensionType_Caffe)
            )

    def _check_ran(self, code: int) -> None:
        """Refuse the memory of a failed run, which looks like numbers."""
        if code != 0:
            msg = (
                f"MNN {MNN.version()} cannot run {self._path.name} on inputs of "
                f"{sorted(self._shapes.items())}: error {code}, "
                f"{_ERRORS.get(code, 'see ErrorCode.hpp')}."
            )
            raise StageError(msg, outcome=Outcome.RUN)

    def _read_outputs(self) -> dict[str, np.ndarray]:
        tensors = self._net.getSessionOutputAll(self._session)
        return {name: _copy(tensors[name]) for name in self._outputs}


def refused(path: Path, error: Exception) -> StageError:
    """Return the message about a file that MNN does not load."""
    msg = (
        f"MNN {MNN.version()} refuses {path.name}: it is truncated, of another "
        f"version, or no MNN file ({error})."
    )
    return StageError(msg, outcome=Outcome.LOAD)


def _of_a_run(seen: Sequence[float], runs: int) -> float:
    """Return the median over runs of the time of one name in each run."""
    steps = len(seen) // runs
    return statistics.median(
        sum(seen[run * steps : (run + 1) * steps]) for run in range(runs)
    )


def _copy(tensor: MNN.Tensor) -> np.ndarray:
    """Return a copy of a tensor in NCHW order, for any internal layout."""
    kind = tensor.getDataType()
    dtype = np.float32 if kind == MNN.Halide_Type_Float else np.int32
    shape = tuple(tensor.getShape())
    # The constructor copies its buffer, so the result is read from the host tensor.
    host = MNN.Tensor(
        shape, kind, np.empty(shape, dtype=dtype), MNN.Tensor_DimensionType_Caffe
    )
    if not tensor.copyToHostTensor(host):
        msg = f"MNN {MNN.version()} cannot copy a tensor of shape {shape} to the host."
        raise StageError(msg, outcome=Outcome.RUN)
    return np.array(host.getNumpyData(), dtype=dtype).reshape(shape)


def _variable(name: str, value: np.ndarray) -> MNN.expr.Var:
    """Return a value as an input of an MNN module."""
    value = _narrowed(name, value)
    kind = MNN.expr.float if value.dtype == np.float32 else MNN.expr.int
    return MNN.expr.const(value, list(value.shape), MNN.expr.NCHW, kind)


def _read(variable: MNN.expr.Var) -> np.ndarray:
    """Return a copy of a module's output in NCHW order."""
    if variable.data_format == MNN.expr.NC4HW4:
        variable = MNN.expr.convert(variable, MNN.expr.NCHW)
    return np.array(variable.read())


def _narrowed(name: str, value: np.ndarray) -> np.ndarray:
    """Return a value in float32 or int32: MNN misreads int64, without an error."""
    if value.dtype.kind == "f":
        return np.ascontiguousarray(value, dtype=np.float32)
    if value.size and (value.min() < _INT32.min or value.max() > _INT32.max):
        msg = f"Input {name!r} has integers beyond int32, which is all MNN reads."
        raise StageError(msg, outcome=Outcome.DTYPE)
    return np.ascontiguousarray(value, dtype=np.int32)


def _hint(name: str) -> int:
    """Return the number of a session hint, given by its name or its number."""
    if name.isdigit():
        return int(name)
    if name not in HINTS:
        msg = (
            f"MNN has no session hint {name!r}; it has {', '.join(HINTS)}. A newer one "
            "can be given by its number in Interpreter.hpp."
        )
        raise StageError(msg, outcome=Outcome.LOAD)
    return HINTS.index(name)


open_session = MnnSession
