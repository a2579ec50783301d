"""Benchmarks as pytest tests: their parameters, and the code behind `parity_bench`.

pytest-benchmark times each run itself. It sends a call to a worker process that has
loaded the file, and the worker runs the file and answers. The measured time contains
that call, which takes 0.02 ms on a quiet machine.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ParityError
from harness.core.shown import shown
from harness.core.text import one_line
from harness.core.waiting import SLICE_S, awaited
from harness.engine.run import missing, open_store, path_of
from harness.plugins.bench.timing import (
    BenchPlan,
    Caller,
    Round,
    Subject,
    subjects_of,
    timed_cases,
)
from harness.suite.suite import Suite

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from pytest_benchmark.fixture import BenchmarkFixture

    from harness.core.settings import Settings
    from harness.plugins.bench.rounds import Bench

_XDIST = (
    "benchmarks do not run under pytest-xdist: workers would take each other's cores, "
    "and pytest-benchmark is switched off there. Run it again with -n 0."
)
_LACKING = (
    "benchmarks are reported by pytest-benchmark, which is not installed or is left "
    "out with -p; pip install pytest-benchmark."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A test's parameter: one subject of a suite to time."""

    suite: Suite = field(repr=False)
    subject: Subject


def benches(suite: Suite, *names: str) -> list[ParameterSet]:
    """Return parameters with ids for ``pytest.mark.parametrize``, one `Timed` each.

    Without names, these are all components and pipelines. `names` are patterns as for
    `Suite.select`. Mixed-runtime pipelines are included only if a name says ``mixed``.
    """
    return [
        pytest.param(Timed(suite=suite, subject=subject), id=subject.id)
        for subjects in subjects_of(timed_cases(suite, names)).values()
        for subject in subjects
    ]


class BenchSession:
    """The benchmarks of one pytest process."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._benches: dict[str, Bench] = {}

    def report(self, timed: Timed, benchmark: BenchmarkFixture | None) -> None:
        """Let pytest-benchmark time a subject, with pytest-benchmark's own options.

        If an option switches it off, it runs the subject once and times nothing.
        `benchmark` is its fixture; None where it is not there.
        """
        __tracebackhide__ = True
        if benchmark is None:
            pytest.fail(_LACKING, pytrace=False)
        self._refuse()
        subject = timed.subject
        if not subject.is_eager and missing(subject.case):
            words = f"{subject.runtime} is not installed"
            if subject.runtime in self._settings.require:
                pytest.fail(f"{words}, and is required", pytrace=False)
            pytest.skip(words)
        bench = self._bench(timed.suite)
        try:
            turn = bench.turn(subject, BenchPlan())
            if benchmark.group is None:  # a mark of the test may name another
                threads = turn.device.threads
                benchmark.group = f"{subject.case.subject}, {threads} threads"
            with Served(lambda caller: bench.time(replace(turn, caller=caller))) as own:
                benchmark(own.run)
                made = own.ended()
        except ParityError as error:
            pytest.fail(shown(one_line(str(error))), pytrace=False)
        benchmark.extra_info.update(
            load_ms=made.load_s * 1e3,
            first_run_ms=made.first_s * 1e3,
            size_bytes=made.size_bytes,
            memory_bytes=made.peak_bytes - made.base_bytes,
            threads=turn.device.threads,
            withheld=made.withheld,
            ran=dict(made.ran),
        )

    def _refuse(self) -> None:
        """Fail where workers of pytest-xdist would time what each other slows down."""
        __tracebackhide__ = True
        option = self._config.getoption
        if option("benchmark_disable") and not option("benchmark_enable"):
            return  # nothing is timed
        # pytest-benchmark reads this variable, which a worker's children inherit. A
        # worker has another `dist`, and the controller runs no test.
        if "PYTEST_XDIST_WORKER" in os.environ or option("dist", "no") != "no":
            pytest.fail(_XDIST, pytrace=False)

    def _bench(self, suite: Suite) -> Bench:
        from harness.plugins.bench.rounds import Bench

        path = path_of(suite)
        if path not in self._benches:
            self._benches[path] = Bench(
                open_store(self._settings.store),
                limits=suite.limits,
                mnn_convert=self._settings.mnn_convert,
            )
        return self._benches[path]

    def close(self) -> None:
        """End child processes."""
        for bench in self._benches.values():
            bench.close()


class Served(AbstractContextManager["Served"]):
    """A worker process that has loaded a file and runs it on each request.

    `time` times a turn whose runs a caller requests, and returns when the turn ends.

    Raises:
        ParityError: The worker process ended before it could run. `run` raises this
            error too.

    """

    def __init__(self, time: Callable[[Caller], Round]) -> None:
        self._thread = ThreadPoolExecutor(1)
        key = secrets.token_bytes(16)
        with Listener(authkey=key) as listener:
            caller = Caller(listener.address, key)
            self._turn = self._thread.submit(_timed, time, caller)
            self._channel = listener.accept()

    def run(self) -> None:
        """Let the worker process run the file once, and wait for its answer."""
        try:
            self._channel.send(True)
            while not self._channel.poll(SLICE_S):
                pass
            self._channel.recv()
        except (EOFError, OSError):
            awaited(self._turn)  # raises the error that ended the turn
            raise

    def ended(self) -> Round:
        """End the turn, and return the measurements of its process."""
        self._channel.send(False)
        return awaited(self._turn)

    def __exit__(self, *_: object) -> None:
        """Close the connection, which ends a turn that is still in progress."""
        self._channel.close()
        self._thread.shutdown(wait=False)


def _timed(time: Callable[[Caller], Round], caller: Caller) -> Round:
    try:
        return time(caller)
    finally:
        # A process that ended early has not connected, and `accept` would wait.
        with suppress(EOFError, OSError):
            Client(caller.address, authkey=caller.key).close()
