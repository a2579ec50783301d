"""MNN itself: what a session asks of it, here or on a target.

An agent runs this file on a target. It needs Python 3.8 and imports numpy and MNN
alone. Each method gets arrays, a function that takes values as they come, and settings
that JSON can hold; it returns what JSON can hold.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

import MNN
import MNN.expr
import MNN.nn
import numpy as np

Feeds = Mapping[str, np.ndarray]
Show = Callable[[str, np.ndarray], None]

_BACKENDS_INFO = 2  # Interpreter::SessionInfoCode::BACKENDS
BACKENDS = {"CPU": (0, 13), "METAL": (1,), "CUDA": (2,), "OPENCL": (3,), "VULKAN": (7,)}
"""Backend to the MNNForwardType numbers that its session may report; the CPU's are
without and with the processor's instruction extensions."""


class MnnDriver:
    """One ``.mnn`` file in an interpreter session."""

    version = MNN.version()

    def open(
        self,
        _: Feeds,
        __: Show,
        *,
        model: str,
        config: dict[str, Any],
        hints: list[list[int]],
    ) -> dict[str, Any]:
        """Load a file; return its inputs' axes, its outputs and the backend's type."""
        self._model, self._config, self._hints = model, config, hints
        self._shapes: dict[str, Any] = {}
        self._net = MNN.Interpreter(model)
        for number, value in hints:
            self._net.setSessionHint(number, value)
        self._session = self._net.createSession(config)
        self._inputs = self._net.getSessionInputAll(self._session)
        return {
            "inputs": {name: len(one.getShape()) for name, one in self._inputs.items()},
            "outputs": sorted(self._net.getSessionOutputAll(self._session)),
            "backend": self._net.getSessionInfo(self._session, _BACKENDS_INFO),
        }

    def unmet(self, asked: Mapping[str, Any], told: Mapping[str, Any]) -> str:
        """Return that another backend was opened than the one asked for; or nothing.

        `asked` are the arguments of `open`, and `told` is its result. A build without
        the backend takes the CPU and does not say so.
        """
        backend, got = asked["config"]["backend"], told["backend"]
        if got in BACKENDS.get(backend, ()):
            return ""
        names = [name for name, numbers in BACKENDS.items() if got in numbers]
        runs = names[0] if names else f"backend type {got}"
        return f"MNN {self.version} was asked for {backend} and runs on {runs}"

    def run(self, feeds: Feeds, _: Show) -> int:
        """Run as deployed, and return MNN's error code."""
        self._fill(feeds)
        return self._net.runSession(self._session)

    def watch(
        self,
        feeds: Feeds,
        show: Show,
        *,
        wanted: Mapping[str, Any],
        made: Mapping[str, str],
        suffix: str,
    ) -> int:
        """Run with a callback after every operator, and return MNN's error code.

        `wanted` names the values to show; a name may have `suffix` behind it. `made`
        has the names of operators, to the names of the values that they make.
        """
        self._fill(feeds)
        failure: list[BaseException] = []

        def is_wanted(name: str) -> bool:
            end = len(name) - len(suffix)
            return (name[:end] if name.endswith(suffix) else name) in wanted

        def begin(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            del tensors, info
            return True

        def end(tensors: list[MNN.Tensor], info: MNN.OpInfo) -> bool:
            # An operator has the name of its first output, except for those in `made`.
            named = info.getName()
            name = made.get(named, named)
            if not tensors or not is_wanted(named) or not is_wanted(name):
                return True
            try:
                show(name, _copy(tensors[0]))
            except BaseException as error:  # noqa: BLE001  # must not unwind through C++
                failure.append(error)
                return False
            return True

        code = self._net.runSessionWithCallBackInfo(self._session, begin, end)
        if failure:
            raise failure[0]
        return code

    def outputs(self, _: Feeds, show: Show, *, names: list[str]) -> None:
        """Show the outputs of the last run."""
        tensors = self._net.getSessionOutputAll(self._session)
        for name in names:
            show(name, _copy(tensors[name]))

    def graph(self, _: Feeds, __: Show) -> dict[str, list[str]]:
        """Drop the session; return the values that each value is computed from."""
        self._session = None  # one copy of the weights at a time
        graph = MNN.expr.load_as_dict(self._model)
        return {
            name: [entry.name for entry in variable.inputs]
            for name, variable in graph.items()
        }

    def cut(self, feeds: Feeds, show: Show, *, made: list[str]) -> int:
        """Show values that are computed from given ones; return how many there are."""
        runtime = MNN.nn.create_runtime_manager((self._config,))
        for number, value in self._hints:
            runtime.set_hint(number, value)
        cut = MNN.nn.load_module_from_file(
            self._model, list(feeds), list(made), runtime_manager=runtime
        )
        answers = cut.forward([_variable(value) for value in feeds.values()])
        if len(answers) == len(made):
            for at, name in enumerate(made):
                show(name, _read(answers[at]))
        return len(answers)

    def clock(self, feeds: Feeds, _: Show, *, runs: int) -> dict[str, Any]:
        """Run with a callback before and after every operator.

        Returns:
            The error code of the last run; and of each operator its kind, and the
            seconds of each of its steps.

        """
        began = [0]
        took: dict[str, Any] = {}

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

        code = 0
        for _run in range(runs):
            self._fill(feeds)
            code = self._net.runSessionWithCallBackInfo(self._session, begin, end)
            if code:
                break
        return {"code": code, "took": took}

    def close(self, _: Feeds, __: Show) -> None:
        """Drop the session; MNN frees it with its interpreter."""
        self._inputs = {}
        self._session = self._net = None

    def _fill(self, feeds: Feeds) -> None:
        """Resize where shapes changed, and write every input: runs overwrite inputs."""
        shapes = {name: value.shape for name, value in feeds.items()}
        if shapes != self._shapes:
            for name, tensor in self._inputs.items():
                self._net.resizeTensor(tensor, shapes[name])
            self._net.resizeSession(self._session)
            self._shapes = shapes
        for name, tensor in self._inputs.items():
            value = feeds[name]
            kind = (
                MNN.Halide_Type_Float
                if value.dtype == np.float32
                else MNN.Halide_Type_Int
            )
            # A number of no axes is copied as one of one.
            shape = value.shape or (1,)
            tensor.copyFrom(
                MNN.Tensor(
                    shape, kind, value.reshape(shape), MNN.Tensor_DimensionType_Caffe
                )
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
        raise RuntimeError(msg)
    return np.array(host.getNumpyData(), dtype=dtype).reshape(shape)


def _variable(value: np.ndarray) -> MNN.expr.Var:
    """Return a value as an input of an MNN module."""
    kind = MNN.expr.float if value.dtype == np.float32 else MNN.expr.int
    shape = value.shape or (1,)
    return MNN.expr.const(value.reshape(shape), list(shape), MNN.expr.NCHW, kind)


def _read(variable: MNN.expr.Var) -> np.ndarray:
    """Return a copy of a module's output in NCHW order."""
    if variable.data_format == MNN.expr.NC4HW4:
        variable = MNN.expr.convert(variable, MNN.expr.NCHW)
    return np.array(variable.read())


open_driver = MnnDriver
