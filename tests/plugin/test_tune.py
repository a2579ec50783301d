"""`parity tune` measures once, proposes from records, writes, and checks."""

import shutil
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context

import pytest
from msgspec import structs

from harness.core.end_to_end import MIXED
from harness.core.outcome import Outcome
from harness.core.record import Failure
from harness.core.settings import Settings
from harness.core.waiting import awaited
from harness.engine.engine import Engine
from harness.engine.export_files import MODEL
from harness.engine.finished_run import load_report
from harness.engine.run_folder import RunFolder
from harness.engine.store import Store
from harness.plugins.fleet.cluster import Elsewhere, NodeSettings
from harness.plugins.tune import many
from harness.plugins.tune.many import Effort, ManyInputs
from harness.plugins.tune.record import usage_of
from harness.plugins.tune.worst import worst_inputs_text
from harness.suite.schema import Limits
from harness.suite.suite import load_suite
from tests.places import ROOT
from tests.plugin.project import CASES, PYTEST, write_project
from tests.unit.tunings import tuning_of

pytestmark = pytest.mark.slow

TUNE = ("--samples", "20", "--layers", "20")


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


def records_of(project):
    (folder,) = project.path.glob("reports/tuning/*")
    return load_report(folder.parent, str(folder)).records.values()


def test_every_case_is_measured_on_the_inputs_that_the_options_name(tuned):
    project, ended = tuned

    ended.check(0, "3 cases on 21 inputs (1 suite, 20 independent)")
    records = records_of(project)
    assert len(records) == 3
    for record in records:
        assert len(usage_of(record)) == 21
        assert all(one.sample.layers for one in record.tried)


def many_inputs(engine, folder, suite, effort):
    return ManyInputs(engine=engine, folder=folder, suite=suite, effort=effort)


def measured(project, store, effort):
    """The records of a project's cases in MNN on many inputs, and the run's folder."""
    suite = load_suite(project.path)
    cases = [case for case in suite.cases if case.backend == "mnn"]
    now = datetime.now(UTC)
    folder = RunFolder.create(project.path / "reports" / "tuning", now)
    with Engine(Store(root=store), suite.limits) as engine:
        started = many_inputs(engine, folder, suite, effort).start(cases)
        wait(started)
    return [one.result() for one in started if not one.exception()], folder


def test_what_was_drawn_leaves_the_store_again(tuned, tmp_path):
    # Other tests fill the shared store while this one counts.
    own = Store(root=tmp_path / "store")
    project = tuned[0].branch(tmp_path / "own")
    measured(project, own.root, Effort(samples=1, layers=1, seed=1))
    before = {entry.id for entry in own.entries()}

    (record, *_), _ = measured(project, own.root, Effort(samples=2, layers=1, seed=2))

    assert len(record.tried) == 3
    assert {entry.id for entry in own.entries()} == before


def test_the_worst_input_is_not_watched_where_the_suite_calls_it_too_large(
    project, store, monkeypatch
):
    monkeypatch.setattr(many, "independent", lambda *_: ())
    project.change("parity.toml", "width = 8\n", "width = 8\nlayers = false\n")

    records, _ = measured(project, store, Effort(samples=1, layers=0))

    for record in records:
        (only,) = record.tried
        assert (only.sample.id, only.sample.layers) == ("realistic-0", False)


def test_what_was_measured_outlives_what_ends_the_tuning(project, store, monkeypatch):
    run, ran = Engine.run, []

    def dying(engine, case):
        ran.append(case)
        if len(ran) > 4:
            raise KeyboardInterrupt
        return run(engine, case)

    monkeypatch.setattr(Engine, "run", dying)
    ended, folder = measured(project, store, Effort(samples=200, layers=0))
    project.parity("tune", "--from", "last", "--suite", ".").check(
        0, "2 cases on 101 inputs", "stopped: it was not tried on all inputs"
    )

    assert ended == []
    assert [len(one.tried) for one in folder.records().values()] == [101, 101]


def test_a_case_whose_runtime_dies_keeps_what_it_found_before(
    project, store, monkeypatch
):
    run = Engine.run

    def failing(engine, case):
        record = run(engine, case)
        if case.variant.name == "fp32" and len(case.samples) == 21:
            failure = Failure(outcome=Outcome.RUN, message="it ran out of memory")
            return replace(record, failure=failure)
        return record

    monkeypatch.setattr(Engine, "run", failing)
    (one, other), _ = measured(project, store, Effort(samples=21, layers=1))

    assert one.failure.message == "it ran out of memory"
    assert (len(usage_of(one)), len(usage_of(other))) == (2, 22)


def test_what_an_earlier_tuning_kept_is_no_sample_of_the_suite_and_counts_as_drawn(
    project, store
):
    """Else the second tuning would drop it, and count a draw less."""
    (first, _), _ = measured(project, store, Effort(samples=6, layers=0))
    drawn = [one for one in first.tried if one.why == "independent"]
    path, texts = project.path / "worst_inputs.toml", []
    for worst in (drawn[0], drawn[-1]):
        tried = tuple(
            structs.replace(one, usage=9.0 if one == worst else 0.0)
            for one in first.tried
        )
        tuning = tuning_of(replace(first, tried=tried))
        texts.append(worst_inputs_text(path, tuning, ()))
    other = next(case for case in CASES if "/mnn/" in case and case != first.case)
    path.write_text(texts[0].replace(first.case, other) + texts[1])

    (second, third), _ = measured(project, store, Effort(samples=3, layers=0))

    why = {one.sample.id: one.why for one in (*second.tried, *third.tried)}
    assert [*why.values()].count("independent") == 3
    assert why[drawn[0].sample.id] == "independent"
    assert why[drawn[-1].sample.id] == "kept"


def test_a_case_that_cannot_run_is_lost_alone_and_the_screen_says_so(project):
    project.change(
        "parity.toml",
        "[backend.onnxruntime]\n",
        '[backend.onnxruntime]\ndevice = "cuda"\n',
    )

    project.parity("tune", "--samples", "1", "--layers", "0").check(
        2, f"✗ {CASES[0]}: "
    )

    assert {one.case for one in records_of(project) if one.tried} == set(CASES[1:])


def test_what_would_change_is_shown_and_nothing_is_written(tuned):
    project, ended = tuned

    assert ended.has("+[vae_decoder.mnn.int8-weights]")
    assert ended.has("--write")
    assert "tuned" not in (project.path / "tolerances.toml").read_text()
    assert not (project.path / "worst_inputs.toml").exists()


@pytest.mark.usefixtures("without_mnn")  # so that nothing could run
def test_a_record_proposes_without_running_and_what_it_writes_is_kept(copy):
    before = (copy.path / "tolerances.toml").read_text()

    copy.parity("tune", "--from", "last", "--suite", ".", "--write").check(0)

    after = (copy.path / "tolerances.toml").read_text()
    assert after.startswith(before)
    assert after.count("# tuned 2") == 3
    again = copy.parity("tune", "--from", "last", "--suite", ".")
    assert again.has("Nothing would change.")


def test_named_cases_alone_are_tuned(copy):
    ended = copy.parity("tune", "--from", "last", "--suite", ".", "int8")

    ended.check(0, "1 case on 21 inputs")
    assert ended.has("+[vae_decoder.mnn.int8-weights]")
    assert not ended.has(".fp32]")


def test_the_build_that_was_tuned_runs_within_its_tuned_tolerances(copy):
    copy.parity("tune", "--from", "last", "--suite", ".", "--write")

    copy.parity("run").check(0)


def test_the_property_test_of_the_page_passes_in_a_suite_of_ones_own(project, store):
    """What docs/tuning.md shows, on the file that the project deploys."""
    page = (ROOT / "docs" / "tuning.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    (project.path / "test_property.py").write_text(code)
    case = load_suite(project.path).cases[0]
    with Engine(Store(root=store), Limits()) as engine:
        ((probes, _),) = engine.references(case)
    shutil.copy(probes.parent / MODEL, project.path / "vae_decoder.onnx")

    project.run(*PYTEST, "test_property.py").check(0, "1 passed")


def test_a_pipeline_that_is_named_is_tuned_on_pairs_of_prompt_and_seed(drawing):
    ended = drawing.parity("tune", "text2img", "--seeds", "20").check(0)
    words = "text2img: 1 case on 21 inputs (1 suite, 20 independent)"
    assert ended.has(words), ended.text
    assert ended.has("+[text2img.onnxruntime.fp32]")
    (record,) = records_of(drawing)
    assert len(usage_of(record)) == 21
    assert {row.what for row in record.rows} == {"latents", "image"}
    (folder,) = drawing.path.glob("reports/tuning/*")
    assert all((folder / name).is_file() for name in record.pipeline["pictures"])

    drawing.parity("tune", "--from", "last", "--write").check(0)

    assert not (drawing.path / "worst_inputs.toml").exists()
    drawing.parity("run", "text2img").check(0)


def test_any_executor_tunes_each_component_and_pipeline_to_the_same_errors(
    drawn, store, tmp_path
):
    """Processes that are started anew, as on another machine."""
    suite = load_suite(drawn[0].path)
    cases = [case for case in suite.tested if case.backend != MIXED]
    effort = Effort(samples=2, layers=1, seeds=2)
    executor = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    place = NodeSettings.of(Settings(store=str(store)), suite.limits)
    found = []
    for engine in (
        Engine(Store(root=store), suite.limits),
        Elsewhere(executor=executor, place=place, pictures=tmp_path / "pictures"),
    ):
        folder = RunFolder.create(tmp_path, datetime.now(UTC))
        with engine:
            started = many_inputs(engine, folder, suite, effort).start(cases)
            found.append([awaited(one) for one in started])

    assert len(found[0]) == len(cases) > 1
    for here, there in zip(*found, strict=True):
        assert here.failure is there.failure is None
        assert (here.tried, here.rows) == (there.tried, there.rows)


def test_a_tuning_of_an_earlier_version_is_refused_in_one_sentence(project):
    path = project.path / "reports" / "tuning" / "2026-11-21T10-00-00"
    path.mkdir(parents=True)
    (path / "tuning.json").write_text("{}")

    project.parity("tune", "--from", "last").check(
        2, "tuning.json is of an earlier version", "run `parity tune` again"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["--allow-looser"], "loosening needs its reason", id="no-reason"),
        pytest.param(["--from", "never"], "there is no tuning 'never'", id="no-tuning"),
        pytest.param(["--headroom", "0.5"], "headroom is a factor", id="no-headroom"),
        pytest.param(["unit"], "matches 'unit'", id="no-such-case"),
    ],
)
def test_bad_input_is_one_sentence(project, words, message):
    project.parity("tune", *words).check(2, message)
