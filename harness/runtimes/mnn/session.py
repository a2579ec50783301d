"""A deployed file in MNN, unchanged: in a session or by the Module API.

A session is watched by its own callback; a module is asked for values as outputs.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Literal, TypedDict

import numpy as np

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.pythons import in_order
from harness.measure.align import MATMUL
from harness.runtimes.driving import Values, drive
from harness.runtimes.graph.cuts import grouped
from harness.runtimes.mnn import HINTS, MODEL, RUNTIME, WEIGHTS
from harness.runtimes.mnn.file import (
    Operator,
    converted_by,
    operators,
    tensors_of,
    values_asked,
    values_made,
)
from harness.runtimes.session import (
    Feeds,
    OnValue,
    Ran,
    Spent,
    check_feeds,
    check_outputs,
)

_FORWARD_TYPES = {
    "cpu": (0, 13),  # without and with this machine's instruction extensions
    "metal": (1,),
    "cuda": (2,),
    "opencl": (3,),
    "vulkan": (7,),
}
"""Device to the MNNForwardType numbers that its session may report."""
_OUT_OF_MEMORY = 1
_ERRORS = {
    _OUT_OF_MEMORY: "out of memory",
    2: "not supported",
    3: "its shapes could not be computed",
    4: "no execution",
    5: "invalid value",
}
"""Error codes of ErrorCode.hpp with which a run can end."""
_MAY_BE_MODULE = (
    " A session cannot run shapes and branches that depend on values, and MNN's Module "
    'API can: ask for `api = "module"` under [backend.mnn] if the app uses that.'
)
_INT32 = np.iinfo(np.int32)


class OpenedFile(TypedDict):
    """What the driver returns where it has opened a file; a module has no backend."""

    inputs: dict[str, int]
    whole: list[str]
    outputs: list[str]
    backend: int | None


class Ended(TypedDict):
    """What the driver returns of a run: MNN's error code, and the API that ran."""

    code: int
    api: Literal["session", "module"]


class Clocked(TypedDict):
    """What the driver returns of a timed run."""

    code: int
    took: dict[str, tuple[str, list[float]]]


class MnnSession(AbstractContextManager["MnnSession"]):
    """One ``.mnn`` file, in an interpreter session or as a module.

    Where the suite names no API, a session runs the file until it cannot.

    Raises:
        StageError: MNN refuses the file, or the file lost an output.

    """

    def __init__(self, path: Path, device: Device, outputs: Sequence[str]) -> None:
        self._path = path
        self._outputs = tuple(outputs)
        self._device = device
        hints = [[_hint(name), value] for name, value in device.hints]
        weights = path.with_name(f"{path.name}{WEIGHTS.removeprefix(MODEL)}")
        files = [path, *([weights] if weights.is_file() else [])]
        self._mnn = drive(RUNTIME, device, files)
        try:
            self._open(device, hints)
        except BaseException:
            self.close()
            raise
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._apis: dict[str, None] = {}  # in the order in which they ran

    @property
    def ran(self) -> Ran:
        """What ran; a session is named only where the suite asks for one."""
        device = self._device
        apis = tuple(self._apis)
        said = device.api or apis not in {(), ("session",)}
        return Ran(
            backend="mnn",
            version=self._mnn.version,
            device=device.device,
            threads=device.threads,
            precision=device.precision,
            detail=(
                *((("api", ", then ".join(apis)),) if said and apis else ()),
                *((f"hint {name}", str(value)) for name, value in device.hints),
                *self._mnn.about,
            ),
        )

    def _open(self, device: Device, hints: list[list[int]]) -> None:
        config = {
            "backend": device.device.upper(),
            "precision": device.precision,
            "numThread": device.threads,
        }
        model = self._mnn.files[self._path.name]
        # A bundle says of its device what the suite says of it, and no more.
        api = {"api": device.api} if device.api else {}
        try:
            found = self._mnn.ask(
                "open", OpenedFile, model=model, config=config, hints=hints, **api
            )
        except StageError:
            raise
        except Exception as error:  # MNN raises no class of its own
            if device.api == "session" and "createSession" in str(error):
                msg = (
                    f"MNN {self._mnn.version} makes no session of {self._path.name} "
                    f"({error}).{_MAY_BE_MODULE}"
                )
                raise StageError(msg, outcome=Outcome.LOAD) from error
            raise refused(self._path, error, self._mnn.version) from error
        self._inputs, self._whole = found["inputs"], frozenset(found["whole"])
        check_outputs(found["outputs"], self._outputs, self._path)
        if found["backend"] is not None:  # else its log alone tells of another one
            self._check_device(device, found["backend"])

    @cached_property
    def _operators(self) -> list[Operator]:
        """The operators of the file; those inside a branch or a loop are not among."""
        # They are read when a run is watched: a file that is only run needs none.
        try:
            return operators(self._path)
        except ValueError as error:
            raise refused(self._path, error, self._mnn.version) from error

    @cached_property
    def _made(self) -> dict[str, str]:
        """Names of operators, to the names of the values that they make."""
        return values_made(self._operators)

    def _check_device(self, device: Device, got: int) -> None:
        """Refuse a device that was not requested: MNN falls back without a message."""
        if got not in _FORWARD_TYPES[device.device]:
            msg = (
                f"MNN {self._mnn.version} was asked for {device.device} and runs on "
                f"backend type {got}. This build lacks {device.device}; use one that "
                "has it, or ask for cpu; `parity doctor` says what works here."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed."""
        self._check_ran(self._mnn.ask("run", Ended, self._given(feeds)))
        return self._read_outputs()

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run and hand over values; the file is not changed."""
        given = self._given(feeds)
        # The names are read before: an error must not cross MNN's callback.
        ended = self._mnn.ask(
            "watch",
            Ended,
            given,
            Values(on_value, sizes, ends=("", MATMUL)),
            wanted=sizes,
            made=self._made,
            suffix=MATMUL,
            values=values_asked(self._operators, self._made, sizes, MATMUL),
        )
        self._check_ran(ended)
        return self._read_outputs()

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run cuts of the unchanged file, in a few groups; none is converted again."""
        inputs_of = self._mnn.ask("graph", dict[str, list[str]])
        tensors = tensors_of(self._operators, self._made, given)
        held = {name: value for value, name in tensors.items() if name in inputs_of}

        def show(name: str, value: np.ndarray) -> None:
            on_value(held[name], value)

        for group in grouped(held, inputs_of, {*held, *feeds}):
            values = {
                name: _narrowed(
                    name, feeds[name] if name in feeds else given[held[name]]
                )
                for name in group.given
            }
            shown = Values(show, group.made, ends=("",))
            answers = self._mnn.ask("cut", int, values, shown, made=group.made)
            if answers != len(group.made):
                msg = (
                    f"MNN {self._mnn.version} cannot run {len(group.made)} cuts of "
                    f"{self._path.name} on the reference's values; its log says why."
                )
                raise StageError(msg, outcome=Outcome.RUN)

    def clock(self, feeds: Feeds, runs: int) -> list[Spent]:
        """Run with a callback before and after every operator."""
        found = self._mnn.ask("clock", Clocked, self._given(feeds), runs=runs)
        self._check_code(found["code"])
        # One name may stand for several steps of a run, whose times add up.
        return [
            Spent(name=name, kind=kind, took_s=_of_a_run(seen, runs))
            for name, (kind, seen) in found["took"].items()
        ]

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the session, and the connection to its target."""
        self._mnn.close()

    def _given(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Return inputs as MNN takes them."""
        check_feeds(feeds, list(self._inputs), self._path)
        for name, axes in self._inputs.items():
            if axes != feeds[name].ndim:
                msg = (
                    f"{self._path.name}: input {name!r} has {axes} "
                    f"axes, the component gives {feeds[name].ndim}."
                )
                raise StageError(msg, outcome=Outcome.SHAPE)
            # MNN would read the bits of the number as an integer.
            if name in self._whole and feeds[name].dtype.kind == "f":
                msg = (
                    f"{self._path.name}: input {name!r} has integers, the component "
                    f"gives {feeds[name].dtype}."
                )
                raise StageError(msg, outcome=Outcome.DTYPE)
        self._shapes = {name: value.shape for name, value in feeds.items()}
        return {name: _narrowed(name, feeds[name]) for name in self._inputs}

    def _check_ran(self, ended: Ended) -> None:
        self._apis[ended["api"]] = None
        self._check_code(ended["code"])

    def _check_code(self, code: int) -> None:
        """Refuse the memory of a failed run, which looks like numbers."""
        if code != 0:
            msg = (
                f"MNN {self._mnn.version} cannot run {self._path.name} on inputs of "
                f"{sorted(self._shapes.items())}: error {code}, "
                f"{_ERRORS.get(code, 'see ErrorCode.hpp')}."
            )
            full = code == _OUT_OF_MEMORY
            if self._device.api == "session" and not full:
                msg += _MAY_BE_MODULE
            raise StageError(msg, outcome=Outcome.MEMORY if full else Outcome.RUN)

    def _read_outputs(self) -> dict[str, np.ndarray]:
        made: dict[str, np.ndarray] = {}
        shown = Values(made.__setitem__, self._outputs)
        self._mnn.ask("outputs", NoneType, None, shown, names=self._outputs)
        return made


def refused(path: Path, error: Exception, version: str) -> StageError:
    """Return the message about a file that MNN does not load."""
    made_by = converted_by(path)
    if made_by and in_order((made_by, version))[-1] != version:
        msg = (
            f"MNN {version} cannot read {path.name}, which the converter of MNN "
            f"{made_by} made; convert it with `converter = {json.dumps(version)}` "
            f"under [backend.mnn], or run it in another version ({error})."
        )
        return StageError(msg, outcome=Outcome.LOAD)
    msg = (
        f"MNN {version} refuses {path.name}: it is truncated, of another "
        f"version, or no MNN file ({error})."
    )
    return StageError(msg, outcome=Outcome.LOAD)


def _of_a_run(seen: Sequence[float], runs: int) -> float:
    """Return the median over runs of the time of one name in each run."""
    steps = len(seen) // runs
    return statistics.median(
        sum(seen[run * steps : (run + 1) * steps]) for run in range(runs)
    )


def _narrowed(name: str, value: np.ndarray) -> np.ndarray:
    """Return a value in float32 or int32: MNN misreads int64, without an error."""
    dtype: type[np.float32 | np.int32] = np.float32
    if value.dtype.kind != "f":
        dtype = np.int32
        if value.size and (value.min() < _INT32.min or value.max() > _INT32.max):
            msg = f"Input {name!r} has integers beyond int32, which is all MNN reads."
            raise StageError(msg, outcome=Outcome.DTYPE)
    # NumPy gives a number of no axes one axis, and MNN would resize its input to that.
    return np.ascontiguousarray(value, dtype=dtype).reshape(value.shape)


def _hint(name: str) -> int:
    """Return the number of a session hint, given by its name or its number."""
    if re.fullmatch(r"[0-9]{1,9}", name):
        return int(name)
    if name not in HINTS:
        msg = (
            f"MNN has no session hint {name!r}; it has {', '.join(HINTS)}. A newer one "
            "can be given by its number in Interpreter.hpp."
        )
        raise StageError(msg, outcome=Outcome.LOAD)
    return HINTS.index(name)


open_session = MnnSession
