"""The pytest plugin of benchmarks: a marker and the fixture `parity_bench`.

Every pytest run of the environment imports this module. So it imports the rest only
when a benchmark runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from harness.plugins.bench.pytest_items import Timed


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the fixture."""
    marker = "bench: measures time; run it on a quiet machine"
    config.addinivalue_line("markers", marker)
    is_there = config.pluginmanager.hasplugin("benchmark")
    benches = _Benches() if is_there else _NoBenches()
    config.pluginmanager.register(benches, "parity-benches")


class _Benches:
    """The fixture of benchmarks, which asks for pytest-benchmark's own.

    pytest-benchmark finds its tests by the fixtures that they ask for when they are
    collected: its options to skip them, or to run nothing else, look at no others.
    """

    @pytest.fixture
    def parity_bench(
        self, request: pytest.FixtureRequest, benchmark: BenchmarkFixture
    ) -> Callable[[Timed], None]:
        """Time a subject with pytest-benchmark: ``parity_bench(timed)``."""
        return _timer(request, benchmark)


class _NoBenches:
    """The fixture of benchmarks where pytest-benchmark is not there; it says so."""

    @pytest.fixture
    def parity_bench(self, request: pytest.FixtureRequest) -> Callable[[Timed], None]:
        """Fail with the package that is missing: ``parity_bench(timed)``."""
        return _timer(request, None)


def _timer(
    request: pytest.FixtureRequest, benchmark: BenchmarkFixture | None
) -> Callable[[Timed], None]:
    from harness.commands.pytest_session import settings_of
    from harness.plugins.bench.pytest_items import report

    def time(timed: Timed) -> None:
        __tracebackhide__ = True
        report(request.config, settings_of(request.config), timed, benchmark)

    return time
