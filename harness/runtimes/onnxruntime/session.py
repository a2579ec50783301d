"""ONNX Runtime's session: outputs as deployed, layers from the graph as exported.

The deployed session optimises the whole graph; a request for a value inside it would
undo a fusion. Layers are therefore read with optimisation off. A large graph is run in
consecutive segments, each with its own weights. So memory never holds all weights or
all values together.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import onnx
import onnxruntime as ort

from harness.core.case import Device
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.engine.export_files import PROBES
from harness.measure.name_map import Names
from harness.runtimes.onnxruntime import OPTIMISERS
from harness.runtimes.onnxruntime.load_errors import why_refused
from harness.runtimes.onnxruntime.profile import OPTIMISED, keep_profile, read_profile
from harness.runtimes.onnxruntime.segments import (
    GIVEN,
    Segment,
    cut_model,
    plan_segments,
    segment_model,
)
from harness.runtimes.session import Feeds, OnValue, Ran, Spent, check_feeds

if TYPE_CHECKING:
    import numpy as np

OPTIMISATION = "optimization"
"""The hint for how much the deployed session may rewrite: 0, 1, 2 or 99."""

_LEVELS = {
    0: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    99: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OrtSession(AbstractContextManager["OrtSession"]):
    """One ONNX file; sessions are made when first needed and dropped after use.

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
        self._deployed: ort.InferenceSession | None = self._open(path, self._level)
        self._whole: ort.InferenceSession | None = None
        self.ran = Ran(
            backend="onnxruntime",
            version=ort.__version__,
            device=device.device,
            threads=device.threads,
            precision="float32",
            detail=(
                ("optimisation", f"{_said(device.hints)} for outputs, off for layers"),
                ("provider", self._deployed.get_providers()[0]),
                ("tf32", str(device.tf32).lower()),
            ),
        )

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed."""
        check_feeds(feeds, self._inputs, self._path)
        if self._deployed is None:
            self._deployed = self._open(self._path, self._level)
        return self._outputs_of(self._deployed, feeds)

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run without optimisation, segment by segment."""
        check_feeds(feeds, self._inputs, self._path)
        self._deployed = None  # one copy of the weights at a time
        segments = plan_segments(self._proto.graph, sizes, self._outputs)
        live: dict[str, np.ndarray] = dict(feeds)
        for index, segment in enumerate(segments):
            session = self._segment_session(segment, live, whole=len(segments) == 1)
            names = list(dict.fromkeys((*segment.shows, *segment.keeps)))
            made = self._call(
                session, names, {name: live[name] for name in segment.reads}
            )
            del session
            for name, value in zip(names, made, strict=True):
                if name in sizes:
                    on_value(name, value)
                if name in segment.keeps:
                    live[name] = value
            needed = {name for later in segments[index + 1 :] for name in later.reads}
            needed |= set(self._outputs)
            live = {name: value for name, value in live.items() if name in needed}
        return {name: live[name] for name in self._outputs}

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run the graph without optimisation; every operator reads given values."""
        self._deployed = self._whole = None  # one copy of the weights at a time
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
            session = self._open(
                segment_model(model, segment, live).SerializeToString(),
                ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
            )
            made = self._call(session, list(segment.shows), live)
            for name, value in zip(segment.shows, made, strict=True):
                on_value(name, value)

    def clock(self, feeds: Mapping[str, np.ndarray], runs: int) -> list[Spent]:
        """Run a separate session that writes a profile."""
        self._deployed = self._whole = None  # one copy of the weights at a time
        with TemporaryDirectory() as name:
            folder = Path(name)
            session = self._open(self._path, self._level, profile=folder)
            for _ in range(runs):
                self._outputs_of(session, feeds)
            return read_profile(Path(session.end_profiling()), folder / OPTIMISED)

    def __exit__(self, *_: object) -> None:
        """Close the file, however the `with` ends."""
        self.close()

    def close(self) -> None:
        """Drop the sessions."""
        self._deployed = self._whole = None

    def _segment_session(
        self, segment: Segment, live: Mapping[str, np.ndarray], *, whole: bool
    ) -> ort.InferenceSession:
        if whole and self._whole is not None:
            return self._whole
        session = self._open(
            segment_model(self._proto, segment, live).SerializeToString(),
            ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        )
        if whole:
            self._whole = session
        return session

    def _open(
        self,
        model: Path | bytes,
        level: ort.GraphOptimizationLevel,
        profile: Path | None = None,
    ) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = self._device.threads
        options.inter_op_num_threads = 1
        # Spinning threads take the core that the comparison and other cases need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path",
            str(self._path.parent),
        )
        if profile is not None:
            keep_profile(options, profile)
        provider = _PROVIDERS[self._device.device]
        settings = (
            {"use_tf32": int(self._device.tf32)} if provider[:4] == "CUDA" else {}
        )
        source = str(model) if isinstance(model, Path) else model
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                session = ort.InferenceSession(
                    source,
                    options,
                    providers=[(provider, settings)],
                    disabled_optimizers=self._left_out,
                )
            except Exception as error:  # onnxruntime's classes share no other base
                probes = self._path.parent / PROBES
                why = why_refused(
                    error,
                    self._proto,
                    load_probes(probes) if probes.is_file() else (),
                    provider,
                )
                msg = f"onnxruntime {ort.__version__} refuses {self._path.name}: {why}"
                raise StageError(msg, outcome=Outcome.LOAD, log=str(error)) from error
        got = session.get_providers()[0]
        if got != provider:
            words = f" It says: {said[-1].message}" if said else ""
            msg = (
                f"onnxruntime was asked for {provider} and runs on {got}.{words} "
                "Install the package and driver it needs, or ask for cpu; "
                "`parity doctor` says what works here."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK)
        return session

    def _outputs_of(
        self, session: ort.InferenceSession, feeds: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        names = [value.name for value in session.get_outputs()]
        if names != list(self._outputs):
            msg = (
                f"{self._path.name} has the outputs {names}, the component promises "
                f"{list(self._outputs)}."
            )
            raise StageError(msg, outcome=Outcome.MISSING)
        return dict(zip(names, self._call(session, names, feeds), strict=True))

    def _call(
        self,
        session: ort.InferenceSession,
        names: list[str],
        feeds: Mapping[str, np.ndarray],
    ) -> list[np.ndarray]:
        try:
            made: list[np.ndarray] = session.run(names, dict(feeds))
        except Exception as error:  # onnxruntime's classes share no other base
            msg = (
                f"onnxruntime {ort.__version__} cannot run {self._path.name}: "
                f"{first_line(error)}."
            )
            raise StageError(msg, outcome=Outcome.RUN) from error
        return made


def _rewrites(
    hints: Iterable[tuple[str, int]],
) -> tuple[ort.GraphOptimizationLevel, list[str]]:
    """Return the optimisation level, and the rewrites to leave out.

    Raises:
        StageError: A hint names neither the level nor a rewrite.

    """
    given = dict(hints)
    number = given.pop(OPTIMISATION, 99)
    if number not in _LEVELS:
        msg = f"onnxruntime has no optimization {number}; it has {sorted(_LEVELS)}."
        raise StageError(msg, outcome=Outcome.LOAD)
    for name, value in given.items():
        if name not in OPTIMISERS or value != 0:
            msg = (
                f"onnxruntime takes no hint {name} = {value}; it takes {OPTIMISATION}, "
                f"or 0 for a rewrite to leave out, of: {', '.join(OPTIMISERS)}."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
    return _LEVELS[number], list(given)


def _said(hints: Iterable[tuple[str, int]]) -> str:
    given = dict(hints)
    number = given.pop(OPTIMISATION, 99)
    level = "all" if number == 99 else f"level {number}"  # noqa: PLR2004  # ORT's own
    return f"{level} without {', '.join(given)}" if given else level


def _read(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises several classes
        msg = f"{path.name} is truncated or no ONNX file ({first_line(error)})."
        raise StageError(msg, outcome=Outcome.LOAD) from error


open_session = OrtSession
