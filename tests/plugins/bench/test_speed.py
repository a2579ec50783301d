"""Error and speed on the page of a run."""

import math
from dataclasses import replace

import numpy as np
import pytest

from harness.measure.compare import compare
from harness.plugins.bench.section import Way, front, speeds
from harness.plugins.page.charts import LEAST
from harness.plugins.page.page import page_of
from tests.unit.found import cells, found_in
from tests.unit.reports import output, record


def timed(case, *runs, size=2**20):
    return {
        "case": case,
        "metric": "latency_ms",
        "runs": list(runs),
        "size_bytes": size,
        "memory_bytes": 2**20,
    }


def way(name, floors, latency_ms, size_bytes, memory_bytes):
    about = {**timed(name, latency_ms, size=size_bytes), "memory_bytes": memory_bytes}
    return Way(name, floors, about)


FAST = way("fast", 100.0, 1.0, 1, 1)
EXACT = way("exact", 1.0, 9.0, 4, 4)
TWIN = EXACT._replace(name="twin")
OTHER = {**timed("unet/mnn/fp32", 1.0), "metric": "energy_mj"}


def found_with(folder, *benchmarks, int8=None):
    found = found_in(
        folder,
        [
            record(output(2.0), case="unet/mnn/fp32"),
            record(int8 or output(50.0), case="unet/mnn/int8"),
        ],
    )
    return replace(found, about={**found.about, "benchmarks": list(benchmarks)})


@pytest.mark.parametrize(
    ("ways", "best"),
    [
        pytest.param([FAST, EXACT], [FAST, EXACT], id="each-best-in-something"),
        pytest.param([EXACT, TWIN], [EXACT, TWIN], id="equal"),
        pytest.param([EXACT, way("w", 50.0, 9.0, 4, 4)], [EXACT], id="error"),
        pytest.param([EXACT, way("w", 1.0, 50.0, 4, 4)], [EXACT], id="time"),
        pytest.param([EXACT, way("w", 1.0, 9.0, 50, 4)], [EXACT], id="size"),
        pytest.param([EXACT, way("w", 1.0, 9.0, 4, 50)], [EXACT], id="memory"),
        pytest.param([EXACT, way("w", 1.0, 9.0, 0, 4)], [EXACT], id="no-file"),
        pytest.param([EXACT, way("w", None, 0.1, 1, 1)], [EXACT], id="never-compared"),
    ],
)
def test_what_another_way_beats_is_not_on_the_front(ways, best):
    assert front(ways) == best


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_is_not_finite_is_not_on_the_front_however_fast(tmp_path, broken):
    expected = np.linspace(-1.0, 1.0, 16, dtype=np.float32)
    actual = expected.copy()
    actual[3] = broken
    comparison = compare(expected=expected, actual=actual, floor_rms=1e-3)
    times = [timed("unet/mnn/fp32", 4.0), timed("unet/mnn/int8", 1.0)]
    some_nan = replace(output(0.0), comparison=comparison)

    (section,) = speeds(found_with(tmp_path, *times, int8=some_nan))

    assert cells(section.table, "front") == ["front", "not finite"]


def test_times_of_two_nodes_are_not_put_beside_one_another(tmp_path):
    nodes = (("unet/mnn/fp32", "one"), ("unet/mnn/int8", "two"))
    times = [{**timed(case, 1.0), "node": node} for case, node in nodes]

    found = speeds(found_with(tmp_path, *times))

    assert [section.title for section in found] == [
        "unet: error and speed on one",
        "unet: error and speed on two",
    ]


@pytest.mark.parametrize("times", [[], [OTHER]], ids=["no-times", "no-latency"])
def test_a_run_without_latencies_has_no_such_section(tmp_path, times):
    assert list(speeds(found_with(tmp_path, *times))) == []


def test_the_worst_output_stands_against_the_median_run(tmp_path):
    found = found_with(
        tmp_path,
        timed("unet/pytorch/eager", 5.0, 6.0, 7.0),
        timed("unet/mnn/fp32", 3.0, 4.0, 90.0),
        timed("unet/mnn/int8", 1.0, 2.0, 3.0, size=2**18),
    )

    (section,) = (one for one in page_of(found).sections if "speed" in one.id)

    ways = cells(section.table, "way")
    assert ways == ["pytorch/eager", "mnn/fp32", "mnn/int8"]
    assert cells(section.table, "floors") == pytest.approx([0.0, 2.0, 50.0], rel=0.1)
    assert cells(section.table, "ms") == [6.0, 4.0, 2.0]
    assert section.gist == (
        "fastest mnn/int8, 2 ms · smallest mnn/int8, 0.25 MB · 3 of 3 ways on the front"
    )
    assert section.chart is not None
    drawn = {
        name: (x, y)
        for trace in section.chart.figure["data"]
        for name, x, y in zip(trace["text"], trace["x"], trace["y"], strict=True)
    }
    assert drawn["mnn/fp32"] == (4.0, pytest.approx(2.0, rel=0.1))
    assert drawn["pytorch/eager"] == (6.0, LEAST)
    assert set(drawn) == set(ways)


def test_it_says_what_other_work_disturbed(tmp_path):
    times = [
        {**timed(case, 4.0), "threads": 2, "withheld": withheld}
        for case, withheld in (("unet/mnn/fp32", 0.01), ("unet/mnn/int8", 0.3))
    ]

    (section,) = speeds(found_with(tmp_path, *times))

    _, threads, disturbed = section.notes
    assert threads == "Each had 2 threads."
    assert disturbed.startswith("Other work took up to 30% of the processor")
    assert "1 row asked for" in disturbed


def test_a_pipeline_is_drawn_by_the_error_of_its_pictures(tmp_path):
    picture = replace(output(7.0), what="image")
    found = found_in(
        tmp_path, [record(picture, case="text2img/mnn/fp32")], whats=("image",)
    )
    times = [timed("text2img/pytorch/eager", 9.0, size=0)]
    times += [timed("text2img/mnn/fp32", 5.0)]
    found = replace(found, about={**found.about, "benchmarks": times})

    (section,) = speeds(found)

    assert section.title == "text2img: error and speed"
    assert cells(section.table, "floors")[1] == pytest.approx(7.0, rel=0.1)
