"""Run each case through all stages, several cases at once.

This is the only module that knows the order of the stages. The engine looks in the
store, makes missing artifacts in child processes, and always returns a record, also
after a failure. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.core.case import Case, Sample
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.entry import Entry
from harness.core.errors import ParityError, SpecError, StageError, StoreError
from harness.core.groups import Group, sample_groups, samples_of
from harness.core.memory import Need
from harness.core.outcome import Outcome
from harness.core.plugins import declared
from harness.core.record import LAYERS, READ, CaseRecord, Failure, Row
from harness.core.rounding import Bits, Effects, Trials
from harness.core.runtime import exact, onnx_runtime, resolve, runtime
from harness.core.waiting import awaited
from harness.engine import export_files, keys, tasks
from harness.engine.artifacts import Artifacts, native_converter
from harness.engine.deployed import Deployed, Reading
from harness.engine.groups import Begun, together
from harness.engine.kept import kept, seen
from harness.engine.made_of import made_of
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import Progress, WorkerPool, timed
from harness.recipes.stand_ins import stand_ins_of
from harness.suite.schema import Limits
from harness.suite.shapes import not_above

if TYPE_CHECKING:
    from harness.measure.float16 import Loss

Item = TypeVar("Item")
Made = TypeVar("Made")
Fields = dict[str, Any]
"""Fields of a record, without those that say which case it is."""


class Engine(AbstractContextManager["Engine"]):
    """Run cases; a context manager that ends its jobs.

    `prepare` and `export` report no failure, and a record has the failure of its run.
    Every other method raises `ParityError` if a stage ended without an answer.

    Args:
        store: The store that keeps artifacts.
        limits: The suite's limits.
        mnn_convert: A native converter to use, instead of one on PATH or the wheel's.
        pictures: Folder for the pictures of end-to-end cases.
        on_progress: Receives the progress of the stages, from several threads.

    """

    def __init__(  # what a run is given from outside
        self,
        store: Store,
        limits: Limits,
        *,
        mnn_convert: str | None = None,
        pictures: Path | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.store = store
        self._pictures = pictures
        self._worker_pool = WorkerPool.of(limits, on_progress)
        self._artifacts = Artifacts(
            store, self._worker_pool, native_converter(mnn_convert)
        )
        self.jobs = limits.jobs
        self._pool = ThreadPoolExecutor(
            max_workers=limits.jobs, thread_name_prefix="parity"
        )

    @property
    def artifacts(self) -> Artifacts:
        """What makes and finds the artifacts of its cases."""
        return self._artifacts

    def close(self) -> None:
        """Drop waiting cases and end running ones. A few idle hosts are kept."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._worker_pool.close()
        self._pool.shutdown(wait=True)

    def __exit__(self, *_: object) -> None:
        """Close it, however the `with` ends."""
        self.close()

    def start(self, cases: Iterable[Tested]) -> list[Future[CaseRecord]]:
        """Start cases in the background; return their records to come, in order.

        Cases of one export, or of one pipeline, have its artifacts made together. They
        then run, and beside them the next artifacts are made.
        """
        begun = [(case, Future[CaseRecord]()) for case in cases]
        waiting = together(begun)
        first = begun[0][0] if begun else None
        if isinstance(first, Case):  # its runtime starts while PyTorch exports
            self._worker_pool.begin(first.host)

        def begin() -> None:
            if waiting:
                self._pool.submit(prepare_and_run, waiting.popleft())

        def prepare_and_run(some: Sequence[Begun]) -> None:
            took_s: dict[str, float] | None = None
            try:
                took_s = self.prepare(*(case for case, _ in some))
            finally:
                for case, record in some:
                    self._pool.submit(self._run_into, record, case, took_s)
                    took_s = None
                begin()

        for _ in range(self.jobs):
            begin()
        return [record for _, record in begun]

    def each(
        self, function: Callable[[Item], Made], items: Iterable[Item]
    ) -> list[Made]:
        """Return what a function of this engine returns for each item.

        As many as `jobs` run at once. The function must not call `each` itself, because
        it would wait for the thread that it holds. Whoever is interrupted meanwhile
        closes the engine, which ends what runs and drops what waits.
        """
        begun = [self._pool.submit(function, item) for item in items]
        return [awaited(one) for one in begun]

    def redirect(self, tell: Callable[[Progress], None] | None, pictures: Path) -> None:
        """Send progress and pictures somewhere else from now on."""
        self._worker_pool.on_progress, self._pictures = tell, pictures

    def prepare(self, first: Tested, *others: Tested) -> dict[str, float]:
        """Make the references that cases share; return seconds by kind.

        A failure is not reported here. The case that needs the artifact reports it.
        """
        with timed() as seconds, suppress(ParityError):
            first = self._artifacts.known(first)
            if isinstance(first, EndToEndCase):
                resolve(first.prepare)(self._artifacts, first)
            else:
                cases = [first, *(other for other in others if isinstance(other, Case))]
                self._artifacts.prepare(first, samples_of(cases))
        return seconds

    def export(self, case: Case) -> dict[str, float]:
        """Make the graph of a pipeline's file, and no reference; as `prepare` does."""
        with timed() as seconds, suppress(ParityError):
            self._artifacts.export(self._artifacts.known(case))
        return seconds

    def _run_into(
        self,
        record: Future[CaseRecord],
        case: Tested,
        took_s: Mapping[str, float] | None,
    ) -> None:
        """Run a case, and hand over its record or the error."""
        try:
            record.set_result(self.run(case).with_seconds(took_s))
        except BaseException as error:  # noqa: BLE001  # the future raises it
            record.set_exception(error)

    def rest(self) -> None:
        """Leave idle hosts to other engines of this process; a few are kept."""
        self._worker_pool.rest()

    def run(self, case: Tested) -> CaseRecord:
        """Run one case through all stages and return its record."""
        if isinstance(case, EndToEndCase):
            return self.recorded(case, partial(self._run_end_to_end, case))
        return self.recorded(case, partial(self._run, case))

    def _run(self, case: Case) -> Fields:
        case = self._artifacts.known(case)
        found = self._deployed(case)
        case, refused = self._without_refused(case)
        rewrites = [
            float(cast("float", reading.reference.meta["rewrite_max_abs"]))
            for _, file in found
            for reading in file.readings
        ]
        fields = self.measured(case, [file for _, file in found])
        readings = [reading for _, file in found for reading in file.readings]
        fields["rows"] += self._artifacts.self_rows(case, readings)
        # This is last: if a runtime refuses the file, its own message is better.
        checked = [self._artifacts.checked(case, graph) for graph, _ in found]
        fields["graphs"] = tuple(
            {**one, "exact": exact(case)} for one in checked if one
        )
        # The first sizes are timed, so their files are recorded.
        graph, file = found[0]
        made = {"onnx": graph.summary, case.backend: file.artifact.summary}
        rewrite = max([0.0, *rewrites])
        return {
            **fields,
            "rewrite_max_abs": rewrite,
            "artifacts": made,
            "refused": refused,
        }

    def _without_refused(self, case: Case) -> tuple[Case, tuple[str, ...]]:
        """Return a case without the sizes that its reference refuses, and these."""
        read = self._artifacts.prepare(case, case.samples)
        kept = tuple(sample for sample in case.samples if not read[sample].refused)
        refused = tuple(
            f"{sample.label} ({read[sample].refused})"
            for sample in case.samples
            if read[sample].refused
        )
        return replace(case, samples=kept), (*refused, *not_above(case, kept))

    def _prepared(self, case: Case) -> list[tuple[Group, Entry, tuple[Reading, ...]]]:
        """Return each group of a case's samples, its graph, and its references."""
        case = self._artifacts.known(case)
        prepared = self._artifacts.prepare(case, case.samples)
        return [
            (
                replace(group, samples=samples),
                self._artifacts.graph(case, group),
                tuple(prepared[sample] for sample in samples),
            )
            for group in sample_groups(case, case.samples)
            if (samples := tuple(s for s in group.samples if not prepared[s].refused))
        ]

    def _deployed(self, case: Case) -> list[tuple[Entry, Deployed]]:
        """Return each exported graph of a case, and its deployed file with samples."""
        found = []
        for group, graph, readings in self._prepared(case):
            file = self._artifacts.deployed(case, graph, readings)
            if declared("questions"):
                file = replace(file, asked=self._artifacts.asked(case, group))
            found.append((graph, file))
        return found

    def measured(self, case: Case, deployed: Sequence[Deployed]) -> Fields:
        """Run a case's deployed files, and return the measurements.

        The questions of a contract are asked once; the store keeps what a file answers.
        It keeps nothing about inputs that are drawn for one tuning and leave it again.
        """
        if case.device.target is not None and case.device.target.trace:
            # A trace answers no further questions.
            deployed = [replace(file, asked=None) for file in deployed]
        # What stands behind a target's command may change while its name stays.
        keeps = not any(sample.label for sample in case.samples)
        keeps = keeps and case.device.target is None
        asked = {
            at: _contract_of(case, file)
            for at, file in enumerate(deployed)
            if file.asked
        }
        known = {
            at: tasks.CONTRACT.find(self.store, *decides) if keeps else None
            for at, decides in asked.items()
        }
        deployed = [
            replace(file, asked=None) if known.get(at) else file
            for at, file in enumerate(deployed)
        ]
        need = self._artifacts.need(case, case.backend)
        result = self._job(case, tasks.RUN_CANDIDATE, tuple(deployed), need=need)
        fields = seen(result, case.id, [(case.backend, case.device)])
        questions = {s.id: keys.question(case.component, s) for s in case.samples}
        answers = iter(fields["contract"])
        contract = []
        for at, decides in asked.items():
            kept = known[at]
            contract.append(dict(kept.meta) if kept else next(answers))
            if keeps and not kept:
                self._keep(contract[-1], *decides)
        return {
            **fields,
            "inputs": questions,
            "sizes": {sample.id: dict(sample.shapes) for sample in case.samples},
            "made_of": made_of([case.component]),
            "contract": tuple(contract),
        }

    def _keep(self, answer: Mapping[str, object], *decides: object) -> None:
        """Store what a file answered, where that is possible.

        JSON has no infinite answer. A store that cannot be written must not cost the
        measurements that there are; the file is only asked again.
        """
        with suppress(SpecError, StoreError):
            tasks.CONTRACT.make(self.store, lambda _: answer, *decides)

    def _job(
        self,
        case: Case,
        task: str,
        *arguments: object,
        what: str = "",
        need: Need | None = None,
    ) -> JobResult:
        """Run a task of a case in the process of its runtime."""
        return self._worker_pool.job(
            case.host,
            task,
            *(case.id, case.component, case.device, case.backend),
            *arguments,
            subject=case.id,
            label=f"{case.id}: {what}" if what else case.id,
            failure=Outcome.RUN,
            need=need,
            on_target=bool(case.targets),
        )

    def references(self, case: Case) -> Iterator[tuple[Path, tuple[Reading, ...]]]:
        """Yield each graph's probe table and its samples' references."""
        for _, graph, readings in self._prepared(case):
            yield graph.file(export_files.PROBES), readings

    def forget(self, cases: Sequence[Tested]) -> None:
        """Remove from the store what was drawn for these cases alone.

        These are the inputs and references of samples with a label, and all of an
        end-to-end case. They would fill the disk.
        """
        gone: dict[Path, Entry] = {}
        for case in cases:
            with suppress(ParityError):  # the case's record has the failure
                gone |= {entry.path: entry for entry in self._drawn(case)}
        for entry in gone.values():
            self.store.remove(entry)

    def _drawn(self, case: Tested) -> Iterator[Entry]:
        if isinstance(case, EndToEndCase):
            yield from resolve(case.prepare)(
                self._artifacts, self._artifacts.known(case)
            )
            return
        drawn = {sample.id for sample in case.samples if sample.label}
        for _, readings in self.references(case):
            for reading in readings:
                if reading.sample in drawn:
                    yield from (reading.reference, reading.inputs)

    def losses(
        self, case: Case, file: Path, readings: Sequence[Reading]
    ) -> tuple[Loss, ...]:
        """Return what float16 would lose of the values of an exported file's nodes."""
        backend, device = onnx_runtime().name, case.reference
        result = self._worker_pool.job(
            *(backend, tasks.LOSSES, case.component, device, backend, file, readings),
            subject=case.component.name,
            label=f"{case.component.name}: values of its file",
            failure=Outcome.RUN,
        )
        return cast("tuple[Loss, ...]", result.value)

    def run_task(
        self, case: Case, task: str, *arguments: object, what: str
    ) -> tuple[Entry, ...]:
        """Run a task on a case's deployed files, in the process of its runtime.

        The task gets the case's id, component, device and backend, the files, and then
        `arguments`. `what` it does is said in messages. This returns the files' entries
        in the store.
        """
        case = self._artifacts.known(case)
        files = tuple(file for _, file in self._deployed(case))
        self._job(case, task, files, *arguments, what=what)
        return tuple(file.artifact for file in files)

    def file(self, case: Case) -> tuple[Entry, str]:
        """Return a case's deployed file: its store entry, and its name in there."""
        case = self._artifacts.known(case)
        return self._artifacts.deploy(case, self._artifacts.export(case))

    def output_effects(
        self, case: Case, trials: Sequence[Bits], only: Sequence[int] = ()
    ) -> Effects:
        """Return the effects of rounded weights on the outputs of a float32 case.

        Each trial rounds some layers. `only` has the numbers of the samples to run; it
        is empty for all.
        """
        case = self._artifacts.known(case)
        drawn = self._artifacts.inputs(case, case.samples)
        ids = [sample.id for sample in case.samples]
        samples = [*zip(ids, drawn, strict=True)]
        inputs = [(name, keys.contents(entry)) for name, entry in samples]
        given, values = self.trials(case, trials, only), {"inputs": inputs}
        need = self._artifacts.need(case, "torch")
        return self._artifacts.effects(
            tasks.OUTPUT_EFFECTS, given, values, samples, need=need
        )

    def trials(self, case: Case, trials: Sequence[Bits], only: Sequence[int]) -> Trials:
        """Return what the task of a stage of effects is given."""
        artifact, model = self.file(case)
        return Trials(
            backend=case.backend,
            component=case.component,
            artifact=artifact,
            model=model,
            device=case.reference,
            trials=tuple(trials),
            only=tuple(only),
        )

    def isolate(self, case: Case, sample: Sample) -> tuple[Row, ...]:
        """Run a case's operators on the reference's own inputs, for one sample.

        If only the sample's outputs are compared, its layers are compared once as well.
        """
        watched = replace(sample, layers=True)
        every = tuple(watched if one == sample else one for one in case.samples)
        case = self._artifacts.known(replace(case, samples=every))
        case, graph, reading = self.of_sample(case, watched)
        file = self._artifacts.deployed(case, graph, [reading])
        rows: tuple[Row, ...] = ()
        if not sample.layers:
            found = self.measured(case, [file])["rows"]
            rows = tuple(row for row in found if row.what in {LAYERS, READ[LAYERS]})
        what = "on the reference's inputs"
        try:
            result = self._job(case, tasks.RUN_ISOLATED, file, what=what)
        except ParityError:
            if not rows:
                raise
            return rows
        return (*rows, *cast("tuple[Row, ...]", result.value))

    @staticmethod
    def recorded(case: Tested, measure: Callable[[], Fields]) -> CaseRecord:
        """Return the record of a run, with its measurements or its failure."""
        try:
            with timed() as seconds:
                fields = {**measure(), "took_s": seconds}
        except ParityError as error:
            # A pipeline reads its picture or prompt when it draws, not at the export.
            drawn = isinstance(case, EndToEndCase)
            outcome, log = Outcome.REFERENCE if drawn else Outcome.EXPORT, ""
            if isinstance(error, StageError):
                outcome, log = error.outcome, error.log
                # Whoever starts a case has looked whether its runtime is installed.
                # If a target or a package is still missing, nobody may overlook it.
                if outcome is Outcome.UNAVAILABLE:
                    outcome = Outcome.ABSENT
            failure = Failure(outcome=outcome, message=str(error), log=log)
            fields = {"failure": failure}
        return record_of(
            case,
            stand_ins=stand_ins_of(case),
            too_large=case.too_large if isinstance(case, Case) else (),
            **fields,
        )

    def of_sample(self, case: Case, sample: Sample) -> tuple[Case, Entry, Reading]:
        """Return a case with one sample, its graph, and the sample's reference."""
        group, graph, readings = next(
            found for found in self._prepared(case) if sample in found[0].samples
        )
        reading = readings[group.samples.index(sample)]
        return replace(case, samples=(sample,)), graph, reading

    def _run_end_to_end(self, case: EndToEndCase) -> Fields:
        pictures = self._pictures or self.store.root / "pictures"
        fields = resolve(case.run)(self._artifacts, case, pictures)
        return cast("Fields", fields)


def _contract_of(case: Case, file: Deployed) -> tuple[object, ...]:
    """Return what decides a file's answers to the questions of its contract."""
    inputs = [reading.inputs for reading in file.readings]
    device = case.device
    ran = keys.processor(device), runtime(case.backend)
    return file.artifact, file.asked, inputs, device, *ran


def record_of(case: Tested, **fields: Any) -> CaseRecord:  # noqa: ANN401  # a record's
    """Return a case's record with some fields, as it is kept."""
    record = CaseRecord(
        case=case.id,
        component=case.subject,
        backend=case.backend,
        variant=case.how,
        asked=case.device.settings,
        **fields,
    )
    return kept(record)
