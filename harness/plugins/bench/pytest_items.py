"""Benchmarks as pytest tests: their parameters, and the code behind `parity_bench`.

A worker process runs a subject once, so what ends a process, or runs on another device
than the suite asks for, is refused there. Then pytest's own process loads the subject,
and pytest-benchmark times each run.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from harness.core.errors import ParityError
from harness.core.settings import Settings
from harness.core.shown import shown
from harness.core.text import one_line
from harness.engine.host import SILENT
from harness.engine.run import missing, open_store
from harness.plugins.bench.timing import BenchPlan, Subject, subjects_of, timed_cases
from harness.suite.suite import Suite

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from pytest_benchmark.fixture import BenchmarkFixture

_ONCE = BenchPlan(warmups=0, least_runs=0, most_runs=0)
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


def report(
    config: pytest.Config,
    settings: Settings,
    timed: Timed,
    benchmark: BenchmarkFixture | None,
) -> None:
    """Let pytest-benchmark time a subject, with pytest-benchmark's own options.

    If an option switches it off, the subject runs and no time is reported. `benchmark`
    is its fixture; None where it is not there.
    """
    __tracebackhide__ = True
    if benchmark is None:
        pytest.fail(_LACKING, pytrace=False)
    _refuse_xdist(config)
    subject = timed.subject
    if not subject.is_eager and missing(subject.case):
        words = f"{subject.runtime} is not installed"
        if subject.runtime in settings.require:
            pytest.fail(f"{words}, and is required", pytrace=False)
        pytest.skip(words)
    try:
        _report(settings, timed, benchmark)
    except ParityError as error:
        pytest.fail(shown(one_line(str(error))), pytrace=False)


def _refuse_xdist(config: pytest.Config) -> None:
    """Fail where workers of pytest-xdist would time what each other slows down."""
    __tracebackhide__ = True
    if config.getoption("benchmark_disable") and not config.getoption(
        "benchmark_enable"
    ):
        return  # nothing is timed
    # pytest-benchmark reads this variable, which a worker's children inherit. A worker
    # has another `dist`, and the controller runs no test.
    if "PYTEST_XDIST_WORKER" in os.environ or config.getoption("dist", "no") != "no":
        pytest.fail(_XDIST, pytrace=False)


def _report(settings: Settings, timed: Timed, benchmark: BenchmarkFixture) -> None:
    """Run a subject once in a worker process, then let pytest-benchmark time it here.

    Raises:
        ParityError: Something cannot be made, loaded or run.

    """
    from harness.engine.engine import Engine
    from harness.plugins.bench.rounds import Bench
    from harness.plugins.bench.worker import prepared, watched

    store = open_store(settings.store)
    limits, convert = timed.suite.limits, settings.mnn_convert or None
    with Engine(store, limits, mnn_convert=convert) as engine:
        bench = Bench(engine.artifacts)
        turn = bench.turn(timed.subject, _ONCE)
        once = bench.time(turn)
    threads = turn.device.threads
    if benchmark.group is None:  # a mark of the test may name another
        benchmark.group = f"{timed.subject.case.subject}, {threads} threads"
    os.environ.update({**SILENT, **os.environ})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are the frameworks', not the test's
        with prepared(turn) as loaded:
            loaded.run()  # the first run infers shapes, and loads parts of a pipeline
            _, _, withheld = watched(lambda: benchmark(loaded.run), threads)
    benchmark.extra_info.update(
        load_ms=once.load_s * 1e3,
        first_run_ms=once.first_s * 1e3,
        size_bytes=once.size_bytes,
        memory_bytes=once.peak_bytes - once.base_bytes,
        threads=threads,
        withheld=withheld,
        ran=dict(once.ran),
    )
