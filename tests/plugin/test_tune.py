"""`parity tune`: measured once, proposed from records, written, and checked."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.commands.tune import tune, worker
from harness.commands.tune.plan import Effort
from harness.engine.artifacts import Makers
from harness.engine.store import Store
from harness.engine.worker_pool import Workshop
from harness.judge.policy import Policy
from harness.suite.suite import load_suite
from tests.plugin.project import CASES, write_project

TUNE = ("--samples", "20", "--search", "4", "--layers", "20")


@pytest.fixture(scope="module")
def tuned(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """A project of which every case was tuned, on very few inputs."""
    project = write_project(tmp_path_factory.mktemp("tuned"))
    return project, project.parity("tune", *TUNE)


@pytest.fixture
def copy(tuned, project):
    """A project of one's own with that tuning's record."""
    shutil.copytree(tuned[0].path / "reports", project.path / "reports")
    return project


def record_of(project):
    (path,) = project.path.glob("reports/tuning/*/tuning.json")
    return json.loads(path.read_text())


def test_every_case_is_measured_on_the_inputs_that_were_asked_for(tuned):
    project, ended = tuned

    assert ended.code == 0, ended.text
    assert ended.has("3 cases on 25 inputs (1 suite, 20 independent, 4 searched)")
    record = record_of(project)
    assert len(record["cases"]) == 3
    for case in record["cases"]:
        assert len(case["points"]) == 25
        assert len(case["layers"]) >= 21
        assert {noise["kind"] for noise in case["noise"]} >= {"repeat", "threads 1"}
        assert len(case["trade"]["atol"]) == len(case["trade"]["rtol"])


def plan_of(project, store, effort, kept):
    """What one process is told that measures a project's cases in MNN."""
    suite = load_suite(project.path)
    cases = [case for case in suite.cases if case.backend == "mnn"]
    workshop = Workshop(timeout_s=100)
    try:
        makers = Makers(Store(root=store), workshop, None)
        policy = Policy.load(suite.tolerances_path)
        return tune._plan(makers, policy, cases, effort, kept)
    finally:
        workshop.close()


def test_a_second_process_finds_what_pytorch_made_of_outputs(
    tuned, store, tmp_path, monkeypatch
):
    """Builds that do not fit into memory together are held against one reference."""
    record, recorded = worker.record_reference, []

    def counting(*args, layers, **kwargs):
        recorded.append(layers)
        return record(*args, layers=layers, **kwargs)

    monkeypatch.setattr(worker, "record_reference", counting)
    effort = Effort(samples=6, searched=2, layers=2)
    plan = plan_of(tuned[0], store, effort, tmp_path)
    first, second = (
        worker.measure_component(replace(plan, candidates=(candidate,)))
        for candidate in plan.candidates
    )

    assert len(first.tried) == len(second.tried) >= 7
    assert 6 <= recorded.count(False) <= 6 + 2 * effort.searched
    assert recorded.count(True) >= 2


def test_the_worst_input_is_not_watched_where_the_suite_calls_it_too_large(
    project, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(worker, "independent", lambda *_: ())
    project.change("parity.toml", "width = 8\n", "width = 8\nlayers = false\n")
    effort = Effort(samples=1, searched=0, layers=0)
    found = worker.measure_component(plan_of(project, store, effort, tmp_path))

    for measured in found.cases.values():
        assert [point.sample for point in measured.points] == ["realistic-0"]
        assert measured.layers == ()


def test_what_was_found_outlives_the_process_that_dies_of_its_last_step(
    tuned, store, tmp_path, monkeypatch
):
    plan = plan_of(tuned[0], store, Effort(samples=2, searched=0, layers=1), tmp_path)
    plan = replace(plan, candidates=plan.candidates[:1])
    monkeypatch.setattr(worker, "THREADS", (1, "none"))

    workshop = SimpleNamespace(job=lambda *_, **__: worker.measure_component(plan))
    failed = []
    (found,) = tune._measured(workshop, plan, failed, print)

    assert [words.partition(": ")[0] for words in failed] == ["vae_decoder/mnn/fp32"]
    (measured,) = found.cases.values()
    assert len(measured.points) == len(found.tried) == 3
    assert len(measured.layers) >= 2


def test_what_an_earlier_tuning_kept_is_no_sample_of_the_suite_and_counts_as_drawn(
    tuned, store, tmp_path
):
    """Else the second tuning would drop it, and count a draw less."""
    effort = Effort(samples=6, searched=0, layers=0)
    plan = plan_of(tuned[0], store, effort, tmp_path)
    first = worker.measure_component(plan)
    drawn = [one.sample for one in first.tried if one.why == "independent"]
    later = Effort(samples=3, searched=0, layers=0)
    kept = replace(plan, suite=(*plan.suite, drawn[0], drawn[-1]), effort=later)

    second = {one.sample.id: one.why for one in worker.measure_component(kept).tried}

    assert [*second.values()].count("independent") == 3
    assert second[drawn[0].id] == "independent"
    assert second[drawn[-1].id] == "kept"


def test_a_case_that_cannot_run_is_lost_alone_and_the_screen_says_so(project):
    project.change(
        "parity.toml",
        "[backend.onnxruntime]\n",
        '[backend.onnxruntime]\ndevice = "cuda"\n',
    )

    ended = project.parity("tune", "--samples", "1", "--search", "0", "--layers", "0")

    assert ended.code == 2, ended.text
    assert ended.has("vae_decoder: its 3 cases are measured one by one now")
    measured = {case["record"]["case"] for case in record_of(project)["cases"]}
    assert measured == set(CASES[1:])


def test_what_would_change_is_shown_and_nothing_is_written(tuned):
    project, ended = tuned

    assert ended.has("+[vae_decoder.mnn.int8-weights]")
    assert ended.has("atol that outputs need at rtol")
    assert ended.has("--write")
    assert "tuned" not in (project.path / "tolerances.toml").read_text()
    assert not (project.path / "worst_inputs.toml").exists()


def test_a_record_proposes_without_running_and_what_it_writes_is_kept(copy):
    before = (copy.path / "tolerances.toml").read_text()
    copy.hide("MNN")  # so that nothing could run

    ended = copy.parity("tune", "--from", "last", "--suite", ".", "--write")

    assert ended.code == 0, ended.text
    after = (copy.path / "tolerances.toml").read_text()
    assert after.startswith(before)
    assert after.count("# tuned 2") == 3
    again = copy.parity("tune", "--from", "last", "--suite", ".")
    assert again.has("Nothing would change.")


def test_the_build_that_was_tuned_runs_within_its_tuned_tolerances(copy):
    copy.parity("tune", "--from", "last", "--suite", ".", "--write")

    ended = copy.parity("run")

    assert ended.code == 0, ended.text
    checked = copy.parity("tune", "--check", "last")
    assert checked.code == 0, checked.text
    assert checked.has("6 of 6 checks")


def test_a_run_that_has_moved_towards_its_limit_is_told_before_it_leaves_it(copy):
    worst = max(
        point["floors"]
        for case in record_of(copy)["cases"]
        if case["record"]["case"] == "vae_decoder/mnn/fp32"
        for point in case["points"]
    )
    copy.change(
        "tolerances.toml",
        '[mnn.fp32]\noutputs = "standard"',
        f'[mnn.fp32]\nwhy = "x"\noutputs = {{ floors = {1.1 * worst} }}',
    )

    tuning = next((copy.path / "reports" / "tuning").iterdir()).name
    ended = copy.parity("tune", "--check", tuning, "--suite", ".")

    assert ended.code == 1, ended.text
    assert ended.has("! vae_decoder/mnn/fp32/outputs has moved towards its limit")
    assert ended.has("5 of 6 checks")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--allow-looser"], "loosening needs its reason", id="no-reason"),
        pytest.param(["--from", "never"], "there is no tuning 'never'", id="no-tuning"),
        pytest.param(["--check", "never"], "There is no run 'never'", id="no-run"),
        pytest.param(["--headroom", "0.5"], "headroom is a factor", id="no-headroom"),
        pytest.param(["unit"], "matches 'unit'", id="no-such-case"),
    ],
)
def test_bad_input_is_one_sentence(project, words, message):
    ended = project.parity("tune", *words)

    assert ended.code == 2
    assert ended.has(message)
    assert "Traceback" not in ended.text
