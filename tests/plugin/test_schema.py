"""docs/report.schema.json, held against what runs really leave."""

import json
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest

from harness.commands.bench.record import benchmarks
from harness.commands.bench.timing import Round, Timing
from harness.engine.run_folder import SCHEMA

PATH = Path(__file__).parents[2] / "docs" / "report.schema.json"


@pytest.fixture(scope="module")
def schema():
    return json.loads(PATH.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["failing", "drawn"])
def told(request):
    """What a run of components, and one of a pipeline, left."""
    project, _ = request.getfixturevalue(request.param)
    (path,) = project.reports
    return json.loads(path.read_text(encoding="utf-8"))


def validator(schema, name=None):
    part = schema if name is None else {**schema, "$ref": f"#/$defs/{name}"}
    kept = ("$schema", "$defs", "$ref")
    inner = part if name is None else {key: part[key] for key in kept}
    return jsonschema.Draft202012Validator(inner)


def objects(table):
    """A table's rows, each with the names of its columns."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


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
    made = Timing(
        subject="unet/mnn/fp32",
        component="unet",
        runtime="mnn",
        how="fp32",
        threads=2,
        rounds=(turn,),
    )
    timed = {**told, "benchmarks": list(benchmarks([made]))}

    errors = list(validator(schema).iter_errors(timed))

    assert [f"{error.json_path}: {error.message[:200]}" for error in errors] == []


def test_every_row_is_what_its_columns_say(schema, told):
    probe, value = validator(schema, "probe"), validator(schema, "value")
    for case in told["cases"]:
        for row in objects(case["probes"]):
            probe.validate(row)
        for row in objects(case["rows"]):
            value.validate(row)


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
            lambda data: data["cases"][0]["rows"]["rows"][0].pop(), id="cell-gone"
        ),
    ],
)
def test_a_damaged_report_is_refused(schema, told, damage):
    data = deepcopy(told)
    damage(data)

    assert not validator(schema).is_valid(data)
