"""The JSON Schema of the TOML files: it is as declared, and accepts the files here."""

import json
import tomllib
from datetime import date

import jsonschema
import pytest

from harness.core.case import REFERENCE
from harness.core.errors import SuiteError
from harness.core.runtime import runtimes
from harness.judge.policy import Bounds
from harness.judge.tolerance import BOUNDS
from harness.suite.json_schemas import schemas
from harness.suite.schema import BackendTable
from harness.suite.suite import load_suite
from tests.places import FIXTURES, ROOT
from tests.unit.suite.pipelines import UNET

SCHEMAS = {name: json.loads(text) for name, text in schemas().items()}
FILES = sorted(
    path
    for name in SCHEMAS
    for path in FIXTURES.rglob(name.replace(".schema.json", ".toml"))
)


def errors_of(name, text):
    """What a schema says of a TOML text; a date is a text to JSON."""
    data = json.loads(json.dumps(tomllib.loads(text), default=date.isoformat))
    found = jsonschema.Draft7Validator(SCHEMAS[name]).iter_errors(data)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_file_in_the_documentation_is_as_declared(name):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == schemas()[name], "run: python -m harness.suite.json_schemas docs"


BACKEND = {
    "variants": '["fp32"]',
    "device": '"cpu"',
    "threads": "1",
    "targets": '["here"]',
    "precision": '"low"',
    "tf32": "true",
    "hints": "{ optimization = 1 }",
    "provider_options": '{ precision = "FP32" }\ndevice = "openvino"',
    "cpu_nodes": '0.1\ndevice = "cuda"',
    "versions": '["1.0"]',
    "converter": '"1.0"',
    "api": '"module"',
}


def loads(path, backend, setting):
    """Whether a suite may give this setting to a backend."""
    backends = {"onnxruntime": "", "mnn": "", REFERENCE: "", backend: setting}
    tables = (f"[backend.{name}]\n{text}\n" for name, text in backends.items())
    path.write_text(UNET + "".join(tables), encoding="utf-8")
    try:
        load_suite(path)
    except SuiteError as error:
        assert "unknown key" in str(error)  # noqa: PT017
        return False
    return True


@pytest.mark.parametrize("key", BackendTable.__struct_fields__)
def test_a_key_that_backends_are_declared_to_have_is_read_by_one(key, tmp_path):
    path, setting = tmp_path / "parity.toml", f"{key} = {BACKEND[key]}"
    assert any(loads(path, name, setting) for name in (*runtimes(), REFERENCE))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_describes_every_key(name):
    jsonschema.Draft7Validator.check_schema(SCHEMAS[name])
    for kind in SCHEMAS[name]["$defs"].values():
        assert kind["description"], kind["title"]
        assert all(key["description"] for key in kind["properties"].values())


@pytest.mark.parametrize(
    "path", FILES, ids=[str(path.relative_to(FIXTURES)) for path in FILES]
)
def test_a_file_here_is_what_its_schema_says(path):
    name = path.with_suffix(".schema.json").name
    assert errors_of(name, path.read_text(encoding="utf-8")) == []


def test_there_are_files_for_every_schema():
    assert {path.with_suffix(".schema.json").name for path in FILES} == set(SCHEMAS)


MISTAKES = {
    "option": ("parity", "[component.net]\nwidth = 0.5", "0.5"),
    "key-of-another-kind": (
        "parity",
        "[pipeline.text2img]\nheight = 8\nwidth = 8\nguess_mode = true",
        "not valid under any",
    ),
    "group": ("tolerances", '[any.fp32]\noutput = "strict"', "not valid"),
    "tier": ("tolerances", '[any.fp32]\noutputs = "strikt"', "not valid"),
    "bound-of-a-probe": (
        "tolerances",
        '[net.any.fp32.probes."*"]\nlayers = { tier = "strict", sqnr = 3 }',
        "not valid",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_by_the_schema_too(mistake):
    name, text, said = MISTAKES[mistake]
    (error,) = errors_of(f"{name}.schema.json", text)
    assert said in error


def test_every_bound_of_a_tolerance_can_be_written():
    assert set(Bounds.__struct_fields__) == {"tier", "within", *BOUNDS}
