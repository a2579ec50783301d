"""One case through all stages, several at once; the only file that knows the order.

The engine looks in the store, sends what is missing to child processes, and returns a
record whatever happened. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from harness.core.case import Case, Device, Sample
from harness.core.closes import Closes
from harness.core.entry import Entry
from harness.core.errors import ParityError, StageError
from harness.core.groups import sample_groups, samples_of
from harness.core.outcome import Outcome
from harness.core.pipeline import Chain, ChainRun, Seated
from harness.core.record import CaseRecord, Failure, Row
from harness.core.runtime import runtime
from harness.engine import export_files, keys, tasks
from harness.engine.artifacts import Makers, exact, export_id, native_converter
from harness.engine.deployed import Deployed, Reading
from harness.engine.excerpt import Excerpt, Spot, excerpt_of
from harness.engine.needs import chain_need
from harness.engine.store import Store
from harness.engine.worker_pool import Progress, Workshop
from harness.recipes.stand_ins import stand_ins
from harness.suite.families import drawn_with
from harness.suite.schema import Limits

LOG_CHARACTERS = 4096
"""Of a runtime's native output, what a record keeps."""

Known = Callable[..., CaseRecord]
"""A record of which the case's own fields are filled in."""


class Engine(Closes):
    """Runs cases; closes its child processes on leaving.

    Args:
        store: Where artifacts are kept.
        limits: What the suite allows.
        mnn_convert: A native converter to use, instead of one on PATH or the wheel's.
        pictures: Folder for what end-to-end cases draw.
        on_progress: Told what the stages do, from several threads.

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
        self._workshop = Workshop.of(limits, on_progress)
        self._makers = Makers(store, self._workshop, native_converter(mnn_convert))
        self._pool = ThreadPoolExecutor(
            max_workers=limits.jobs, thread_name_prefix="parity"
        )

    def close(self) -> None:
        """Drop waiting cases and end every child process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._workshop.close()
        self._pool.shutdown(wait=True)

    def make(self, cases: Iterable[Case | Chain]) -> None:
        """Make all that the cases need and the store lacks; return when it is there.

        What cannot be made is left out here: the case that needs it says so.
        """
        by_component: dict[str, list[Case]] = {}
        chains: list[Chain] = []
        for case in cases:
            if isinstance(case, Chain):
                chains.append(case)
            else:
                by_component.setdefault(export_id(case), []).append(case)
        exports = {
            self._pool.submit(
                self._try, self._makers.prepare, together[0], samples_of(together)
            ): together
            for together in by_component.values()
        }
        waiting = [
            self._pool.submit(self._try, self._makers.deploy_all, case)
            for done in as_completed(exports)
            for case in exports[done]
        ]
        waiting += [self._pool.submit(self._try, self._make_chain, c) for c in chains]
        wait(waiting)

    def _make_chain(self, chain: Chain) -> None:
        self._makers.draw(chain.pipeline, chain.device, {})
        self._seated(chain, {})

    def _try(self, stage: Callable[..., object], *arguments: object) -> None:
        with suppress(ParityError):
            stage(*arguments)

    def submit(self, case: Case | Chain) -> Future[CaseRecord]:
        """Start a case as soon as there is room for it."""
        return self._pool.submit(self.run, case)

    def rest(self) -> None:
        """Let go of what waits for more cases."""
        self._workshop.rest()

    def run(self, case: Case | Chain) -> CaseRecord:
        """Take one case through all stages and return its record."""
        if isinstance(case, Chain):
            return self._recorded(case, partial(self._run_chain, case))
        return self._recorded(case, partial(self._run, case))

    def _recorded(
        self, case: Case | Chain, run: Callable[[Known], CaseRecord]
    ) -> CaseRecord:
        """Return what a run measured, or how it failed."""
        known = partial(
            CaseRecord,
            case=case.id,
            component=case.subject,
            backend=case.backend,
            variant=case.how,
            asked=asdict(case.device),
            stand_ins=_stand_ins(case),
            too_large=case.too_large if isinstance(case, Case) else (),
        )
        try:
            return run(known)
        except StageError as error:
            return known(
                failure=Failure(
                    outcome=error.outcome, message=str(error), log=error.log
                )
            )
        except ParityError as error:
            # What a pipeline cannot be drawn from is no matter of exports.
            chain = isinstance(case, Chain)
            outcome = Outcome.REFERENCE if chain else Outcome.EXPORT
            return known(failure=Failure(outcome=outcome, message=str(error)))

    def _run(self, case: Case, known: Known) -> CaseRecord:
        took: dict[str, float] = {}
        prepared = self._makers.prepare(case, case.samples, took)
        deployed = []
        made: dict[str, Any] = {}
        graphs: list[Entry] = []
        rewrite = 0.0
        for group in sample_groups(case, case.samples):
            onnx = self._makers.graph(case, group)
            artifact, model = self._makers.deploy(case, onnx, took)
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
                    asked=self._makers.asked(case, group),
                )
            )
            graphs.append(onnx)
            # Of the first sizes, which are those that are timed.
            made = made or {"onnx": _summary(onnx), case.backend: _summary(artifact)}
        known = partial(known, rewrite_max_abs=rewrite, artifacts=made)
        record = self._measured(case, deployed, known, took)
        if not exact(case):
            return record
        # Last, for a file that its runtime refuses is told in the runtime's words.
        checked = [self._makers.checked(case, graph) for graph in graphs]
        return replace(record, graphs=tuple(one for one in checked if one))

    def _run_excerpt(self, excerpt: Excerpt, known: Known) -> CaseRecord:
        case, took = excerpt.case, dict[str, float]()
        artifact, model = self._makers.deploy(case, excerpt.entry, took)
        deployed = Deployed(
            artifact=artifact,
            model=model,
            probes=excerpt.entry.file(export_files.PROBES),
            readings=(excerpt.reading,),
        )
        known = partial(known, artifacts={case.backend: _summary(artifact)})
        return self._measured(case, [deployed], known, took)

    def _measured(
        self,
        case: Case,
        deployed: Sequence[Deployed],
        known: Known,
        took: dict[str, float],
    ) -> CaseRecord:
        """Run deployed files of a case, and return the record with what was seen."""
        result = self._workshop.job(
            case.backend,
            tasks.RUN_CANDIDATE,
            case.id,
            case.component,
            case.device,
            case.backend,
            tuple(deployed),
            subject=case.id,
            label=case.id,
            failure=Outcome.RUN,
            need=self._makers.need(case, case.backend, case.samples),
        )
        took["candidate"] = result.wall_ns / 1e9
        said = f"{result.import_log}\n{result.log}"
        check_words(case.id, case.backend, case.device, said)
        measured = cast("Mapping[str, Any]", result.value)
        return known(
            rows=measured["rows"],
            ran=measured["ran"],
            coverage=measured["coverage"],
            observer_max_abs=measured["observer_max_abs"],
            taken=measured["taken"],
            contract=measured["contract"],
            inputs={s.id: keys.question(case.component, s) for s in case.samples},
            took_s=took,
            peak_bytes=result.peak_bytes,
            log=result.log[-LOG_CHARACTERS:],
        )

    def references(self, case: Case) -> Iterator[tuple[Path, tuple[Reading, ...]]]:
        """Yield each graph's probe table and its samples' references.

        Raises:
            ParityError: A stage ended without an answer.

        """
        prepared = self._makers.prepare(case, case.samples)
        for group in sample_groups(case, case.samples):
            probes = self._makers.graph(case, group).file(export_files.PROBES)
            yield probes, tuple(prepared[sample] for sample in group.samples)

    def excerpt(self, case: Case, sample: Sample, spot: Spot) -> Excerpt:
        """Return one value's part of a case's graph, as a case of its own.

        Args:
            case: Whose graph it is.
            sample: The one to take the reference's values from.
            spot: Where to cut.

        Raises:
            ParityError: A stage ended without an answer.

        """
        case, graph, reading = self._one(case, sample)
        entry = self._makers.excerpt(case, graph, reading, spot)
        return excerpt_of(case, entry)

    def run_excerpt(self, excerpt: Excerpt) -> CaseRecord:
        """Deploy an excerpt as its case says, run it, and return its record."""
        return self._recorded(excerpt.case, partial(self._run_excerpt, excerpt))

    def deploy_excerpt(self, excerpt: Excerpt) -> Path:
        """Return the deployed file of an excerpt, making it if it is missing."""
        artifact, model = self._makers.deploy(excerpt.case, excerpt.entry)
        return artifact.file(model)

    def isolate(self, case: Case, sample: Sample) -> tuple[Row, ...]:
        """Run a case's operators on the reference's own inputs, for one sample.

        Raises:
            ParityError: A stage ended without an answer.

        """
        case, onnx, reading = self._one(case, sample)
        artifact, model = self._makers.deploy(case, onnx)
        result = self._workshop.job(
            case.backend,
            tasks.RUN_ISOLATED,
            case.id,
            case.component,
            case.device,
            case.backend,
            Deployed(
                artifact=artifact,
                model=model,
                probes=onnx.file(export_files.PROBES),
                readings=(reading,),
            ),
            subject=case.id,
            label=f"{case.id}: on the reference's inputs",
            failure=Outcome.RUN,
        )
        return cast("tuple[Row, ...]", result.value)

    def _one(self, case: Case, sample: Sample) -> tuple[Case, Entry, Reading]:
        """Return a case of one sample, with its graph and what it is held against."""
        narrow = replace(case, samples=(sample,))
        prepared = self._makers.prepare(case, case.samples)
        groups = sample_groups(case, case.samples)
        group = next(group for group in groups if sample in group.samples)
        return narrow, self._makers.graph(case, group), prepared[sample]

    def _run_chain(self, chain: Chain, known: Known) -> CaseRecord:
        took: dict[str, float] = {}
        pipeline = chain.pipeline
        inputs, reference = self._makers.draw(pipeline, chain.device, took)
        seated = self._seated(chain, took)
        folder = self._pictures or self.store.root / "pictures"
        result = self._workshop.job(
            "pipeline",
            tasks.RUN_CHAIN,
            ChainRun(
                case=chain.id,
                pipeline=pipeline,
                seated=seated,
                inputs=inputs,
                reference=reference,
                device=chain.device,
                folder=folder / chain.id.replace("/", "+"),
                limit_gib=self._workshop.memory_gib,
            ),
            subject=chain.id,
            label=chain.id,
            failure=Outcome.RUN,
            need=chain_need(chain, self._makers.weights),
        )
        took["candidate"] = result.wall_ns / 1e9
        said = f"{result.import_log}\n{result.log}"
        for file in seated:
            check_words(chain.id, file.backend, file.device, said)
        measured = cast("Mapping[str, Any]", result.value)
        return known(
            rows=measured["rows"],
            ran=measured["ran"],
            inputs={"": keys.drawing_question(pipeline)},
            chain={"seats": chain.asked, **measured["chain"]},
            artifacts={file.seat: _summary(file.artifact) for file in seated},
            took_s=took,
            peak_bytes=result.peak_bytes,
            log=result.log[-LOG_CHARACTERS:],
        )

    def _seated(self, chain: Chain, took: dict[str, float]) -> tuple[Seated, ...]:
        """Return the deployed file of each seat that has one; make what is missing."""
        seated = []
        for seat, case in chain.seats:
            if case is None:
                continue
            graph = self._makers.export(case, took)
            artifact, model = self._makers.deploy(case, graph, took)
            seated.append(
                Seated(
                    seat=seat,
                    component=case.component,
                    backend=case.backend,
                    device=case.device,
                    artifact=artifact,
                    model=model,
                )
            )
        return tuple(seated)


def _stand_ins(case: Case | Chain) -> tuple[str, ...]:
    """Return what stands in for real inputs; a damaged file is said by who reads it."""
    with suppress(ParityError):
        if isinstance(case, Chain):
            return drawn_with(case.pipeline)
        return stand_ins(case.component)
    return ()


def check_words(case: str, backend: str, device: Device, log: str) -> None:
    """Fail a run whose native output says that it ran elsewhere.

    Raises:
        StageError: It does.

    """
    if words := runtime(backend).fallback(device.precision, log):
        asked = f"{device.device} in {device.precision} precision"
        msg = (
            f"{case}: asked for {asked}, and the runtime says: {words!r}. "
            "`parity doctor` says what works here."
        )
        raise StageError(msg, outcome=Outcome.FELL_BACK, log=log)


def _summary(entry: Entry) -> dict[str, Any]:
    return {
        "digest": entry.key_digest,
        "size_bytes": entry.size_bytes,
        "made_by": dict(entry.made_by),
        "meta": dict(entry.meta),
    }
