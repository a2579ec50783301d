"""`parity tune` measures once, proposes from records, writes, and checks."""

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context

import pytest

from harness.core.end_to_end import MIXED
from harness.core.outcome import Outcome
from harness.core.record import Failure
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.export_files import MODEL
from harness.engine.store import Store
from harness.plugins.fleet.cluster import NodeSettings
from harness.plugins.tune import measure
from harness.plugins.tune.elsewhere import tune_on
from harness.plugins.tune.measure import tune
from harness.plugins.tune.record import Effort
from harness.plugins.tune.worst import worst_inputs_text
from harness.suite.schema import Limits
from harness.suite.suite import load_suite
from tests.places import ROOT
from tests.plugin.project import CASES, PYTEST, write_project

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


def record_of(project):
    (path,) = project.path.glob("reports/tuning/*/tuning.json")
    return json.loads(path.read_text())


def test_every_case_is_measured_on_the_inputs_that_the_options_name(tuned):
    project, ended = tuned

    ended.check(0, "3 cases on 21 inputs (1 suite, 20 independent)")
    record = record_of(project)
    assert len(record["cases"]) == 3
    for case in record["cases"]:
        assert len(case["usage"]) == len(case["layers"]) == 21


def measured(project, store, effort, keep=lambda _: None):
    """Measure a project's cases in MNN within this process."""
    suite = load_suite(project.path)
    cases = [case for case in suite.cases if case.backend == "mnn"]
    now = datetime(2026, 11, 21, tzinfo=UTC)
    return tune(suite, cases, effort, Settings(store=str(store)), now, keep=keep)


def test_what_was_drawn_leaves_the_store_again(tuned, tmp_path):
    # Other tests fill the shared store while this one counts.
    own = Store(root=tmp_path / "store")
    measured(tuned[0], own.root, Effort(samples=1, layers=1, seed=1))
    before = {entry.id for entry in own.entries()}

    tuning, _ = measured(tuned[0], own.root, Effort(samples=2, layers=1, seed=2))

    assert len(tuning.tried["vae_decoder"]) == 3
    assert {entry.id for entry in own.entries()} == before


def test_the_worst_input_is_not_watched_where_the_suite_calls_it_too_large(
    project, store, monkeypatch
):
    monkeypatch.setattr(measure, "independent", lambda *_: ())
    project.change("parity.toml", "width = 8\n", "width = 8\nlayers = false\n")

    tuning, _ = measured(project, store, Effort(samples=1, layers=0))

    for case in tuning.cases.values():
        assert list(case.usage) == ["realistic-0"]
        assert case.layers == ()


def test_what_was_measured_outlives_what_ends_the_tuning(tuned, store, monkeypatch):
    run, kept = Engine.run, []

    def dying(engine, case):
        if len(kept) == 2:
            raise KeyboardInterrupt
        return run(engine, case)

    monkeypatch.setattr(Engine, "run", dying)
    effort = Effort(samples=200, layers=0)
    tuning, failed = measured(tuned[0], store, effort, kept.append)

    assert failed == ("stopped: nothing further was tuned",)
    assert [len(case.usage) for case in tuning.cases.values()] == [101, 101]
    assert tuning.cases.keys() == kept[-1].cases.keys()


def test_a_case_whose_runtime_dies_keeps_what_it_found_before(
    tuned, store, monkeypatch
):
    run = Engine.run

    def failing(engine, case):
        record = run(engine, case)
        if case.variant.name == "fp32" and len(case.samples) == 21:
            failure = Failure(outcome=Outcome.RUN, message="it ran out of memory")
            return replace(record, failure=failure)
        return record

    monkeypatch.setattr(Engine, "run", failing)
    tuning, failed = measured(tuned[0], store, Effort(samples=21, layers=1))

    assert failed == ("vae_decoder/mnn/fp32: it ran out of memory",)
    assert [len(case.usage) for case in tuning.cases.values()] == [2, 22]


def test_what_an_earlier_tuning_kept_is_no_sample_of_the_suite_and_counts_as_drawn(
    project, store
):
    """Else the second tuning would drop it, and count a draw less."""
    first, _ = measured(project, store, Effort(samples=6, layers=0))
    drawn = [one for one in first.tried["vae_decoder"] if one.why == "independent"]
    usage = {one.sample.id: float(at) for at, one in enumerate(drawn)}
    case = next(iter(first.cases.values()))
    for worst in (drawn[0], drawn[-1]):
        case = replace(case, usage={**dict.fromkeys(usage, 0.0), worst.sample.id: 9.0})
        path = project.path / "worst_inputs.toml"
        name = case.record.case
        text = worst_inputs_text(path, replace(first, cases={name: case}), ())
        other = CASES[2] if name == CASES[1] else CASES[1]
        path.write_text(text.replace(name, other) if worst is drawn[0] else text)

    second, _ = measured(project, store, Effort(samples=3, layers=0))

    why = {one.sample.id: one.why for one in second.tried["vae_decoder"]}
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

    measured = {case["record"]["case"] for case in record_of(project)["cases"]}
    assert measured == set(CASES[1:])


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
    (case,) = record_of(drawing)["cases"]
    assert len(case["usage"]) == 21
    assert set(case["record"]["probes"]["what"]) == {"latents", "image"}

    drawing.parity("tune", "--from", "last", "--write").check(0)

    assert not (drawing.path / "worst_inputs.toml").exists()
    drawing.parity("run", "text2img").check(0)


def test_any_executor_tunes_each_component_and_pipeline_to_the_same_errors(
    drawn, store
):
    """Processes that are started anew, as on another machine."""
    suite = load_suite(drawn[0].path)
    cases = [case for case in suite.tested if case.backend != MIXED]
    effort = Effort(samples=2, layers=1, seeds=2)
    now, settings = datetime.now(UTC), Settings(store=str(store))
    here, _ = tune(suite, cases, effort, settings, now)
    executor = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    place, kept = NodeSettings.of(settings, suite.limits), []

    there, failed = tune_on(
        executor, place, suite, cases, effort=effort, now=now, keep=kept.append
    )

    assert failed == ()
    assert list(there.cases) == [case.id for case in cases]
    assert there.tried == here.tried
    assert there.versions == here.versions
    for name, case in there.cases.items():
        assert case.usage == here.cases[name].usage
        assert case.record.rows == here.cases[name].record.rows
    # What was measured is kept whenever a component or a pipeline has ended.
    assert len(kept) == len({case.subject for case in cases}) > 1


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
