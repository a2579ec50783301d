"""One case through all stages, several at once; the only file that knows the order.

The engine looks in the store, sends what is missing to child processes, and returns a
record whatever happened. It judges nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from harness import export_files, keys, stages
from harness.backends.words import fallback
from harness.convert import MODEL as MNN_MODEL
from harness.convert import native_converter
from harness.deployed import Deployed, Reading
from harness.digest import digest_value
from harness.entry import Entry
from harness.errors import ParityError, StageError
from harness.groups import Group, sample_groups, samples_of
from harness.isolate import Host
from harness.job import JobResult
from harness.outcome import Outcome
from harness.report.record import CaseRecord, Failure
from harness.spec import Case, Sample
from harness.store import Store

LOG_CHARACTERS = 4096
"""Of a runtime's native output, what a record keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a stage says while it works.

    Attributes:
        stage: ``exporting``, ``converting``, ``running``, …
        subject: Component or case.
        detail: Opset, size, sample.

    """

    stage: str
    subject: str
    detail: str


class Engine:
    """Runs cases; closes its child processes on leaving.

    Args:
        store: Where artifacts are kept.
        timeout_s: Limit of one stage of one case.
        jobs: Cases in progress at once.
        mnn_convert: A native converter to use, instead of one on PATH or the wheel's.
        on_progress: Told what the stages do, from several threads.

    """

    def __init__(  # what a run is given from outside
        self,
        store: Store,
        *,
        timeout_s: float,
        jobs: int = 1,
        mnn_convert: str | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.store = store
        self._timeout_s = timeout_s
        self._native = native_converter(mnn_convert)
        self._on_progress = on_progress
        self._pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="parity")
        self._idle: dict[str, list[Host]] = {}
        self._all: list[Host] = []
        self._closed = False
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._failed: dict[str, StageError] = {}

    def __enter__(self) -> Self:
        """Return the engine itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it; what is running is given up."""
        self.close()

    def close(self) -> None:
        """Drop waiting cases and end every child process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            hosts, self._all = self._all, []
        for host in hosts:
            host.close()
        self._pool.shutdown(wait=True)

    def make(self, cases: Iterable[Case]) -> None:
        """Make all that the cases need and the store lacks; return when it is there.

        What cannot be made is left out here: the case that needs it says so.
        """
        by_component: dict[str, list[Case]] = {}
        for case in cases:
            by_component.setdefault(_export_id(case), []).append(case)
        exports = {
            self._pool.submit(
                self._try, self._prepare, together[0], samples_of(together)
            ): together
            for together in by_component.values()
        }
        waiting = [
            self._pool.submit(self._try, self._deploy_all, case)
            for done in as_completed(exports)
            for case in exports[done]
        ]
        wait(waiting)

    def _try(self, stage: Callable[..., object], *arguments: object) -> None:
        with suppress(ParityError):
            stage(*arguments)

    def submit(self, case: Case) -> Future[CaseRecord]:
        """Start a case as soon as there is room for it."""
        return self._pool.submit(self.run, case)

    def run(self, case: Case) -> CaseRecord:
        """Take one case through all stages and return its record."""
        known = partial(
            CaseRecord,
            case=case.id,
            component=case.component.name,
            backend=case.backend,
            variant=case.variant.name,
            asked=asdict(case.device),
        )
        try:
            return self._run(case, known)
        except StageError as error:
            return known(
                failure=Failure(
                    outcome=error.outcome, message=str(error), log=error.log
                )
            )
        except ParityError as error:
            return known(failure=Failure(outcome=Outcome.EXPORT, message=str(error)))

    def _run(self, case: Case, known: Callable[..., CaseRecord]) -> CaseRecord:
        took: dict[str, float] = {}
        prepared = self._prepare(case, case.samples, took)
        deployed = []
        made: dict[str, Any] = {}
        rewrite = 0.0
        for group in sample_groups(case, case.samples):
            onnx = self._graph(case, group)
            artifact, model = self._deploy(case, onnx, took)
            readings = tuple(prepared[sample] for sample in group.samples)
            rewrite = max(
                [rewrite]
                + [
                    float(cast("float", r.reference.meta["rewrite_max_abs"]))
                    for r in readings
                ]
            )
            deployed.append(
                Deployed(
                    artifact=artifact,
                    model=model,
                    probes=onnx.file(export_files.PROBES),
                    readings=readings,
                )
            )
            made = {"onnx": _summary(onnx), case.backend: _summary(artifact)}
        result = self._job(
            case.backend,
            stages.run_candidate,
            case.id,
            case.component,
            case.device,
            case.backend,
            tuple(deployed),
            subject=case.id,
            label=case.id,
            failure=Outcome.RUN,
        )
        took["candidate"] = result.wall_ns / 1e9
        self._check_words(case, f"{result.import_log}\n{result.log}")
        measured = cast("Mapping[str, Any]", result.value)
        return known(
            rows=measured["rows"],
            ran=measured["ran"],
            coverage=measured["coverage"],
            observer_max_abs=measured["observer_max_abs"],
            rewrite_max_abs=rewrite,
            artifacts=made,
            took_s=took,
            peak_bytes=result.peak_bytes,
            log=result.log[-LOG_CHARACTERS:],
        )

    def _prepare(
        self,
        case: Case,
        samples: Sequence[Sample],
        took: dict[str, float] | None = None,
    ) -> dict[Sample, Reading]:
        """Return samples' inputs and references, making what is missing."""
        groups = sample_groups(case, samples)
        with self._one_at_a_time(_export_id(case)):
            found = self._readings(case, groups)
            if found is None:
                result = self._job(
                    "torch",
                    stages.prepare,
                    self.store.root,
                    case.component,
                    case.export,
                    groups,
                    case.reference,
                    subject=case.component.name,
                    label=f"{case.component.name}: export and reference",
                    failure=Outcome.EXPORT,
                )
                if took is not None:
                    took.update(cast("dict[str, float]", result.value))
                found = self._readings(case, groups)
        if found is None:
            msg = f"{case.component.name}: the store lost what was just made in it."
            raise StageError(msg, outcome=Outcome.LOAD)
        return found

    def _readings(
        self, case: Case, groups: tuple[Group, ...]
    ) -> dict[Sample, Reading] | None:
        """Return what the store has, or None unless it has all."""
        readings = {}
        for group in groups:
            graph = keys.onnx_key(case.component, case.export, dict(group.shapes))
            if self.store.find("onnx", graph) is None:
                return None
            for sample in group.samples:
                drawn = keys.inputs_key(case.component, sample)
                inputs = self.store.find("inputs", drawn)
                if inputs is None:
                    return None
                recorded = keys.reference_key(
                    graph, inputs, case.reference, layers=sample.layers
                )
                reference = self.store.find("reference", recorded)
                if reference is None:
                    return None
                readings[sample] = Reading(
                    sample=sample.id,
                    inputs=inputs,
                    reference=reference,
                    layers=sample.layers,
                )
        return readings

    def _deploy_all(self, case: Case) -> None:
        for group in sample_groups(case, case.samples):
            self._deploy(case, self._graph(case, group))

    def _deploy(
        self, case: Case, onnx: Entry, took: dict[str, float] | None = None
    ) -> tuple[Entry, str]:
        """Return the deployed file, making it if it is missing."""
        variant = case.variant
        if variant.backend == "onnxruntime" and variant.kind == "fp32":
            return onnx, export_files.MODEL
        key = keys.variant_key(onnx, variant, self._native)
        model = MNN_MODEL if variant.backend == "mnn" else export_files.MODEL
        with self._one_at_a_time(digest_value(key)):
            found = self.store.find(variant.backend, key)
            if found is None:
                result = self._job(
                    f"convert-{variant.backend}",
                    stages.deploy,
                    self.store.root,
                    case.component,
                    variant,
                    onnx,
                    self._native,
                    subject=case.component.name,
                    label=f"{case.id}: conversion",
                    failure=Outcome.CONVERT,
                )
                if took is not None:
                    took["convert"] = cast("float", result.value)
                found = self._found(variant.backend, key)
        return found, model

    def _graph(self, case: Case, group: Group) -> Entry:
        key = keys.onnx_key(case.component, case.export, dict(group.shapes))
        return self._found("onnx", key)

    def _found(self, kind: str, key: Mapping[str, object]) -> Entry:
        entry = self.store.find(kind, key)
        if entry is None:
            msg = f"The store lost the {kind} artifact that was just made in it."
            raise StageError(msg, outcome=Outcome.LOAD)
        return entry

    def _check_words(self, case: Case, log: str) -> None:
        """Fail a run whose native output says that it ran elsewhere."""
        device = case.device
        if words := fallback(case.backend, device.precision, log):
            asked = f"{device.device} in {device.precision} precision"
            msg = (
                f"{case.id}: asked for {asked}, and the runtime says: {words!r}. "
                "`parity doctor` says what works here."
            )
            raise StageError(msg, outcome=Outcome.FELL_BACK, log=log)

    def _job(
        self,
        host_name: str,
        function: Callable[..., object],
        *arguments: object,
        subject: str,
        label: str,
        failure: Outcome,
    ) -> JobResult:
        """Run a stage in a child process of an idle host, or of a new one."""
        with self._lock:
            idle = self._idle.setdefault(host_name, [])
            if self._closed:
                msg = f"{label}: given up, the run was stopped."
                raise StageError(msg, outcome=Outcome.RUN)
            host = idle.pop() if idle else None
            if host is None:
                host = Host(host_name, stages.PRELOAD[host_name])
                self._all.append(host)
        try:
            return host.run(
                function,
                *arguments,
                timeout_s=self._timeout_s,
                label=label,
                failure=failure,
                on_progress=self._relay,
            )
        finally:
            self._tell(Progress(stage="done", subject=subject, detail=""))
            with self._lock:
                self._idle[host_name].append(host)

    @contextmanager
    def _one_at_a_time(self, name: str) -> Iterator[None]:
        """Let one thread make a thing; keep a failure, so that it happens once."""
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:
            if name in self._failed:
                raise self._failed[name]
            try:
                yield
            except StageError as error:
                self._failed[name] = error
                raise

    def _relay(self, text: str) -> None:
        """Pass on what a stage said from its process."""
        stage, subject, detail = text.split("\t", 2)
        self._tell(Progress(stage=stage, subject=subject, detail=detail))

    def _tell(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


def _export_id(case: Case) -> str:
    made = (case.component.name, asdict(case.export), asdict(case.reference))
    return digest_value(made)


def _summary(entry: Entry) -> dict[str, Any]:
    return {
        "digest": entry.key_digest,
        "size_bytes": entry.size_bytes,
        "made_by": dict(entry.made_by),
        "meta": dict(entry.meta),
    }
