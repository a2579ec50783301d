"""MNN itself: what a session asks of it, here or on a target.

An agent runs this file on a target. It needs Python 3.8 and imports numpy and MNN
alone. Each method gets arrays, a function that takes values as they come, and settings
that JSON can hold; it returns what JSON can hold.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Sequence

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
_SESSION, _MODULE = "session", "module"
_OUT_OF_MEMORY, _NO_SHAPES = 1, 3  # ErrorCode.hpp
_AT_ONCE_BYTES = 1 << 30
"""Values that a module returns in one run have at most this size together."""


class MnnDriver:
    """One ``.mnn`` file, in an interpreter session or as a module.

    A session computes every shape before it reads an input, so it cannot run a graph
    whose shapes or branches depend on values. MNN's Module API can.
    """

    version = MNN.version()

    def open(
        self,
        _: Feeds,
        __: Show,
        *,
        model: str,
        config: dict[str, Any],
        hints: list[list[int]],
        api: str = "",
    ) -> dict[str, Any]:
        """Load a file.

        `api` is ``session`` or ``module``; if it is empty, a session is used until it
        cannot run the file, and then a module.

        Returns:
            ``inputs``: each input's number of axes. ``whole``: the inputs of integers.
            ``outputs``: the outputs. ``backend``: type of the backend; None for a
            module, which does not tell it.

        """
        self._model, self._config, self._hints = model, config, hints
        self._api = api
        self._shapes: dict[str, Any] = {}
        self._names: dict[str, list[str]] = {}
        self._made: dict[str, np.ndarray] = {}
        self._module: Any = None
        self._session: Any = None
        self._net: Any = None
        if api == _MODULE:
            return self._open_module()
        self._net = MNN.Interpreter(model)
        for number, value in hints:
            self._net.setSessionHint(number, value)
        try:
            self._session = self._net.createSession(config)
        except Exception:  # MNN raises no class of its own
            if api:
                raise
            self._net = None
            return self._open_module()
        self._inputs = self._net.getSessionInputAll(self._session)
        outputs = sorted(self._net.getSessionOutputAll(self._session))
        self._names = {"inputs": list(self._inputs), "outputs": outputs}
        return {
            "inputs": {name: len(one.getShape()) for name, one in self._inputs.items()},
            "whole": [
                name
                for name, one in self._inputs.items()
                if one.getDataType() == MNN.Halide_Type_Int
            ],
            "outputs": outputs,
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
        if got is None:  # a module does not tell; every build has the CPU
            doubt = f"does not tell whether it runs on {backend}"
            return "" if backend == "CPU" else f"MNN {self.version} {doubt}"
        names = [name for name, numbers in BACKENDS.items() if got in numbers]
        runs = names[0] if names else f"backend type {got}"
        return f"MNN {self.version} was asked for {backend} and runs on {runs}"

    def _open_module(self) -> dict[str, Any]:
        told = MNN.nn.load_module_from_file(self._model, [], []).get_info()
        outputs = sorted(told["outputNames"])
        self._names = {"inputs": list(told["inputNames"]), "outputs": outputs}
        variables = dict(zip(told["inputNames"], told["inputs"]))
        self._module = self._loaded(self._names["inputs"], outputs)
        return {
            "inputs": {name: len(one.shape) for name, one in variables.items()},
            "whole": [
                name
                for name, one in variables.items()
                if one.dtype not in (MNN.expr.float, MNN.expr.double)
            ],
            "outputs": outputs,
            "backend": None,
        }

    def _loaded(self, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        """Return the file, or a part of it, as a module with the session's settings."""
        runtime = MNN.nn.create_runtime_manager((self._config,))
        for number, value in self._hints:
            runtime.set_hint(number, value)
        return MNN.nn.load_module_from_file(
            self._model, list(inputs), list(outputs), runtime_manager=runtime
        )

    def run(self, feeds: Feeds, _: Show) -> dict[str, Any]:
        """Run as deployed; return MNN's error code, and the API that ran."""
        if self._module is None:
            self._fill(feeds)
            code = self._net.runSession(self._session)
            if self._api or code in (0, _OUT_OF_MEMORY):
                return {"code": code, "api": _SESSION}
            if not self._has_run_as_module(feeds):
                return {"code": code, "api": _SESSION}
            return {"code": 0, "api": _MODULE}
        found = self._answers(self._module, feeds, self._names["outputs"])
        self._made = found or {}
        return {"code": _NO_SHAPES if found is None else 0, "api": _MODULE}

    def _has_run_as_module(self, feeds: Feeds) -> bool:
        """Run as a module what a session cannot run, and use the module from now on.

        The session stays if the module cannot run it either.
        """
        outputs = self._names["outputs"]
        try:
            module = self._loaded(self._names["inputs"], outputs)
        except Exception:  # noqa: BLE001  # MNN raises no class of its own
            return False
        found = self._answers(module, feeds, outputs)
        if found is None:
            return False
        self._module, self._made = module, found
        self._inputs, self._session, self._net = {}, None, None
        return True

    def _answers(
        self, module: Any, feeds: Feeds, names: Sequence[str]
    ) -> dict[str, np.ndarray] | None:
        """Return what a module makes, by name; None if it cannot run.

        Too few inputs end the process, so each input must be there.
        """
        answers = module.forward(
            [_variable(feeds[name]) for name in self._names["inputs"]]
        )
        if len(answers) != len(names):
            return None
        return {name: _read(answers[at]) for at, name in enumerate(names)}

    def watch(
        self,
        feeds: Feeds,
        show: Show,
        *,
        wanted: Mapping[str, Any],
        made: Mapping[str, str],
        suffix: str,
        values: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Run and show values; return MNN's error code, and the API that ran.

        A session has a callback after every operator. A module has none, so it is asked
        for the values as outputs.

        `wanted` names the values to show, to their sizes in bytes; a name may have
        `suffix` behind it. `made` has the names of operators, to the names of the
        values that they make. `values` has what a module is asked for: names in the
        file, to the names of the values to show.
        """
        if self._module is not None:
            return self._watch_module(feeds, show, wanted, suffix, values or {})
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
        return {"code": code, "api": _SESSION}

    def _watch_module(
        self,
        feeds: Feeds,
        show: Show,
        sizes: Mapping[str, int],
        suffix: str,
        values: Mapping[str, str],
    ) -> dict[str, Any]:
        """Run with values as outputs, as many at once as memory should hold."""
        outputs = self._names["outputs"]
        parts: list[list[str]] = []
        left = 0
        for asked, name in values.items():
            size = sizes.get(name, sizes.get(name[: -len(suffix)], 0))
            if not parts or size > left:
                parts.append([])
                left = _AT_ONCE_BYTES
            parts[-1].append(asked)
            left -= size
        seen: dict[str, np.ndarray] = {}
        for part in parts:
            seen = self._with_values(feeds, part)
            for asked in part:
                if asked in seen:
                    show(values[asked], seen[asked])
        if not seen:
            seen = self._answers(self._module, feeds, outputs) or {}
        self._made = {name: seen[name] for name in outputs if name in seen}
        code = 0 if len(self._made) == len(outputs) else _NO_SHAPES
        return {"code": code, "api": _MODULE}

    def _with_values(self, feeds: Feeds, names: list[str]) -> dict[str, np.ndarray]:
        """Return the outputs, and those values among some that a module can give."""
        outputs = self._names["outputs"]
        asked = [*outputs, *(name for name in names if name not in outputs)]
        try:
            module = self._loaded(self._names["inputs"], asked)
            found = self._answers(module, feeds, asked)
        except Exception:  # noqa: BLE001  # MNN raises no class of its own
            found = None
        if found is not None:
            return found
        if len(names) == 1:
            return {}
        # One name that the graph lacks has MNN refuse all of them.
        half = len(names) // 2
        return {
            **self._with_values(feeds, names[:half]),
            **self._with_values(feeds, names[half:]),
        }

    def outputs(self, _: Feeds, show: Show, *, names: list[str]) -> None:
        """Show the outputs of the last run."""
        if self._module is not None:
            for name in names:
                show(name, self._made[name])
            return
        tensors = self._net.getSessionOutputAll(self._session)
        for name in names:
            show(name, _copy(tensors[name]))

    def graph(self, _: Feeds, __: Show) -> dict[str, list[str]]:
        """Drop what runs; return the values that each value is computed from."""
        self._session = self._module = None  # one copy of the weights at a time
        graph = MNN.expr.load_as_dict(self._model)
        return {
            name: [entry.name for entry in variable.inputs]
            for name, variable in graph.items()
        }

    def cut(self, feeds: Feeds, show: Show, *, made: list[str]) -> int:
        """Show values that are computed from given ones; return how many there are."""
        cut = self._loaded(list(feeds), list(made))
        answers = cut.forward([_variable(value) for value in feeds.values()])
        if len(answers) == len(made):
            for at, name in enumerate(made):
                show(name, _read(answers[at]))
        return len(answers)

    def clock(self, feeds: Feeds, _: Show, *, runs: int) -> dict[str, Any]:
        """Run with a callback before and after every operator.

        Returns:
            The error code of the last run; and of each operator its kind, and the
            seconds of each of its steps. A module tells of no operator.

        """
        if self._module is not None:
            return {"code": self.run(feeds, _)["code"], "took": {}}
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
        self._inputs, self._made = {}, {}
        self._session = self._net = self._module = None

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
