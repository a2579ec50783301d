"""One pytest process's part in timing: measured in rounds, told by pytest-benchmark.

The runs are timed in the runtime's child process. pytest-benchmark is given a clock
that plays them back, so its statistics, groups, files and comparisons are of these runs
and of nothing else: no pipe, no pytest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.commands.bench.pytest_items import Timed
from harness.commands.bench.record import keep
from harness.commands.bench.rounds import Bench
from harness.commands.bench.timing import COMPILE, Plan, Subject, Timing
from harness.core.case import REFERENCE
from harness.core.text import count
from harness.engine.run import missing, open_store, path_of

if TYPE_CHECKING:
    from harness.core.settings import Settings
    from harness.suite.suite import Suite

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


class Played:
    """A clock that goes on by one measured run whenever `run` is called."""

    def __init__(self, runs_s: Sequence[float]) -> None:
        self._runs: Iterator[float] = iter(runs_s)
        self._now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self._now_s

    def run(self) -> None:
        """Let the next measured run have happened."""
        self._now_s += next(self._runs)


class BenchSession:
    """Times what is collected, one component at a time, when its first test runs."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._plan = Plan()
        self._benches: dict[str, Bench] = {}
        self._suites: dict[str, Suite] = {}
        self._timings: dict[tuple[str, str], Timing] = {}

    def report(self, timed: Timed, request: pytest.FixtureRequest) -> None:
        """Time a subject's component unless that was done, and report the subject."""
        __tracebackhide__ = True
        self._refuse()
        subject = timed.subject
        if _lacking(subject):
            words = f"{subject.runtime} is not installed"
            if subject.runtime in self._settings.require:
                pytest.fail(f"{words}, and is required", pytrace=False)
            pytest.skip(words)
        timing = self._timing(timed, request.session.items)
        if timing.failure and timing.how == COMPILE:
            pytest.skip(timing.failure)
        if timing.failure:
            pytest.fail(timing.failure, pytrace=False)
        clock = Played(timing.runs_s)
        group = f"{timing.component}, {timing.threads} threads"
        request.node.add_marker(
            pytest.mark.benchmark(group=group, timer=clock, disable_gc=False)
        )
        benchmark = request.getfixturevalue("benchmark")
        benchmark.pedantic(clock.run, rounds=len(timing.runs_s))
        benchmark.extra_info.update(_extra(timing))

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

    def _timing(self, timed: Timed, items: Sequence[pytest.Item]) -> Timing:
        suite = path_of(timed.suite)
        key = suite, timed.subject.id
        if key not in self._timings:
            together = [
                other.subject
                for other in _timed(items)
                if path_of(other.suite) == suite
                and other.subject.case.subject == timed.subject.case.subject
                and not _lacking(other.subject)
            ]
            self._suites[suite] = timed.suite
            self._say(together)
            for made in self._bench(timed.suite).times(together, self._plan):
                self._timings[suite, made.subject] = made
        return self._timings[key]

    def _say(self, together: Sequence[Subject]) -> None:
        """Say what the first test of a component waits for."""
        ways, rounds = count(len(together), "way"), count(self._plan.rounds, "round")
        text = f"timing {together[0].case.subject}: {ways}, {rounds}"
        if any(subject.how == COMPILE for subject in together):
            text += "; torch.compile takes minutes in the first"
        writer = self._config.get_terminal_writer()
        capture = self._config.pluginmanager.getplugin("capturemanager")
        shown = capture.global_and_fixture_disabled() if capture else nullcontext()
        with shown:
            writer.line()
            writer.line(text)
            writer.flush()

    def _bench(self, suite: Suite) -> Bench:
        return self._benches.setdefault(
            path_of(suite),
            Bench(
                open_store(self._settings.store),
                limits=suite.limits,
                mnn_convert=self._settings.mnn_convert,
            ),
        )

    def keep(self) -> None:
        """Write what was timed, as `parity bench` does."""
        for path, suite in self._suites.items():
            own = [timing for (of, _), timing in self._timings.items() if of == path]
            keep(suite, Path(self._settings.runs), "", own, self._plan)

    def close(self) -> None:
        """End child processes."""
        for bench in self._benches.values():
            bench.close()


def _timed(items: Sequence[pytest.Item]) -> Iterator[Timed]:
    """Yield what the collected tests time."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        values = callspec.params.values() if callspec else ()
        yield from (value for value in values if isinstance(value, Timed))


def _lacking(subject: Subject) -> bool:
    """Whether its runtime is not installed."""
    return subject.runtime != REFERENCE and bool(missing(subject.case))


def _extra(timing: Timing) -> dict[str, Any]:
    """Return what pytest-benchmark's own table has no column for."""
    return {
        "load_s": timing.load_s,
        "first_run_s": timing.first_s,
        "memory_bytes": timing.memory_bytes,
        "peak_bytes": timing.peak_bytes,
        "size_bytes": timing.size_bytes,
        "threads": timing.threads,
        "cores": timing.cores,
        "withheld": timing.withheld,
        "ran": dict(timing.ran),
        "timed_in": "a child process, host memory to host memory",
    }
