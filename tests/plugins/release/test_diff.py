"""The differences between two runs, compared with the measured noise."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.measure.compare import compare
from harness.plugins.release.diff import COVERAGE, MEMORY, SETTINGS, SIZE, diff
from harness.plugins.release.thresholds import Change
from tests.plugins.release.changes import found, text
from tests.unit.reports import CASE, chain, output, record, row
from tests.unit.reports import COVERAGE as COUNTS
from tests.unit.snapshots import (
    MACHINE,
    exactly,
    off_by,
    report,
    report_of,
    run,
    verdict,
)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param(1.0, 1.0, Change.SAME, id="equal"),
        pytest.param(0.0, 0.0, Change.SAME, id="no-error"),
        pytest.param(1.0, 6.5, Change.SAME, id="another-rounding"),
        pytest.param(1.0, 7.5, Change.WORSE, id="another-computation"),
        pytest.param(400.0, 2.0, Change.BETTER, id="fixed"),
        pytest.param(20_000.0, 21_000.0, Change.SAME, id="a-twentieth-of-much"),
        pytest.param(20_000.0, 23_000.0, Change.WORSE, id="a-seventh-of-much"),
    ],
)
def test_the_noise_decides_what_counts(before, after, change):
    assert found(off_by(before), off_by(after)).change is change


@pytest.mark.parametrize(
    ("after", "cpu", "change"),
    [
        pytest.param(26_000.0, MACHINE["cpu"], Change.WORSE, id="the-same"),
        pytest.param(26_000.0, "another", Change.SAME, id="another"),
        pytest.param(31_000.0, "another", Change.WORSE, id="beyond-another"),
    ],
)
def test_another_processor_may_round_a_lossy_variant_otherwise(after, cpu, change):
    later = off_by(after, environment=MACHINE | {"cpu": cpu})

    assert found(off_by(20_000.0), later).change is change


def of(expected, actual=None, floor_rms=1e-3):
    """The record of one output with these values; it is right if only one is given."""
    actual = expected if actual is None else actual
    comparison = compare(expected=expected, actual=actual, floor_rms=floor_rms)
    return record(replace(output(1), comparison=comparison))


def test_a_single_element_that_leaps_is_worse_whatever_the_rms():
    def spiked(size):
        expected = np.linspace(-1.0, 1.0, 400_000, dtype=np.float32)
        error = np.full(expected.shape, 1e-3)
        error[7] = size
        return run(of(expected, expected + error))

    finding = found(spiked(1e-3), spiked(0.5))

    assert finding.change is Change.WORSE
    assert "required atol 1.000e-03 → 5.000e-01 at rtol 0" in finding.words
    assert "floors" not in finding.words


def test_the_required_atol_is_compared_at_the_tiers_rtol():
    def slanted(error):
        expected = np.full(1000, 100.0, dtype=np.float64)
        expected[0] = 0.0
        return run(of(expected, expected * (1.0 + error), 1e-5))

    before, after = slanted(1e-5), slanted(9e-5)

    assert "required atol" in found(before, after, rtol=exactly).words
    assert "required atol" not in found(before, after, rtol=lambda *_: 1e-4).words


def test_the_words_have_both_errors_and_where():
    finding = found(
        run(record(*chain(1, 2, 3), output(2))),
        run(record(*chain(1, 300, 3), output(2))),
        what="layers",
    )

    assert finding.words.startswith(
        "1 of 3 values; net.v1 (s-0): 2 floors → 300 floors"
    )


@pytest.mark.parametrize("places", [1, 16])
def test_what_stopped_being_finite_is_worse(places):
    expected = np.linspace(1.0, 9.0, 16, dtype=np.float32)
    actual = expected.copy()
    actual[:places] = math.nan
    sound, broken = run(of(expected)), run(of(expected, actual))

    finding = found(sound, broken)
    assert finding.change is Change.WORSE
    assert f"not finite at 0 → {places} place" in finding.words
    assert found(broken, broken).change is Change.SAME
    assert found(broken, sound).change is Change.BETTER


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(
            record(output(1), inputs={"s-0": "one"}),
            record(output(1), inputs={"s-0": "two"}),
            "the weights, the configuration or the inputs of unet changed",
            id="task",
        ),
        pytest.param(
            record(output(1)),
            of(np.linspace(-1, 1, 16, dtype=np.float32)),
            "shape [2, 8] before, [16] now",
            id="shape",
        ),
        pytest.param(
            record(output(1)),
            of(np.full((2, 8), 3.0, np.float32)),
            "the reference's rms was 0.614636, is 3",
            id="reference",
        ),
    ],
)
def test_other_inputs_or_references_are_incomparable_and_named(before, after, words):
    finding = found(run(before), run(after))

    assert finding.change is Change.INCOMPARABLE
    assert words in finding.words
    assert not diff(run(before), run(after), exactly).tells


def test_a_report_without_digests_of_its_inputs_is_compared_all_the_same():
    before = run(record(output(1)))
    after = run(record(output(1), inputs={"s-0": "one"}))

    assert found(before, after).change is Change.SAME


def test_times_that_nobody_took_again_are_gone_and_block_on_the_same_machine():
    timed = [{"case": CASE, "metric": "latency_ms", "runs": [10, 10, 10, 10, 10]}]
    before = off_by(2, benchmarks=timed)
    elsewhere = off_by(2, environment=MACHINE | {"id": "bbbb1111"})

    (gone,) = diff(before, off_by(2), exactly).blocking
    assert (gone.what, gone.change) == ("latency_ms", Change.GONE)
    assert "parity bench" in gone.words
    assert not diff(before, elsewhere, exactly).blocking


def test_a_case_that_is_gone_and_one_that_is_new_are_both_said():
    other = "unet/onnxruntime/fp32"
    one, two = off_by(1), off_by(1, case=other)

    findings = diff(one, two, exactly).findings

    assert [(f.case, f.change) for f in findings] == [
        (CASE, Change.GONE),
        (other, Change.NEW),
    ]


def test_a_case_whose_runtime_is_missing_is_gone():
    missing = run(
        record(failure={"outcome": "unavailable", "message": "no mnn"}),
        verdicts=[verdict(f"{CASE}/outputs", "unavailable", "mnn is not installed")],
    )

    finding = diff(off_by(1), missing, exactly).findings[0]

    assert (finding.change, finding.words) == (Change.GONE, "mnn is not installed")


def test_a_case_that_no_longer_converts_is_worse_and_says_why():
    broken = run(
        record(failure={"outcome": "convert", "message": "no operator IsNaN"}),
        verdicts=[verdict(f"{CASE}/outputs", "convert", "no operator IsNaN")],
    )

    finding = found(off_by(1), broken)

    assert finding.change is Change.WORSE
    assert finding.words == "was within, convert: no operator IsNaN"
    assert found(broken, broken).change is Change.SAME


def test_layers_that_another_exporter_names_otherwise_are_paired_by_what_they_are():
    before = run(record(*chain(1, 2, 3)))
    renamed = [replace(one, probe=f"/{one.probe}/Conv") for one in chain(1, 2, 300)]

    finding = found(before, run(record(*renamed)), what="layers")

    assert finding.rows == {Change.SAME: 2, Change.WORSE: 1}


def test_an_output_that_is_gone_is_gone_though_another_is_the_same():
    two = [output(1), replace(output(1), probe="other")]

    finding = found(run(record(*two)), run(record(two[0])))

    assert finding.change is Change.GONE
    assert finding.words == "1 of 2 values; other (s-0)"


def test_fewer_layers_matter_where_coverage_falls():
    fewer = {**COUNTS, "aligned": 8}
    before = run(record(*chain(1, 2, 3)))
    after = run(record(*chain(1, 2), coverage=fewer))

    assert found(before, after, "layers").change is Change.SAME
    finding = found(before, after, COVERAGE)
    assert finding.change is Change.WORSE
    assert finding.words.startswith("100.0% → 80.0%")


def test_the_layers_of_a_sample_that_are_gone_are_said():
    second = [replace(one, sample="s-1") for one in chain(1, 2)]

    finding = found(run(record(*chain(1, 2), *second)), run(record(*second)), "layers")

    assert (finding.change, finding.words) == (Change.GONE, "no layers of s-0 now")


@pytest.mark.parametrize(
    ("what", "about", "before", "after", "change"),
    [
        pytest.param(SIZE, "size", 10 << 20, 11 << 20, Change.WORSE, id="size"),
        pytest.param(SIZE, "size", 10_000, 20_000, Change.SAME, id="size-of-little"),
        pytest.param(SIZE, "size", 11 << 20, 8 << 20, Change.BETTER, id="smaller"),
        pytest.param(MEMORY, "peak", 400 << 20, 460 << 20, Change.SAME, id="allocator"),
        pytest.param(MEMORY, "peak", 400 << 20, 800 << 20, Change.WORSE, id="memory"),
        pytest.param(MEMORY, "peak", 4 << 20, 8 << 20, Change.SAME, id="of-little"),
    ],
)
def test_size_and_memory_have_their_own_limits(what, about, before, after, change):
    def of(value):
        if about == "peak":
            return run(record(output(1), peak_bytes=value))
        return run(record(output(1), artifacts={"mnn": {"size_bytes": value}}))

    assert found(of(before), of(after), what).change is change


def test_other_settings_are_incomparable_and_named():
    before = run(replace(record(output(1)), asked={"device": "cpu", "threads": 2}))
    after = run(replace(record(output(1)), asked={"device": "cpu", "threads": 1}))

    finding = found(before, after, SETTINGS)

    assert (finding.change, finding.words) == (Change.INCOMPARABLE, "threads 2 → 1")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([["level", 2], ["fast", 0]], "level = 2, fast = 0"),
        ([], "none"),
        ([[]], "[]"),
        (["fast", ["a", 1, 2]], "fast, ['a', 1, 2]"),
        ({"name": "phone"}, "{'name': 'phone'}"),
    ],
)
def test_a_setting_that_another_version_has_is_shown_as_it_is(value, words):
    before = run(replace(record(output(1)), asked={"device": "cpu"}))
    after = run(replace(record(output(1)), asked={"device": "cpu", "new": value}))

    assert found(before, after, SETTINGS).words == f"new None → {words}"


def test_versions_and_files_that_differ_are_named():
    packages = {"MNN": "3.7.0", "torch": "2.13.0", "onnx": "1.23"}
    later = report(record(output(1)), environment={**MACHINE, "packages": packages})
    later["suites"][0]["files"] = {"parity.toml": "f00d", "known_gaps.toml": "1"}

    said = text(off_by(1), report_of(later, Path("report.json")))

    assert "versions that differ: MNN 3.6.1 → 3.7.0, onnx none → 1.23" in said
    assert "files that differ: known_gaps.toml" in said


def test_every_line_fits_and_a_long_list_is_cut():
    many = [record(output(1), case=f"unet{n}/mnn/fp32") for n in range(40)]
    worse = [record(output(99 + n), case=f"unet{n}/mnn/fp32") for n in range(40)]

    said = text(run(*many), run(*worse))

    assert "and 28 more worse: unet" in said
    assert all(len(line) <= 100 for line in said.splitlines())
    assert len(said.splitlines()) < 42


def test_rows_of_isolated_operators_are_left_out():
    one, two = (
        run(record(*chain(1), row("v0", floors, what="isolated"))) for floors in (1, 99)
    )

    (finding,) = [one for one in diff(one, two, exactly).findings if one.rows]
    assert finding.rows == {Change.SAME: 1}


def test_a_name_that_stands_for_another_layer_now_is_not_compared_by_it():
    def layers(*shapes):
        made = (of(np.full(shape, 1.0 + size, np.float32)) for shape, size in shapes)
        return [
            replace(
                row(f"v{n}", 1, module=f"net.{n}"), comparison=one.rows[0].comparison
            )
            for n, one in enumerate(made)
        ]

    before = run(record(*layers(((2, 8), 0), ((2, 8), 1))))
    after = run(record(*layers(((2, 8), 0), ((8, 2), 1))))

    finding = found(before, after, what="layers")

    assert finding.change is Change.SAME
    assert finding.rows == {Change.SAME: 1, Change.GONE: 1, Change.NEW: 1}


def test_findings_of_the_same_words_stand_together():
    names = [f"unet{n}/mnn/fp32" for n in range(3)]
    sound = run(*(record(output(1), case=name) for name in names))
    told = [verdict(f"{name}/outputs", "convert", "no operator") for name in names]
    broken = run(
        *(
            record(case=name, failure={"outcome": "convert", "message": "no operator"})
            for name in names
        ),
        verdicts=told,
    )

    said = text(sound, broken)

    assert "WORSE        unet0/mnn/fp32/outputs and 2 more" in said
    assert said.count("no operator") == 1
    # What never ran has no size that could have shrunk.
    assert "BETTER" not in said
