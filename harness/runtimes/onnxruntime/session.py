"""ONNX Runtime's session: outputs as deployed, layers from the graph as exported.

The deployed session optimises the whole graph; a request for a value inside it would
undo a fusion. Layers are therefore read with optimisation off. A large graph is run in
consecutive segments, each with its own weights. So memory never holds all weights or
all values together.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from types import NoneType
from typing import TypedDict, TypeVar

import numpy as np
import onnx

from harness.core.case import Device
from harness.core.errors import StageError, first_line
from harness.core.onnx_ports import weight_files
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.engine.export_files import PROBES
from harness.measure.name_map import Names
from harness.runtimes.driving import Values, drive
from harness.runtimes.graph.onnx_graph import exact_nodes
from harness.runtimes.onnxruntime import OPTIMISERS, RUNTIME
from harness.runtimes.onnxruntime.load_errors import why_refused
from harness.runtimes.onnxruntime.providers import (
    CPU,
    Placement,
    is_about_provider,
    kept_on_cpu,
    lacking,
    not_made,
    options_of,
    provider_of,
    table_of,
)
from harness.runtimes.onnxruntime.segments import (
    GIVEN,
    Segment,
    cut_model,
    plan_segments,
    segment_model,
)
from harness.runtimes.session import Feeds, OnValue, Ran, Spent, check_feeds

T = TypeVar("T")

OPTIMISATION = "optimization"
"""The hint for how much the deployed session may rewrite: 0, 1, 2 or 99."""

_KERNEL = "_kernel_time"
_LEVELS = (0, 1, 2, 99)
_OFF, _ALL = 0, 99
_DEPLOYED, _PROFILED, _WHOLE, _SEGMENT = "deployed", "profiled", "whole", "segment"
"""What the open session is: the deployed file, or the exported graph or a piece."""


class _Providers(TypedDict):
    providers: list[str]
    outputs: list[str]


class OpenedSession(_Providers, total=False):
    """What the driver returns where it has opened a file."""

    said: str
    nodes: int
    on_cpu: list[tuple[str, str]] | None


class OrtSession(AbstractContextManager["OrtSession"]):
    """One ONNX file; one session at a time is open, which is made when it is needed.

    Raises:
        StageError: onnxruntime refuses the file or uses another provider.

    """

    def __init__(self, path: Path, device: Device, outputs: Sequence[str]) -> None:
        self._path = path
        self._device = device
        self._outputs = tuple(outputs)
        self._proto = _read(path)
        # Foreign models may list weights as inputs, as all did before IR version 4.
        listed = self._proto.graph.initializer if Names.load(path.parent) else ()
        weights = {tensor.name for tensor in listed}
        self._inputs = tuple(
            value.name for value in self._proto.graph.input if value.name not in weights
        )
        self._level, self._left_out = _rewrites(device.hints)
        level = "all" if self._level == _ALL else f"level {self._level}"
        if self._left_out:
            level = f"{level} without {', '.join(self._left_out)}"
        names = (path.name, *weight_files(self._proto))
        files = [file for name in names if (file := path.parent / name).is_file()]
        self._ort = drive(RUNTIME, device, files)
        self._opened = ""
        self._made: list[str] = []  # names of the open session's outputs
        self._provider = provider_of(device)
        is_other = self._provider != CPU
        self._exact = exact_nodes(self._proto) if is_other else set()
        self._exact |= {*kept_on_cpu(device)}
        self._known = {node.name for node in self._proto.graph.node}
        self._placed = Placement(self._exact, self._known)
        try:
            self._open(_DEPLOYED)
            self._check_placed("as deployed")
        except BaseException:
            self.close()
            raise
        self.ran = Ran(
            backend="onnxruntime",
            version=self._ort.version,
            device=device.device,
            threads=device.threads,
            precision="float32",
            detail=(
                ("optimisation", f"{level} for outputs, off for layers"),
                ("provider", self._provider),
                *((name, str(value)) for name, value in device.provider_options),
                *((("on the CPU provider", str(self._placed)),) if is_other else ()),
                ("tf32", str(device.tf32).lower()),
                *self._ort.about,
            ),
        )

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed."""
        check_feeds(feeds, self._inputs, self._path)
        if self._opened != _DEPLOYED:
            self._open(_DEPLOYED)
        return self._outputs_of(feeds)

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run without optimisation, segment by segment."""
        check_feeds(feeds, self._inputs, self._path)
        sizes = self._readable(sizes)
        segments = plan_segments(self._proto.graph, sizes, self._outputs)
        kind = _WHOLE if len(segments) == 1 else _SEGMENT
        # An initialiser may be an output, and no node makes it.
        live: dict[str, np.ndarray] = {
            one.name: onnx.numpy_helper.to_array(one, str(self._path.parent))
            for one in self._proto.graph.initializer
            if one.name in self._outputs
        }
        live |= feeds
        self._placed = Placement(self._exact, self._known)
        for index, segment in enumerate(segments):
            if kind == _SEGMENT or self._opened != _WHOLE:
                self._open(kind, segment_model(self._proto, segment, live))
            kept: dict[str, np.ndarray] = {}

            def take(
                name: str,
                value: np.ndarray,
                segment: Segment = segment,
                kept: dict[str, np.ndarray] = kept,
            ) -> None:
                if name in sizes:
                    on_value(name, value)
                if name in segment.keeps:
                    kept[name] = value

            names = list(dict.fromkeys((*segment.shows, *segment.keeps)))
            reads = {name: live[name] for name in segment.reads}
            self._call(names, reads, take)
            live |= kept
            needed = {name for later in segments[index + 1 :] for name in later.reads}
            needed |= set(self._outputs)
            live = {name: value for name, value in live.items() if name in needed}
        self._check_placed("without optimisation, as its layers are read")
        return {name: live[name] for name in self._outputs}

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run the graph without optimisation; every operator reads given values."""
        given = self._readable(given)
        model = cut_model(self._proto, given)
        sizes = {name: given[name].nbytes for name in given}
        for segment in plan_segments(model.graph, sizes, ()):
            live = {
                name: given[name.removesuffix(GIVEN)]
                if name.endswith(GIVEN)
                else feeds[name]
                for name in segment.reads
            }
            if not segment.shows:
                continue
            self._open(_SEGMENT, segment_model(model, segment, live))
            self._call(list(segment.shows), live, on_value)

    def _readable(self, values: Mapping[str, T]) -> dict[str, T]:
        """Leave out what is in bfloat16: NumPy has none, and no session shows it."""
        rounded = {
            value.name
            for value in self._proto.graph.value_info
            if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
        }
        return {name: one for name, one in values.items() if name not in rounded}

    def clock(self, feeds: Feeds, runs: int) -> list[Spent]:
        """Run a session as deployed that writes a profile."""
        with TemporaryDirectory(prefix="parity-profile-") as name:
            folder = Path(name)
            self._open(_PROFILED, profile=name)
            for _ in range(runs):
                self._outputs_of(feeds)
            self._ort.ask("end_profiling", str)
            # What a runtime answers is never a path that is read here.
            (profile,) = folder.glob("profile*.json")
            return list(_spent(profile, folder / "optimised.onnx"))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the session, and the connection to its target."""
        self._opened = ""
        self._ort.close()

    def _open(
        self, kind: str, piece: onnx.ModelProto | None = None, profile: str = ""
    ) -> None:
        """Open a session in place of the one before.

        `piece` is the exported graph, or a piece of it; None for the deployed file.
        `profile` is the folder for a profile; empty for none.
        """
        self._opened = ""
        device, at = self._device, self._ort.files[self._path.name]
        try:
            found = self._ort.ask(
                "open",
                OpenedSession,
                {}
                if piece is None
                else {"model": np.frombuffer(piece.SerializeToString(), np.uint8)},
                None,
                model=at if piece is None else "",
                folder=str(PurePath(at).parent),
                level=self._level if piece is None else _OFF,
                threads=device.threads,
                provider=self._provider,
                settings=options_of(device),
                left_out=self._left_out,
                profile=profile,
            )
        except StageError:
            raise
        except Exception as error:  # onnxruntime's classes share no other base
            raise self._refused(error) from error
        has = found["providers"]
        on_cpu = found.get("on_cpu")
        if on_cpu and has == [CPU] and not any(name for name, _ in on_cpu):
            # onnxruntime-web names no node where all are in one place.
            has = [self._provider, CPU]
            graph = (piece or self._proto).graph
            on_cpu = [(node.name, node.op_type) for node in graph.node]
        if not found["outputs"] or not has:
            msg = lacking(device, self._ort.version, has)
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        if has[0] != self._provider:
            msg = not_made(device, found.get("said", ""), has[0])
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        self._opened, self._made = kind, found["outputs"]
        if on_cpu is not None:
            self._placed.add(found.get("nodes", 0), on_cpu)
        elif self._provider != CPU and device.cpu_nodes < 1:
            msg = (
                f"onnxruntime {self._ort.version} does not tell which nodes run on the "
                "CPU provider. Use 1.24 or newer, or allow all nodes to run there with "
                f"`cpu_nodes = 1.0` under {table_of(device, 'cpu_nodes')}."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)

    def _check_placed(self, how: str) -> None:
        """Refuse a run of which the CPU provider does more than the suite allows."""
        if msg := self._placed.too_many(self._device, how):
            raise StageError(msg, outcome=Outcome.FELL_BACK)

    def _refused(self, error: Exception) -> StageError:
        """Return the message about a provider or a file that onnxruntime refuses."""
        if is_about_provider(str(error)):
            msg = not_made(self._device, str(error), "")
            return StageError(msg, outcome=Outcome.FELL_BACK, log=str(error))
        probes = self._path.parent / PROBES
        why = why_refused(
            error,
            self._proto,
            load_probes(probes) if probes.is_file() else (),
            self._provider,
        )
        msg = f"onnxruntime {self._ort.version} refuses {self._path.name}: {why}"
        return StageError(msg, outcome=Outcome.LOAD, log=str(error))

    def _outputs_of(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._made != list(self._outputs):
            msg = (
                f"{self._path.name} has the outputs {self._made}, the component "
                f"promises {list(self._outputs)}."
            )
            raise StageError(msg, outcome=Outcome.MISSING)
        made: dict[str, np.ndarray] = {}
        self._call(self._made, feeds, made.__setitem__)
        return made

    def _call(
        self, names: list[str], feeds: Mapping[str, np.ndarray], on_value: OnValue
    ) -> None:
        """Run the open session, and hand over those of its outputs that are named."""
        failure: list[BaseException] = []

        def take(name: str, value: np.ndarray) -> None:
            try:
                on_value(name, value)
            except BaseException as error:
                failure.append(error)
                raise

        try:
            self._ort.ask("run", NoneType, feeds, Values(take, names), names=names)
        except StageError:
            raise
        except Exception as error:  # onnxruntime's classes share no other base
            if failure:  # not onnxruntime's
                raise
            msg = (
                f"onnxruntime {self._ort.version} cannot run {self._path.name}: "
                f"{first_line(error)}."
            )
            full = "Failed to allocate memory" in str(error)
            outcome = Outcome.MEMORY if full else Outcome.RUN
            raise StageError(msg, outcome=outcome) from error


def _spent(profile: Path, optimised: Path) -> Iterator[Spent]:
    """Yield the time of each node of the `optimised` graph, which really ran."""
    took: dict[str, list[float]] = {}
    for event in json.loads(profile.read_text(encoding="utf-8")):  # noqa: TID251  # ONNX Runtime wrote it here just now
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            took.setdefault(name.removesuffix(_KERNEL), []).append(event["dur"] / 1e6)
    for node in onnx.load(optimised, load_external_data=False).graph.node:
        if seen := took.get(node.name):
            yield Spent(
                name=node.name,
                kind=node.op_type,
                reads=tuple(node.input),
                makes=tuple(node.output),
                took_s=statistics.median(seen),
            )


def _rewrites(hints: Iterable[tuple[str, int]]) -> tuple[int, list[str]]:
    """Return the optimisation level, and the rewrites to leave out.

    Raises:
        StageError: A hint names neither the level nor a rewrite.

    """
    given = dict(hints)
    number = given.pop(OPTIMISATION, _ALL)
    if number not in _LEVELS:
        msg = f"onnxruntime has no optimization {number}; it has {list(_LEVELS)}."
        raise StageError(msg, outcome=Outcome.LOAD)
    for name, value in given.items():
        if name not in OPTIMISERS or value != 0:
            msg = (
                f"onnxruntime takes no hint {name} = {value}; it takes {OPTIMISATION}, "
                f"or 0 for a rewrite to leave out, of: {', '.join(OPTIMISERS)}."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
    return number, list(given)


def _read(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises several classes
        msg = f"{path.name} is truncated or no ONNX file ({first_line(error)})."
        raise StageError(msg, outcome=Outcome.LOAD) from error


open_session = OrtSession
