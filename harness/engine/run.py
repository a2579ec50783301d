"""A run: the engine runs a suite's cases, and their records are judged one by one.

The pytest plugin and the command line both use this module; neither decides anything.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from msgspec import structs

from harness.core.case import Case, Sample
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.errors import ParityError
from harness.core.outcome import Outcome
from harness.core.permissions import is_private
from harness.core.private import with_tilde
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Failure
from harness.core.runtime import runtime
from harness.core.settings import Settings, near
from harness.core.shown import echo
from harness.core.text import Line, count, wrapped
from harness.core.waiting import awaited
from harness.engine.artifacts import native_converter
from harness.engine.engine import Engine, record_of
from harness.engine.executors import CaseEngine, CaseExecutor, executor_on
from harness.engine.kept import kept, kept_log
from harness.engine.run_folder import PICTURES, RunFolder
from harness.engine.store import Store, limit_bytes, located, stored_bytes
from harness.engine.worker_pool import Progress
from harness.judge.case import CaseVerdict
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.judge import Judge
from harness.suite.schema import Limits
from harness.suite.suite import Suite

Begin = Callable[[CaseEngine, RunFolder, Sequence[Tested]], list[Future[CaseRecord]]]
"""Starts cases by an engine for a run's folder; returns their records to come."""

Asked = tuple[str, str, str]
"""Path of a suite, id of a case, and name of a check."""


class Run(AbstractContextManager["Run"]):
    """One run of a suite; a context manager that ends its jobs.

    Args:
        suite: The suite.
        settings: The user's options.
        folder: Makes the folder of the run, after all checks.
        on_progress: Receives the progress of the stages, from several threads.
        executor: The one of a run beside this one, because a process has at most one
            connection to a cluster; None for that of `settings`.
        begin: Starts the cases; None to start each as it is.

    """

    def __init__(
        self,
        suite: Suite,
        settings: Settings,
        folder: Callable[[], RunFolder],
        on_progress: Callable[[Progress], None] | None = None,
        executor: CaseExecutor | None = None,
        *,
        begin: Begin | None = None,
    ) -> None:
        self.suite = suite
        self.settings = settings
        self.judge = Judge.of(suite, settings)
        if settings.mnn_convert:
            # A cluster's nodes would each find out that it is missing.
            native_converter(settings.mnn_convert)
        self.store = open_store(settings.store, read_only=settings.read_only)
        # The folder is made after all checks, so a run that cannot begin leaves none.
        self.executor = executor or executor_on(settings.on, on_progress)
        self.folder = folder()
        limits = structs.replace(suite.limits, jobs=settings.jobs or suite.limits.jobs)
        pictures = self.folder.path / PICTURES
        self._engine = engine_of(settings, limits, self.executor, pictures, on_progress)
        self._begin = begin
        self._started: dict[str, Future[CaseRecord]] = {}
        self._left = 0
        self._lock = threading.Lock()  # records end in several threads
        self._on_idle: list[Callable[[], None]] = []

    def close(self) -> None:
        """Give up running cases, which leave nothing. A few idle hosts are kept."""
        self._engine.close()
        self.store.sweep()

    def __exit__(self, *_: object) -> None:
        """Close it, however the `with` ends."""
        self.close()

    def start(
        self, cases: Iterable[Tested], *, on_idle: Callable[[], None] | None = None
    ) -> None:
        """Start cases in the background, in order, as memory allows.

        Args:
            cases: The cases; those whose runtime is not installed are left out.
            on_idle: Called once, as soon as fewer cases are left than may run at once.

        """
        if on_idle is not None:
            self._on_idle.append(on_idle)
        runnable = [self.judge.asking(case) for case in cases if not missing(case)]
        if self._begin is None:
            records = self._engine.start(runnable)
        else:
            records = self._begin(self._engine, self.folder, runnable)
        for case, record in zip(runnable, records, strict=True):
            self._started[case.id] = record
        with self._lock:
            self._left += len(records)
        for record in records:
            record.add_done_callback(self._ended)
        if not records:
            self._ended()

    def _ended(self, ended: Future[CaseRecord] | None = None) -> None:
        with self._lock:
            self._left -= ended is not None
            left = self._left
        if left < self._engine.jobs:
            with suppress(IndexError):  # another thread was first
                self._on_idle.pop()()
        if not left:
            self._engine.rest()

    def record(self, case: Tested) -> CaseRecord:
        """Return a case's record; run the case if no process of this run has."""

        def make() -> CaseRecord:
            if missing(case):
                return _unavailable(case)
            started = self._started.get(case.id)
            asking = self.judge.asking(case)
            record = awaited(started) if started else self._engine.run(asking)
            return self._localised(case, record)

        record = self.folder.record_once((path_of(self.suite), case.id), make)
        self._started.pop(case.id, None)  # the record is on disk now
        return record

    def keep_ended(self, cases: Iterable[Tested]) -> list[Tested]:
        """Return those of some cases that have ended or kept a part; start no more."""
        path = path_of(self.suite)
        for case in cases:
            started = self._started.get(case.id)
            if started and started.done() and not started.exception():
                self.folder.record_once((path, case.id), started.result)
        there = self.folder.records()
        return [case for case in cases if (path, case.id) in there]

    def _localised(self, case: Tested, record: CaseRecord) -> CaseRecord:
        """Add local errors of operators, if layers diverge or settings require it.

        If outputs diverge at sizes at which no layers were compared, and only there,
        the layers of the first such sample are added as well.
        """
        if not isinstance(case, Case) or record.failure or LAYERS not in case.whats:
            return record
        if record.tried:  # its values are of many inputs
            return record
        verdict = self.judge.check(record, LAYERS)
        wanted = self.settings.isolate or not verdict.outcome.passed
        unseen = None if wanted else self._unseen(case, record)
        if not (wanted or unseen) or not verdict.rows:
            return record
        shown = verdict.first or verdict.rows[0]
        named = next(s for s in case.samples if s.id == shown.row.sample)
        sample = unseen or named
        try:
            rows = self._engine.isolate(case, sample)
        except ParityError as error:
            # The measurements are valid; the record's log also gets this error.
            return replace(record, log=kept_log(f"{record.log}\n{error}"))
        return kept(replace(record, rows=(*record.rows, *rows)))

    def _unseen(self, case: Case, record: CaseRecord) -> Sample | None:
        """Return the smallest sample whose outputs diverge, if no layers tell why.

        It is None where outputs agree, or also diverge where layers were compared.
        """
        verdict = self.judge.check(record, OUTPUTS)
        failing = {j.row.sample for j in verdict.rows if not j.verdict.passed}
        found = [sample for sample in case.samples if sample.id in failing]
        traced = case.device.target is not None and case.device.target.trace
        if verdict.outcome.passed or traced or any(one.layers for one in found):
            return None
        sizes = {one: math.prod(size for _, size in one.shapes) for one in found}
        return min(found, key=sizes.__getitem__, default=None)

    def check(self, case: Tested, what: str) -> CaseVerdict:
        """Run one check of a case and judge it."""
        return self.judge.check(self.record(case), what)

    def verdicts(self, case: Tested) -> list[CaseVerdict]:
        """Run a case and judge every check that its record answers."""
        record = self.record(case)
        return [self.judge.check(record, what) for what in case.whats]


def missing(case: Tested) -> tuple[str, ...]:
    """Return the runtimes of a case that are not installed here."""
    return tuple(name for name in case.runtimes if not runtime(name).is_installed)


def _unavailable(case: Tested) -> CaseRecord:
    name = missing(case)[0]
    packages = " or ".join(runtime(name).distributions)
    message = f"{name} is not installed (pip install {packages})"
    failure = Failure(outcome=Outcome.UNAVAILABLE, message=message)
    return record_of(case, failure=failure)


def path_of(suite: Suite) -> str:
    """Return a suite's absolute path, as in records: a home is ``~``."""
    return with_tilde(suite.path.resolve())


def files_of(suite: Suite) -> dict[str, str]:
    """Return digests of the files that describe a suite, by name."""
    worst = suite.path.parent / WORST_INPUTS
    paths = (suite.path, suite.tolerances_path, suite.gaps_path, worst)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file()
    }


def engine_of(
    settings: Settings,
    limits: Limits,
    executor: CaseExecutor | None,
    pictures: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> CaseEngine:
    """Return the engine of this machine, or one that runs its cases by an executor."""
    if executor is not None:
        return executor.engine(settings, limits, pictures)
    return Engine(
        open_store(settings.store, read_only=settings.read_only),
        limits,
        mnn_convert=settings.mnn_convert or None,
        pictures=pictures,
        on_progress=on_progress,
    )


def open_store(root: str, *, read_only: bool = False) -> Store:
    """Open the store at a path or URL; if that is empty, the user's default store.

    Raises:
        StoreError: Another version wrote the store, its limit is no number, or a shared
            store cannot be used.

    """
    limit_bytes()  # a run must not end with this error
    store = Store(root=located(root, read_only=read_only))
    _say_if_open(store.root)
    return store


@cache
def _say_if_open(root: Path) -> None:
    """Say once that others can write to a store: it then keeps no programs."""
    if root.exists() and not is_private(root):
        echo(
            f"parity: other users can write to the store at {root}, or to a folder "
            "above it, so its programs are not read, but made again each time. Its "
            "numbers are as true as those users are. Take away their right to write, "
            "or set PARITY_STORE to a folder that only you can write.",
            err=True,
        )


def within_limit(store: Store) -> list[Line]:
    """Let a store forget what was used longest ago, and return the line about it."""
    most = limit_bytes()
    removed = store.prune(most)
    if not removed:
        return []
    text = (
        f"the store forgot {count(len(removed), 'entry')} of long ago, to stay within "
        f"{most / 2**30:g} GB (PARITY_STORE_GB)"
    )
    return list(wrapped(text, indent=" ", tone="quiet"))


def header(suite: Suite, cases: Collection[Tested], store: Store) -> str:
    """Return the lines that say what is going to run, and what a table leaves out."""
    end_to_end = [case for case in cases if isinstance(case, EndToEndCase)]
    parts = [case for case in cases if not isinstance(case, EndToEndCase)]
    wholes: dict[str, set[str]] = {}
    for case in end_to_end:
        wholes.setdefault(case.noun, set()).add(case.subject)
    sides = {
        "component": {case.subject for case in parts},
        **wholes,
        "backend": {name for case in cases for name in case.runtimes},
        "variant": {case.how for case in parts or end_to_end},
    }
    size = stored_bytes(store.entries()) / 2**20
    matrix = ", ".join(
        count(len(names), noun) for noun, names in sides.items() if names
    )
    megabytes = f"{size:,.0f}" if round(size) else f"{size:.1f}"
    head = (
        f"parity: {near(suite.path)} · {count(len(cases), 'case')}: {matrix} · "
        f"store {megabytes} MB"
    )
    return "\n".join([head, *(line.text for line in _left_out(suite, parts))])


def _left_out(suite: Suite, cases: Collection[Tested]) -> Iterator[Line]:
    chosen = {case.subject for case in cases}
    components: dict[str, list[str]] = {}
    for component, variant in suite.left_out:
        if component in chosen:
            components.setdefault(variant, []).append(component)
    together: dict[str, list[str]] = {}
    for variant, lacking in components.items():
        together.setdefault(", ".join(lacking), []).append(variant)
    for names, variants in together.items():
        text = f"not run for {names}, whose `variants` leave it out: "
        yield from wrapped(text + ", ".join(variants), indent=" ")


def asked_of(suite: Suite, cases: Collection[Tested] | None = None) -> set[Asked]:
    """Return every check of a suite, or of some of its cases."""
    return {
        (path_of(suite), case.id, what)
        for case in (suite.tested if cases is None else cases)
        for what in case.whats
    }
