"""The gate fails for a regression within its tolerance, and passes a clean build."""

import json

import pytest

from harness.engine.run_folder import SCHEMA
from tests.plugin.project import CASES, write_project

pytestmark = pytest.mark.slow

APP = "vae_decoder/mnn/app"
OWN = '[variant.mnn.app]\nfrom = "fp32"\nflags = ["--weightQuantBits=8"]\n'
TEN = 10


@pytest.fixture(scope="module")
def base(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A project with a variant of the app's own, and an accepted baseline."""
    project = write_project(tmp_path_factory.mktemp("gate") / "app")
    project.change(
        "parity.toml",
        'variants = ["fp32", "int8-weights"]\n',
        f'variants = ["fp32", "app"]\n{OWN}',
    )
    project.change("tolerances.toml", "[mnn.int8-weights]", "[mnn.app]")
    assert project.parity("run").code == 0
    project.accept().check(0)
    return project


@pytest.fixture
def branch(base, tmp_path):
    """A branch of it, in which something can be changed."""
    return base.branch(tmp_path / "app")


def test_a_clean_build_ships_ten_times_out_of_ten(branch):
    pages = [branch.gated() for _ in range(TEN)]

    assert [page.code for page in pages] == [0] * TEN, pages
    for page in pages:
        assert page.text.startswith("SHIP"), page.text
        assert page.has("102 rows: 102 same"), page.text
        assert page.has("accepted"), page.text


def test_where_there_is_a_baseline_the_next_step_is_the_gate(branch):
    ended = branch.parity("run")

    assert ended.has("compares it with the baseline")
    assert not ended.has("parity baseline accept")


@pytest.mark.smoke
def test_a_converter_flag_that_costs_precision_is_seen_within_its_tolerance(branch):
    branch.change("parity.toml", "Bits=8", "Bits=4")

    page = branch.gated().check(1)
    assert page.text.startswith("DO NOT SHIP")
    assert page.has(f"{APP}/outputs worse")
    assert page.has("required atol")
    # Of the case that was changed, and of no other.
    assert page.text.count("worse\n") == page.text.count(f"{APP}/")
    assert page.has("files that differ: parity.toml")
    (written,) = branch.path.glob("reports/runs/*/gate.md")
    assert f"{APP}/outputs   worse" in written.read_text()
    # The run's own page gives it as a reason too.
    assert "is worse than in the baseline" in (
        written.with_name("report.html").read_text()
    )


def test_the_course_over_many_runs_marks_the_one_in_which_a_case_moved(branch):
    assert branch.parity("run").code == 0
    branch.change("parity.toml", "Bits=8", "Bits=4")
    assert branch.parity("run").code == 0
    one, two = sorted(path.parent.name for path in branch.reports)

    branch.parity("diff", "app", one, two).check(
        1,
        f"◆ {two} WORSE {APP}/layers",
        f"WORSE {APP}/outputs",
        "changed there: parity.toml",
        "nothing moved beyond noise in 2 cases",
    )

    alone = ("diff", "--last", "2", "--case")
    assert branch.parity(*alone, CASES[0]).code == 0
    branch.parity(*alone, "unet/*").check(
        2, "no case of these runs matches 'unet/*'; they have"
    )


def test_another_exporter_is_compared_by_what_its_values_are(branch):
    branch.change(
        "parity.toml",
        "dynamic_axes = []",
        'dynamic_axes = []\nexporter = "torchscript"\nopset = 14',
    )

    page = branch.gated()

    # It computes the same, so nothing is worse; what it has no names for is counted.
    page.check(0, "gone, 78 same")


def test_an_exporter_flag_that_the_converter_cannot_follow_is_the_reason(branch):
    branch.change("parity.toml", "dynamic_axes = []", "dynamic_axes = []\nopset = 24")

    page = branch.gated(code=2)

    page.check(
        1, f"1 {APP}/layers and 3 more convert", "it has no operator GroupNormalization"
    )
    assert not page.has(f"{CASES[0]}/outputs")


def test_a_slower_session_option_is_named(branch):
    branch.change(
        "parity.toml", "[backend.onnxruntime]", "[backend.onnxruntime]\nthreads = 1"
    )

    branch.gated().check(
        1, f"1 threads 2 → 1 1 result cannot be compared: {CASES[0]}/settings"
    )


def test_what_was_decided_stands_where_its_page_cannot_be_written(branch):
    assert branch.parity("run").code == 0
    (run,) = branch.path.glob("reports/runs/*")
    (run / "gate.md").mkdir()

    branch.parity("gate").check(0, "gate.md cannot be written")


def test_other_weights_cannot_be_said_and_a_case_that_is_gone_does_not_ship(branch):
    branch.change("parity.toml", 'variants = ["fp32", "app"]', 'variants = ["fp32"]')
    branch.change("parity.toml", OWN, "")
    tolerances = branch.path / "tolerances.toml"
    tolerances.write_text(tolerances.read_text().partition("[mnn.app]")[0])

    branch.gated().check(1, f"1 {APP} gone no such case now")

    branch.change("parity.toml", "seed = 0", "seed = 1")
    branch.gated().check(2, "CANNOT SAY", "1 the weights of vae_decoder changed")
    page = max(branch.path.glob("reports/runs/*/report.html"))
    assert "Nothing could be compared with the baseline" in page.read_text()


def test_a_run_of_some_cases_does_not_ship_for_one_reason(branch):
    assert branch.parity("run", CASES[0]).code == 0

    page = branch.parity("gate")

    page.check(1, "1 the run partial the run is a part of its suite and lacks 2 ")
    assert not page.has("gone no such case now")
    assert page.has("page reports/runs/")
    (html,) = branch.path.glob("reports/runs/*/report.html")
    assert "Only a part of the suite ran" in html.read_text()


def test_a_gap_that_expires_fails_a_plain_run_and_the_gate(branch):
    branch.change("tolerances.toml", '"quantized"', '"exact"')
    gap = (
        f'[[gap]]\ncase = "{APP}/*"\noutcome = "exceeds"\nwhy = "eight bits"\n'
        'who = "B. Owner"\nuntil = {}\n'
    )
    gaps = branch.path / "known_gaps.toml"
    gaps.write_text(gap.format("2999-12-31"))
    branch.gated().check(0, "exceeds, 2 checks; accepted by B. Owner, until 2999-12-31")

    gaps.write_text(gap.format("2020-01-31"))
    branch.parity("run").check(1, "gap expired 2020-01-31, accepted by B. Owner")

    branch.parity("gate").check(
        1, f"{APP}/layers stale-gap", f"{APP}/outputs stale-gap"
    )


def test_a_run_with_failures_is_accepted_only_with_a_reason(branch):
    branch.tighten()
    assert branch.parity("run").code == 1
    kept = (branch.path / "reports/baselines/app.json.xz").read_bytes()

    branch.accept().check(2, "2 checks fail in run", "--why")

    assert (branch.path / "reports/baselines/app.json.xz").read_bytes() == kept

    branch.parity("baseline", "accept", "--who", "A", "--why", "a demo").check(
        0, "moved"
    )

    assert branch.parity("baseline", "list").has("by A: a demo")
    branch.parity("gate").check(0, "SHIP")
    (page,) = branch.path.glob("reports/runs/*/report.html")
    assert "<h1>Ship</h1>" in page.read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["gate"], "There is no run 'last'", id="no-run"),
        pytest.param(["diff", "ap", "app"], "There is no run 'ap'", id="no-name"),
        pytest.param(["baseline", "accept", "7"], "There is no run '7'", id="accept"),
        pytest.param(["diff", "app", "app"], "are both run", id="itself"),
        pytest.param(["run", "--baseline", "ap"], "has app", id="no-baseline"),
    ],
)
def test_what_is_not_there_is_a_sentence_and_2(branch, args, words):
    branch.parity(*args).check(2, words)


def test_a_report_that_is_damaged_is_a_sentence_and_2(branch):
    folder = branch.path / "reports" / "runs" / "2026-01-01T00-00-00"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps({"schema": SCHEMA, "cases": 3}))

    branch.parity("gate", "--baseline", "app").check(2, "is damaged")
