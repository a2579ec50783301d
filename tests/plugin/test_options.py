"""Each option of the pytest plugin, and the key of the same name where it has one."""

import json
import shlex

import pytest

from tests.plugin.project import CASES, PYTEST

MOVED = "threads 2 → 1"


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("backend=mn", "there is no backend 'mn'; did you mean 'mnn'?"),
        (
            "component=vae_decodr",
            "there is no component 'vae_decodr'; did you mean 'vae_decoder'?",
        ),
        ("variant=fp23", "there is no variant 'fp23'; did you mean 'fp32'?"),
        ("require=mmn", "there is no backend 'mmn'; did you mean 'mnn'?"),
        ("set=floor=3", "unknown bound 'floor'; did you mean 'floors'?"),
        ("tier=standart", "there is no tier 'standart'; did you mean 'standard'?"),
        ("jobs=0", "takes a whole number from 1, got '0'."),
        ("jobs=two", "takes a whole number from 1, got 'two'."),
        ("baseline=kept", "there is no baseline 'kept'"),
    ],
)
def test_a_word_that_makes_no_sense_is_a_usage_error(quick, option, says):
    quick.collect(f"--parity-{option}").check(
        4, f"--parity-{option.partition('=')[0]}: {says}"
    )
    assert not (quick.path / "reports").exists()


@pytest.mark.parametrize(
    ("option", "collected", "left_out"),
    [
        ("backend=onnxruntime", "2/6 tests collected (4 deselected)", "/mnn/"),
        ("backend=onnxruntime,mnn", "6 tests collected", "deselected"),
        ("variant=int8-weights", "2/6 tests collected (4 deselected)", "/fp32/"),
        ("component=vae_decoder", "6 tests collected", "deselected"),
    ],
)
def test_only_what_is_named_is_collected(project, option, collected, left_out):
    ended = project.collect(f"--parity-{option}")
    assert ended.has(collected)
    assert not ended.has(left_out)


def test_a_backend_that_the_suite_has_but_k_leaves_out_is_no_usage_error(project):
    project.collect("--parity-backend=mnn", "-k", "onnxruntime").check(5)


def test_other_tests_are_not_left_out(quick):
    (quick.path / "test_other.py").write_text("def test_other():\n    pass\n")
    ended = quick.run(*PYTEST, "--co", "-q", "--parity-component=vae_decoder")
    assert ended.has("3 tests collected")


def test_every_option_is_explained_in_one_line(quick):
    ended = quick.run(*PYTEST, "--help")
    lines = ended.text.splitlines()
    options = [line for line in lines if line.startswith("  --parity-")]
    assert len(options) == 14
    assert all(len(line) < 100 for line in options)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("set=floors=0.001", "floors, allowed 0.001"),
        ("tier=exact", "allowed 0.000e+00"),
    ],
)
def test_a_tighter_bound_or_tier_is_the_one_that_counts(quick, option, says):
    quick.pytest(f"--parity-{option}").check(1, says)


def test_a_looser_tier_turns_a_difference_into_agreement(quick):
    quick.tighten("[onnxruntime.fp32]")
    quick.pytest("--parity-tier=standard", "--parity-jobs=1", "-k", "outputs").check(0)


def test_a_program_that_fails_is_2_and_says_so(project):
    program = project.path / "MNNConvert"
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    program.chmod(0o755)
    project.pytest(
        "--parity-backend=mnn", f"--parity-mnn-convert={program}", "-k", "fp32"
    ).check(2, "vae_decoder/mnn/fp32   convert", "it is broken")


@pytest.mark.usefixtures("without_mnn")
def test_a_missing_runtime_is_skipped_with_its_reason(project):
    project.pytest("--parity-variant=fp32").check(
        0,
        "2 passed, 2 skipped",
        "1 of 1 case agrees",
        "1 case skipped: mnn is not installed (pip install MNN)",
    )
    assert project.outcomes["vae_decoder/mnn/fp32/outputs"] == "unavailable"


@pytest.mark.usefixtures("without_mnn")
def test_a_run_in_which_everything_is_skipped_is_2(project):
    project.pytest("--parity-backend=mnn").check(2, "Nothing was compared")


@pytest.mark.usefixtures("without_mnn")
def test_a_missing_runtime_that_is_required_fails(project):
    project.pytest("--parity-variant=fp32", "--parity-require=onnxruntime,mnn").check(
        2, "2 failed, 2 passed", "vae_decoder/mnn/fp32   unavailable"
    )


def test_reports_go_where_the_option_says(quick):
    assert quick.pytest("-k", "outputs", "--parity-runs=elsewhere").code == 0
    assert len(list(quick.path.glob("elsewhere/*/report.json"))) == 1
    assert not (quick.path / "reports").exists()


def test_keys_name_folders_from_the_root(quick, store):
    (quick.path / "store").symlink_to(store)
    (quick.path / "pytest.ini").write_text(
        "[pytest]\nparity_runs = kept\nparity_store = store\n"
    )
    (quick.path / "below").mkdir()
    quick.change("test_parity.py", '"parity.toml"', '"../parity.toml"')
    (quick.path / "test_parity.py").rename(quick.path / "below" / "test_parity.py")

    quick.run(
        "sh", "-c", f"cd below && PARITY_STORE=none {shlex.join(PYTEST)} -k outputs"
    ).check(0)

    assert len(list(quick.path.glob("kept/*/report.json"))) == 1
    assert not (quick.path / "below" / "none").exists()


def test_a_store_elsewhere_does_not_move_the_reports(quick, store):
    # Of two words pytest takes the second for a path of tests, and looks for its root.
    quick.pytest("-k", "outputs", "--parity-store", str(store)).check(0)
    assert len(quick.reports) == 1


@pytest.mark.parametrize("option", ["runs", "store"])
def test_a_folder_that_cannot_be_written_is_a_sentence(quick, option):
    (quick.path / "file").write_text("")
    ended = quick.pytest(f"--parity-{option}=file/below")
    ended.check(2, "file")
    assert not ended.has("INTERNALERROR")


def page_of(project):
    return project.reports[-1].with_suffix(".html").read_text()


def test_what_is_worse_than_the_baseline_fails_a_run_that_agrees(quick):
    assert quick.pytest().code == 0
    quick.parity("baseline", "accept", "--who", "A", "--name", "kept").check(0)

    quick.pytest("--parity-baseline=kept").check(0, "34 rows: 34 same")

    # A part of the suite is compared with that part alone.
    quick.pytest("--parity-baseline=kept", "-k", "outputs").check(0, "1 row: 1 same")

    quick.change(
        "parity.toml", "[backend.onnxruntime]", "[backend.onnxruntime]\nthreads = 1"
    )
    for ended in (
        quick.pytest("--parity-baseline=kept"),
        quick.parity("run", "--baseline", "kept"),
    ):
        ended.check(1, f"INCOMPARABLE {CASES[0]}/settings threads 2 → 1")
        assert json.loads(quick.reports[-1].read_text())["exit_code"] == 1

    # Its page is the same when it is written again: `parity bench` asks for that.
    assert quick.parity("report").code == 0
    assert MOVED in page_of(quick)
    assert "1 result cannot be compared with it" in page_of(quick)

    # The page of a run that was compared with none is written again with one.
    quick.parity("run")
    assert MOVED not in page_of(quick)
    quick.parity("report", "--baseline", "kept").check(0)

    assert MOVED in page_of(quick)
    assert quick.parity("report", "--baseline", "gone").code == 2
