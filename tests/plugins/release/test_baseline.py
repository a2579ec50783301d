"""A baseline keeps the facts to compare, names who accepted it, and is one file."""

import lzma
from dataclasses import replace
from datetime import date

import pytest

from harness.core.errors import ParityError
from harness.plugins.release.baseline import (
    accept,
    baselines_in,
    find_baseline,
    load_baseline,
    save_baseline,
)
from harness.plugins.release.diff import diff
from tests.unit.reports import CASE, chain, output, record, row
from tests.unit.snapshots import exactly, off_by, report, report_of, run, verdict

TODAY = date(2026, 11, 21)
NO_NAMES = ("../digits", "", "a/b")


def accepted(report, who="A. Reviewer", why="", name="digits", there=None):
    return accept(report, name=name, who=who, why=why, when=TODAY, there=there)


def failing():
    return off_by(99, verdicts=[verdict(f"{CASE}/outputs", "exceeds", "99 floors")])


def test_a_baseline_is_read_as_it_was_written(tmp_path):
    made = accepted(
        run(
            record(*chain(0, 1e-9, 2.5, float("nan")), output(1), inputs={"s-0": "d"}),
            record(case="vae/mnn/fp32"),
            benchmarks=[{"case": CASE, "metric": "latency_ms", "runs": [1, 2.5]}],
        )
    )

    path = save_baseline(made, tmp_path)
    again = load_baseline(path)

    assert again.accepted == made.accepted
    assert again.name == made.name
    for key, one in made.report.records.items():
        two = again.report.records[key]
        # repr, because NaN is not equal to itself
        assert repr(two.rows) == repr(one.rows)
        assert replace(two, rows=()) == replace(one, rows=())
    assert again.report.ends == made.report.ends
    assert again.report.names == made.report.names
    assert again.report.benchmarks == made.report.benchmarks
    records = again.report.records.values()
    assert sorted(len(one.rows) for one in records) == [0, 5]
    # Where its suite lay means nothing elsewhere.
    assert b"/somewhere/" not in lzma.decompress(path.read_bytes())


def test_cases_of_two_suites_keep_their_names_in_a_baseline(tmp_path):
    suites = ["/somewhere/one/parity.toml", "/somewhere/two/parity.toml"]
    data = report(record(output(1)))
    (case,), (end,) = data["cases"], data["verdicts"]
    data["cases"] = [{**case, "suite": suite} for suite in suites]
    data["verdicts"] = [{**end, "suite": suite} for suite in suites]
    data["suites"] = [{"path": suite, "files": {"a.toml": suite}} for suite in suites]
    made = report_of(data, tmp_path)

    kept = load_baseline(save_baseline(accepted(made), tmp_path)).report

    assert list(kept.cases) == list(made.cases) == [f"one:{CASE}", f"two:{CASE}"]
    assert kept.files == made.files
    assert {change.change for change in diff(kept, made, exactly).findings} == {"same"}


def test_the_same_run_accepted_in_the_same_words_gives_the_same_bytes(tmp_path):
    one = save_baseline(accepted(off_by(1)), tmp_path / "one")
    two = save_baseline(accepted(off_by(1)), tmp_path / "two")

    assert one.read_bytes() == two.read_bytes()


def test_an_error_keeps_three_digits_and_a_reference_six():
    others = (row("v0", 1, what="isolated"), row("sample", 9, what="self-bf16"))
    made = run(record(output(1.23456), *others))

    # Operators on their own are no part of it, and neither are PyTorch's own errors.
    (kept,) = accepted(made).report.cases[CASE].record.rows

    assert kept.comparison.rms == 1.23e-3
    assert kept.comparison.expected_rms == 0.614636


def test_a_run_with_failures_is_refused_until_somebody_says_why():
    with pytest.raises(ParityError, match=r"1 check fails .*outputs.*--why"):
        accepted(failing())

    made = accepted(failing(), why="known since March")

    assert made.accepted.failing == (f"{CASE}/outputs",)
    assert made.accepted.why == "known since March"


def test_a_missing_runtime_is_no_failure_and_a_known_gap_neither():
    made = run(
        record(output(1)),
        record(case="unet/onnxruntime/fp32"),
        verdicts=[
            verdict(f"{CASE}/outputs", "gap"),
            verdict("unet/onnxruntime/fp32/outputs", "unavailable"),
        ],
    )

    assert accepted(made).accepted.failing == ()


def test_disturbed_times_are_no_baseline_unless_somebody_says_why():
    times = {"metric": "latency_ms", "runs": [1.0] * 6, "withheld": 0.3}
    made = run(record(output(1)), benchmarks=[{"case": CASE, **times}])

    with pytest.raises(ParityError, match=r"1 time of run .* was taken beside other"):
        accepted(made)

    assert accepted(made, why="no quieter machine").accepted.why
    quiet = {**times, "case": CASE, "withheld": 0.01}
    assert accepted(run(record(output(1)), benchmarks=[quiet]))


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"whole": False}, "of a part of its suite"),
        ({"tier": "quantized"}, "judged by --tier quantized"),
        ({"changes": ["floors=1e9"]}, "judged by --set floors=1e9"),
    ],
)
def test_a_run_that_tells_less_than_its_suite_would_is_refused(about, said):
    with pytest.raises(ParityError, match=f"{said}.*--why"):
        accepted(off_by(1, **about))

    assert accepted(off_by(1, **about), why="the rest is not ready").report


def test_a_run_that_lacks_what_the_baseline_has_is_refused():
    there = accepted(run(record(output(1)), record(output(1), case="vae/mnn/fp32")))

    with pytest.raises(ParityError, match=r"has not 1 check .*vae/mnn/fp32/outputs"):
        accepted(off_by(1), there=there)

    assert accepted(off_by(1), there=there, why="no VAE any more").report


def test_a_run_without_a_runtime_that_the_baseline_has_is_refused():
    bare = run(
        record(output(1)),
        record(case="vae/mnn/fp32"),
        verdicts=[verdict("vae/mnn/fp32/outputs", "unavailable")],
    )
    there = accepted(run(record(output(1)), record(output(1), case="vae/mnn/fp32")))

    with pytest.raises(ParityError, match=r"has not 1 check .*vae/mnn/fp32/outputs"):
        accepted(bare, there=there)


@pytest.mark.parametrize(
    ("made", "about", "words"),
    [
        *((off_by(1), {"name": name}, "no file's name") for name in NO_NAMES),
        (off_by(1), {"who": " "}, "--who"),
        (run(), {}, "compared nothing"),
    ],
)
def test_a_baseline_has_a_name_somebody_and_something_to_compare(made, about, words):
    with pytest.raises(ParityError, match=words):
        accepted(made, **about)


def test_a_baseline_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = save_baseline(accepted(off_by(1)), tmp_path)
    before = path.read_bytes()

    def full(_path, _target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    with pytest.raises(ParityError, match="No space left on device"):
        save_baseline(accepted(off_by(2)), tmp_path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ParityError, match="cannot be written"):
        save_baseline(accepted(off_by(1)), tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param(b"", "is damaged", id="empty"),
        pytest.param(lzma.compress(b"{" * 999)[:-40], "is cut short", id="cut"),
        pytest.param(b"{}", "is damaged", id="not-compressed"),
        pytest.param(lzma.compress(b"[]"), "is damaged", id="list"),
        pytest.param(lzma.compress(b'{"schema": 1}'), "accept a run", id="earlier"),
        pytest.param(lzma.compress(b'{"schema": 9}'), "schema 9", id="later"),
        pytest.param(lzma.compress(b'{"schema": 2}'), "is damaged", id="lacking"),
    ],
)
def test_a_damaged_baseline_is_a_sentence(tmp_path, raw, words):
    path = save_baseline(accepted(off_by(1)), tmp_path)
    path.write_bytes(raw)

    with pytest.raises(ParityError, match=words):
        load_baseline(path)


def test_a_baseline_is_found_by_name_and_by_path(tmp_path):
    path = save_baseline(accepted(off_by(1)), tmp_path)

    assert find_baseline(tmp_path, "digits") == path
    assert find_baseline(tmp_path / "elsewhere", str(path)) == path
    assert baselines_in(tmp_path) == [path]
    with pytest.raises(ParityError, match=r"no baseline 'digit'.* has digits"):
        find_baseline(tmp_path, "digit")
