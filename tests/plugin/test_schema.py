"""docs/report.schema.json is valid for the reports of real runs."""

import json
from copy import deepcopy

import jsonschema
import pytest

from harness.core.environment import environment
from harness.engine.run_folder import SCHEMA
from harness.plugins.bench.record import benchmarks
from harness.plugins.bench.timing import Round, Subject, Timing
from harness.suite.suite import load_suite
from tests.places import DIGITS, ROOT

PATH = ROOT / "docs" / "report.schema.json"


@pytest.fixture(scope="module")
def schema():
    return json.loads(PATH.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["failing", "drawn"])
def told(request):
    """What a run of components, and one of a pipeline, left."""
    project, _ = request.getfixturevalue(request.param)
    (path,) = project.reports
    return json.loads(path.read_text(encoding="utf-8"))


def validator(schema):
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_is_one_and_of_the_version_that_is_written(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["const"] == SCHEMA


def test_a_report_is_what_its_schema_says(schema, told):
    errors = list(validator(schema).iter_errors(told))
    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


def test_a_report_with_times_is_what_its_schema_says(schema, told):
    turn = Round(
        load_s=0.5,
        first_s=1.0,
        runs_s=(0.1, 0.2),
        cores=1.0,
        withheld=0.0,
        base_bytes=100,
        peak_bytes=150,
        size_bytes=7,
        ran={},
    )
    (case,) = load_suite(DIGITS).select(("unet/mnn/fp32",))
    made = Timing(
        subject=Subject(case=case),
        rounds=(turn,),
        node="one",
        environment=environment(),
    )
    timed = {**told, "benchmarks": list(benchmarks([made]))}

    errors = list(validator(schema).iter_errors(timed))

    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data.pop("exit_code"), id="field-gone"),
        pytest.param(lambda data: data.update(verdict="good"), id="field-unknown"),
        pytest.param(
            lambda data: data["verdicts"][0].update(outcome="fine"),
            id="outcome-unknown",
        ),
        pytest.param(
            lambda data: data["cases"][0]["rows"].pop("rms"), id="column-gone"
        ),
        pytest.param(
            lambda data: data["cases"][0]["rows"]["rms"].append(None), id="cell-wrong"
        ),
    ],
)
def test_a_damaged_report_is_refused(schema, told, damage):
    data = deepcopy(told)
    damage(data)
    assert not validator(schema).is_valid(data)
