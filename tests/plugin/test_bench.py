"""Speed beside PyTorch's: by the command, by pytest, and not at all under xdist."""

import json
import sys

import pytest

from tests.places import ROOT
from tests.plugin.project import CASES, rewrite

pytestmark = pytest.mark.slow

PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
PAGE = ROOT / "docs" / "ci.md"
BENCH = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
XNNPACK = (
    "parity.toml",
    "[backend.onnxruntime]\n",
    '[backend.onnxruntime]\ndevice = "xnnpack"\n',
)


@pytest.fixture
def timed(project):
    """A project with a benchmark beside its parity test."""
    (project.path / "test_bench.py").write_text(BENCH)
    return project


def timings(project):
    (path,) = (project.path / "reports" / "runs").glob("*/bench.json")
    return {one["case"]: one for one in json.loads(path.read_text())["benchmarks"]}


def test_the_command_times_every_file_beside_pytorch(project):
    ended = project.parity("bench", "--rounds", "2").check(0)
    made = timings(project)
    assert list(made) == ["vae_decoder/pytorch/eager", *CASES]
    for one in made.values():
        assert min(one["runs"]) > 0
        assert len(one["runs"]) >= 2 * 3
        assert one["size_bytes"] > 0
        assert one["memory_bytes"] > 0
    assert ended.has("2 threads")
    assert ended.has("no run of this suite on this machine to add to: there is no run")


def test_times_go_into_the_run_of_the_same_suite_where_the_gate_reads_them(project):
    project.parity("run").check(0)
    before = project.report

    project.parity("bench", "onnxruntime", "--rounds", "2").check(0)

    after = project.report
    (own,) = [one for one in after.pop("benchmarks") if one["case"] == CASES[0]]
    assert own["metric"] == "latency_ms"
    assert len(own["runs"]) >= 2 * 3
    assert own["ran"]["backend"] == "onnxruntime"
    assert after == before
    assert not [*project.path.glob("reports/runs/*/bench.json")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda report: report["environment"].update(id="00000000"),
            "was made on another machine, whose times are never put beside",
        ),
        (
            lambda report: report["environment"]["packages"].update(MNN="3.0.0"),
            "was made with other versions (MNN 3.0.0 → ",
        ),
        (
            lambda report: [
                file.update(digest="0" * 32)
                for case in report["cases"]
                for file in case["artifacts"].values()
            ],
            f"compared other files: {CASES[0]}",
        ),
    ],
    ids=["machine", "versions", "files"],
)
def test_a_run_of_another_machine_or_build_is_not_added_to(project, change, said):
    project.parity("run").check(0)
    rewrite(*project.reports, change)

    project.parity("bench", CASES[0], "--rounds", "1").check(0, said)

    assert "benchmarks" not in project.report


def test_a_runtime_that_is_not_what_was_asked_for_has_no_row(project):
    project.change(*XNNPACK)

    project.parity("bench", "onnxruntime", "--rounds", "1").check(
        2, "XnnpackExecutionProvider"
    )

    assert [*timings(project)] == ["vae_decoder/pytorch/eager"]


def test_a_build_is_not_slower_than_itself(project):
    ended = project.parity("bench", CASES[0], "--against", CASES[0], "--rounds", "6")

    assert ended.has(f"of again:{CASES[0]}"), ended.text
    assert ended.has("6 rounds")


def test_too_few_rounds_cannot_tell(project):
    project.parity("bench", CASES[0], "--against", CASES[1], "--rounds", "2").check(
        2, "too few rounds to tell"
    )


def test_pytest_benchmark_times_each_file_in_a_group_of_the_component(timed):
    chosen = ("-m", "parity and bench", "--benchmark-json=b.json")

    timed.run(*PYTEST, *chosen).check(0)

    told = json.loads((timed.path / "b.json").read_text())["benchmarks"]
    assert [one["param"] for one in told] == ["vae_decoder/pytorch/eager", *CASES]
    assert {one["group"] for one in told} == {"vae_decoder, 2 threads"}
    for one in told:
        assert one["stats"]["rounds"] >= 5
        assert 0 < one["stats"]["min"] < 10
        assert one["extra_info"]["size_bytes"] > 0
        assert one["extra_info"]["memory_bytes"] > 0
    assert told[1]["extra_info"]["ran"]["backend"] == "onnxruntime"


def test_the_process_of_pytest_runs_the_file_and_is_as_before(timed):
    (timed.path / "conftest.py").write_text(
        "import sys, pytest, torch\n"
        "@pytest.fixture(autouse=True)\n"
        "def as_before():\n"
        "    torch.set_num_threads(1)\n"
        "    had = torch.random.get_rng_state().tolist()\n"
        "    yield\n"
        "    assert {'diffusers', 'onnxruntime'} & set(sys.modules)\n"
        "    assert torch.get_num_threads() == 1\n"
        "    assert torch.random.get_rng_state().tolist() == had\n"
    )

    timed.run(*PYTEST, "-m", "bench", "-k", "onnxruntime or eager").check(0)


def test_a_runtime_that_is_not_what_was_asked_for_is_not_timed_in_pytest(timed):
    timed.change(*XNNPACK)

    timed.run(*PYTEST, "-m", "bench", "-k", "onnxruntime").check(
        1, "XnnpackExecutionProvider"
    )


@pytest.mark.parametrize(
    ("variable", "words", "sentence"),
    [
        pytest.param("", ("-n", "1"), "do not run under pytest-xdist", id="xdist"),
        pytest.param(
            "PYTEST_XDIST_WORKER=gw1",
            (),
            "do not run under pytest-xdist",
            id="child-of-a-worker",
        ),
        pytest.param(
            "", ("-p", "no:benchmark"), "pytest-benchmark, which is", id="left-out"
        ),
    ],
)
def test_where_nothing_would_be_reported_it_fails_and_says_so(
    timed, variable, words, sentence
):
    command = ["env", variable, *PYTEST] if variable else PYTEST

    timed.run(*command, "-m", "parity and bench", "-k", "eager", *words).check(
        1, sentence
    )

    assert not list(timed.path.glob("reports/runs/*"))


EAGER = ("-m", "parity and bench", "-k", "eager")


def test_a_benchmark_that_is_switched_off_runs_its_file(timed):
    timed.run(*PYTEST, *EAGER, "--benchmark-disable").check(0, "1 passed")


def test_benchmarks_alone_run_no_case(timed):
    timed.run(*PYTEST, "-k", "eager or test_parity", "--benchmark-only").check(
        0, "1 passed"
    )

    assert not list(timed.path.glob("reports/runs/*"))


def test_a_skipped_benchmark_loads_nothing(timed):
    timed.run(*PYTEST, *EAGER, "--benchmark-skip", "--parity-store=own").check(
        0, "1 skipped"
    )

    assert not (timed.path / "own").exists()


def test_a_mark_of_the_test_names_the_group(timed):
    page = timed.path / "test_bench.py"
    page.write_text(
        page.read_text().replace(
            "@pytest.mark.bench\n",
            "@pytest.mark.bench\n@pytest.mark.benchmark(group='own', min_rounds=7)\n",
        )
    )

    timed.run(*PYTEST, *EAGER, "--benchmark-json=b.json").check(0)

    (told,) = json.loads((timed.path / "b.json").read_text())["benchmarks"]
    assert told["group"] == "own"
    assert told["stats"]["rounds"] >= 7


def test_a_missing_runtime_that_is_required_fails(timed):
    (timed.path / "conftest.py").write_text("import sys\nsys.modules['MNN'] = None\n")
    words = ("-m", "parity and bench", "-k", "mnn", "--parity-require=mnn")

    timed.run(*PYTEST, *words).check(1, "mnn is not installed, and is required")


def test_times_that_cannot_be_written_are_a_sentence_and_2(project):
    (project.path / "reports").write_text("not a folder")

    project.parity("bench", CASES[0], "--rounds", "1").check(2, "cannot be written to")


def test_a_pipeline_is_timed_when_it_is_named(drawing):
    drawing.parity("bench", "text2img", "--rounds", "1").check(0)

    made = timings(drawing)
    assert next(iter(made)) == "text2img/pytorch/eager"
    assert len(made) > 1
    assert all(min(one["runs"]) > 0 for one in made.values())
