"""Error against speed on the page of a run."""

from dataclasses import replace

import pytest

from harness.report.html.page import page_of
from harness.report.html.speed import Choice, Speed, front, speeds
from tests.unit.found import found_in
from tests.unit.reports import output, record

FAST = Choice(name="fast", floors=100.0, latency_ms=1.0, size_mb=1.0, memory_mb=1.0)
EXACT = Choice(name="exact", floors=1.0, latency_ms=9.0, size_mb=4.0, memory_mb=4.0)


def timed(case, *runs, size=2**20):
    return {
        "case": case,
        "metric": "latency_ms",
        "runs": list(runs),
        "size_bytes": size,
        "memory_bytes": 2**20,
    }


def found_with(folder, *benchmarks):
    found = found_in(
        folder,
        [
            record(output(2.0), case="unet/mnn/fp32"),
            record(output(50.0), case="unet/mnn/int8"),
        ],
    )
    return replace(found, about={**found.about, "benchmarks": list(benchmarks)})


def test_what_is_best_in_something_is_on_the_front():
    assert front([FAST, EXACT]) == [FAST, EXACT]


@pytest.mark.parametrize("name", ["floors", "latency_ms", "size_mb", "memory_mb"])
def test_what_is_worse_in_one_thing_and_better_in_none_is_not(name):
    worse = replace(EXACT, name="worse", **{name: 50.0})

    assert front([EXACT, worse]) == [EXACT]


def test_two_that_are_equal_in_everything_are_both_on_it():
    twin = replace(EXACT, name="twin")

    assert front([EXACT, twin]) == [EXACT, twin]


def test_what_was_never_compared_is_not_on_the_front_however_fast():
    unknown = replace(FAST, name="unknown", floors=None, latency_ms=0.1)

    assert unknown not in front([EXACT, unknown])


def test_a_run_without_times_has_no_such_section(tmp_path):
    assert list(speeds(found_with(tmp_path))) == []


def test_the_worst_output_stands_against_the_median_run(tmp_path):
    found = found_with(
        tmp_path,
        timed("unet/pytorch/eager", 5.0, 6.0, 7.0),
        timed("unet/mnn/fp32", 3.0, 4.0, 90.0),
        timed("unet/mnn/int8", 1.0, 2.0, 3.0, size=2**18),
    )

    (section,) = (one for one in page_of(found).sections if isinstance(one, Speed))

    ways = section.table.columns[0].words or ()
    cells = {ways[row[0]]: row[2:4] for row in section.table.rows}
    assert cells["mnn/fp32"] == [pytest.approx(2.0, rel=0.1), 4.0]
    assert cells["mnn/int8"] == [pytest.approx(50.0, rel=0.1), 2.0]
    assert cells["pytorch/eager"] == [0.0, 6.0]
    drawn = {name for trace in section.chart.figure["data"] for name in trace["text"]}
    assert drawn == set(cells)


def test_times_at_other_threads_than_the_suites_are_not_mixed_in(tmp_path):
    other = {**timed("unet/mnn/fp32", 1.0), "metric": "latency_at_8_threads_ms"}

    assert list(speeds(found_with(tmp_path, other))) == []
