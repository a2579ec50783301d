"""Benchmarks as pytest tests: their parameters, and what `parity_bench` does.

pytest-benchmark times each run itself: it calls, and a worker process runs the deployed
file and answers. Its time contains that call, measured at 0.02 ms on a quiet machine.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.commands.bench.timing import (
    COMPILE,
    Caller,
    Plan,
    Round,
    Subject,
    Timing,
    subjects_of,
    timed_cases,
)
from harness.core.case import REFERENCE
from harness.core.closes import Closes
from harness.core.errors import ParityError
from harness.engine.run import missing, path_of
from harness.suite.suite import Suite

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from harness.commands.bench.rounds import Bench
    from harness.core.settings import Settings

_XDIST = (
    "benchmarks do not run under pytest-xdist: workers would take each other's cores, "
    "and pytest-benchmark is switched off there. Run it again with -n 0."
)
_SWITCHED_OFF = (
    "pytest-benchmark is switched off (--benchmark-disable), so nothing would be "
    "reported; leave the option out, or leave the benchmarks out with -m."
)
_LACKING = (
    "benchmarks are reported by pytest-benchmark, which is not installed or is left "
    "out with -p; pip install pytest-benchmark."
)
_SHOWN = (
    *("load_ms", "first_run_ms", "size_bytes", "memory_bytes"),
    *("threads", "cores", "withheld"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One thing to time; a test's parameter.

    Attributes:
        suite: The subject's suite.
        subject: What is timed.

    """

    suite: Suite = field(repr=False)
    subject: Subject


def benches(suite: Suite, *names: str) -> list[ParameterSet]:
    """Return a `Timed` each for ``pytest.mark.parametrize``, ids written out.

    All components and pipelines, unless only some are named as `Suite.select` takes
    them; mixed-runtime pipelines only where a name says ``mixed``.
    """
    return [
        pytest.param(Timed(suite=suite, subject=subject), id=subject.id)
        for subjects in subjects_of(timed_cases(suite, names)).values()
        for subject in subjects
    ]


class BenchSession:
    """One pytest process's benchmarks, and their times."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._plan = Plan()
        self._benches: dict[str, Bench] = {}
        self._timings: dict[str, tuple[Suite, list[Timing]]] = {}

    def report(self, timed: Timed, request: pytest.FixtureRequest) -> None:
        """Have pytest-benchmark time a subject in as many turns as the plan has."""
        from harness.commands.bench.record import benchmarks
        from harness.commands.bench.rounds import timing_of

        __tracebackhide__ = True
        self._refuse()
        subject = timed.subject
        if subject.runtime != REFERENCE and missing(subject.case):
            words = f"{subject.runtime} is not installed"
            if subject.runtime in self._settings.require:
                pytest.fail(f"{words}, and is required", pytrace=False)
            pytest.skip(words)
        bench = self._bench(timed.suite)
        files, rounds, failure = {}, [], ""
        try:
            turn = bench.turn(subject, self._plan)
            files = turn.files
            with Turns(lambda caller: bench.time(replace(turn, caller=caller))) as own:
                group = f"{subject.case.subject}, {turn.device.threads} threads"
                request.node.add_marker(pytest.mark.benchmark(group=group))
                benchmark = request.getfixturevalue("benchmark")
                benchmark.pedantic(
                    own.run, setup=own.before_run, rounds=self._plan.rounds * own.runs
                )
                rounds = own.finished(benchmark.stats.stats.data)
        except ParityError as error:
            failure = str(error)
        timing = timing_of(
            subject,
            self._plan,
            files=files,
            rounds=rounds,
            failure=failure,
            alone=True,
        )
        _, timings = self._timings.setdefault(path_of(timed.suite), (timed.suite, []))
        timings.append(timing)
        if failure and subject.how == COMPILE:
            pytest.skip(failure)
        if failure:
            pytest.fail(failure, pytrace=False)
        # pytest-benchmark's own table has no column for the rest.
        (entry,) = benchmarks([timing])
        shown = {name: entry[name] for name in _SHOWN}
        benchmark.extra_info.update(shown, ran=dict(timing.rounds[0].ran))

    def _refuse(self) -> None:
        """Fail where pytest-benchmark would report nothing."""
        __tracebackhide__ = True
        config = self._config
        # pytest-benchmark goes by the variable, which a worker's children inherit;
        # a worker has another `dist`, and the controller runs no test.
        worker = "PYTEST_XDIST_WORKER" in os.environ
        if worker or config.getoption("dist", "no") != "no":
            pytest.fail(_XDIST, pytrace=False)
        if not config.pluginmanager.hasplugin("benchmark"):
            pytest.fail(_LACKING, pytrace=False)
        disabled = config.getoption("benchmark_disable")
        if disabled and not config.getoption("benchmark_enable"):
            pytest.fail(_SWITCHED_OFF, pytrace=False)

    def _bench(self, suite: Suite) -> Bench:
        from harness.commands.bench.rounds import Bench
        from harness.engine.run import open_store

        return self._benches.setdefault(
            path_of(suite),
            Bench(
                open_store(self._settings.store),
                limits=suite.limits,
                mnn_convert=self._settings.mnn_convert,
            ),
        )

    def keep(self) -> None:
        """Write the times where `parity bench` does."""
        from harness.commands.bench.record import keep

        for suite, timings in self._timings.values():
            keep(suite, Path(self._settings.runs), "", timings, self._plan)

    def close(self) -> None:
        """End child processes."""
        for bench in self._benches.values():
            bench.close()


class Turns(Closes):
    """Turns of one subject, each in a new worker process that runs when it is told to.

    The first turn begins at once.

    Args:
        time: Times one turn whose runs that caller calls for; returns when it is over.

    Raises:
        ParityError: A worker process ended before it could run, here and in `run`.

    Attributes:
        runs: Of every turn as many as fit into the first: pytest-benchmark wants to
            know their number beforehand.

    """

    def __init__(self, time: Callable[[Caller], Round]) -> None:
        self._time = time
        self._thread = ThreadPoolExecutor(1)
        self._rounds: list[Round] = []
        self.runs = self._left = self._begin()

    def before_run(self) -> None:
        """Start the next turn where one is over."""
        if not self._left:
            self._end()
            self._begin()
            self._left = self.runs

    def run(self) -> None:
        """Have the worker process run once, and wait until it has."""
        self._left -= 1
        self._say(more=True)
        self._heard()

    def finished(self, runs_s: Sequence[float]) -> list[Round]:
        """End the last turn; return all turns with the runs that were timed here."""
        self._end()
        starts = range(0, len(runs_s), self.runs)
        return [
            replace(one, runs_s=tuple(runs_s[start : start + self.runs]))
            for one, start in zip(self._rounds, starts, strict=False)
        ]

    def close(self) -> None:
        """Hang up, which ends a turn that is still in progress."""
        self._channel.close()
        self._thread.shutdown(wait=False)

    def _begin(self) -> int:
        """Start a turn; return how many runs fit into it."""
        key = secrets.token_bytes(16)
        with Listener(authkey=key) as listener:
            caller = Caller(listener.address, key)
            self._turn = self._thread.submit(self._timed, caller)
            self._channel = listener.accept()
        return self._heard()

    def _timed(self, caller: Caller) -> Round:
        try:
            return self._time(caller)
        finally:
            # A process that ended early has not connected, and `accept` would wait.
            with suppress(EOFError, OSError):
                Client(caller.address, authkey=caller.key).close()

    def _end(self) -> None:
        """End the turn in progress, and keep what its process says of it."""
        self._say(more=False)
        self._rounds.append(self._turn.result())
        self._channel.close()

    def _say(self, *, more: bool) -> None:
        with suppress(OSError):  # a process that is gone is noticed when it answers
            self._channel.send(more)

    def _heard(self) -> int:
        """Return what the worker process says; raise what has ended it instead."""
        try:
            return int(self._channel.recv())
        except (EOFError, OSError):
            self._turn.result()
            raise
