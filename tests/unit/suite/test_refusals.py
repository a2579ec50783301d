"""Every key of every TOML file: what its JSON Schema refuses is refused in a sentence.

The schema is made from the same structs, by msgspec and not by the reader. So it says
independently which values a key takes.
"""

import json
import re
import tomllib
from functools import cache
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from harness.core.errors import SuiteError
from harness.core.toml_file import TomlFile
from harness.core.toml_json_schema import json_schema
from harness.core.toml_schema import parts_of, read
from harness.judge.known_gaps import GapEntry
from harness.judge.policy import Bounds, Stated, StatedOfComponent
from harness.judge.tolerance import BoundFields
from harness.plugins.browser.targets import BrowserTable
from harness.plugins.elsewhere.commands import CommandTable
from harness.plugins.pipelines import tables
from harness.suite import schema
from harness.suite.extra_inputs import WorstInput

KINDS: tuple[Any, ...] = (
    *(schema.SuiteFile, schema.SourceTable, schema.ExportTable, schema.ShapesTable),
    *(schema.ComponentTable, schema.InputsTable, schema.BackendTable, tables.AppTable),
    *(
        CommandTable,
        BrowserTable,
        schema.OwnVariantTable,
        schema.Limits,
        schema.FilesTable,
    ),
    *(*tables.PIPELINES.values(), tables.TextToImageT5, tables.PipelineTable),
    *(tables.ScheduledTable, Stated, StatedOfComponent, Bounds, BoundFields),
    *(GapEntry, WorstInput),
)
OTHERS = "any-other"
FIELDS = [(kind, field) for kind in KINDS for field in structs.fields(kind)]
KEYS: list[tuple[Any, Any]] = [
    # Other fields are a base's.
    *((kind, field) for kind, field in FIELDS if field.name in kind.__annotations__),
    # The keys of an open table that are no fields.
    *((kind, None) for kind in KINDS if kind.OTHERS is not Any),
]
NAMES = [f"{kind.__name__}.{f.encode_name if f else OTHERS}" for kind, f in KEYS]
NEEDED = {
    "height": "8",
    "width": "8",
    "command": "['x']",
    "case": "'x'",
    "outcome": "'exceeds'",
    "why": "'x'",
    "cases": "['x']",
    "label": "'x'",
    "profile": "'varied'",
    "index": "0",
    "seed": "0",
}
VALUES = (
    *("''", "'x'", "-1", "0", "1", "20", "1.5", "-inf", "true", "[]", "[1]"),
    *("['x']", "['x', 'x']", "[[]]", "[{}]", "{}", "{ a = 1 }", "{ a = 'b' }"),
    *("{ a = {} }", "{ a = { b = [] } }", "9007199254740993"),
)
NOT_JSON = ("07:32:00", "2027-01-31", "nan", "inf", f"1{'0' * 400}")

NARROWER = {
    *("low_threshold", "high_threshold", "strength", "steps", "mixed", "prompts"),
    "until",
}
"""Keys of which a schema cannot say everything: they must fit another key, say."""

WORDS = {
    "string": "text in quotes",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list in [ ]",
    "object": "a table",
}
schema_of = cache(json_schema)


def text_of(kind, changed):
    """A table with the keys that it must have, and some keys changed, at its end."""
    needed = [field.encode_name for field in structs.fields(kind) if field.required]
    lines = {key: NEEDED[key] for key in needed if key not in changed} | changed
    return "\n".join(f"{key} = {value}" for key, value in lines.items() if value)


def refusal(tmp_path, kind, text):
    """The message about a table, without its folder; empty if it is accepted."""
    path = tmp_path / "sheet.toml"
    path.write_text(text, encoding="utf-8")
    try:
        read(TomlFile.load(path).root, kind)
    except SuiteError as error:
        message = str(error)
    else:
        return ""
    assert message.startswith(f"{path}:")
    assert "\n" not in message
    return message.removeprefix(f"{path}:")


def allowed(rule, defs):
    """Yield the words, numbers and names of what a rule of a schema takes."""
    if "$ref" in rule:
        rule = defs[rule["$ref"].rpartition("/")[2]]
        yield from rule["properties"]
        if not rule.get("additionalProperties", True):
            yield "a table"
            return
    if word := WORDS.get(rule.get("type")):
        yield word
    yield from map(str, rule.get("enum", ()))
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if key in rule:
            yield from (f"{rule[key]:,}", f"{rule[key]:g}")
    if rule.get("uniqueItems"):
        yield "twice"
    if "minItems" in rule or "minLength" in rule:
        yield "is empty"
    for part in (*rule.get("anyOf", ()), rule.get("items"), *_inner(rule)):
        yield from allowed(part, defs) if part else ()


def _inner(rule):
    more = rule.get("additionalProperties")
    return [more] if isinstance(more, dict) else []


def rule_of(kind, field):
    """The part of the schema about a key, the key's name, and the definitions."""
    defs = schema_of(kind)["$defs"]
    part = defs[kind.__name__]
    if field is None:
        return part["additionalProperties"], OTHERS, defs
    return part["properties"][field.encode_name], field.encode_name, defs


@pytest.mark.parametrize(("kind", "field"), KEYS, ids=NAMES)
def test_a_value_that_the_schema_refuses_is_refused_in_words(tmp_path, kind, field):
    rule, key, defs = rule_of(kind, field)
    check = jsonschema.Draft7Validator({**rule, "$defs": defs})
    words = {*allowed(rule, defs), "texts, numbers", "must be text", "a date"}
    said = []
    for value in VALUES:
        text = text_of(kind, {key: value})
        message = refusal(tmp_path, kind, text)
        said.append(message)
        if check.is_valid(tomllib.loads(text)[key]):
            assert not message or key in NARROWER, value
            continue
        assert message.startswith(f"{len(text.splitlines())}: "), (value, message)
        assert any(word in message for word in words), (value, message)
    for value in NOT_JSON:
        text = text_of(kind, {key: value})
        message = refusal(tmp_path, kind, text)
        assert re.match(rf"{len(text.splitlines())}: .*, got |$", message), message
    for part in parts_of(field.type if field else kind.OTHERS):
        own = (getattr(part, "extra", None) or {}).get("sentence", "")
        assert any(own in message for message in said), own


WORDED = [
    (kind, field, word)
    for kind, field in KEYS
    for word in re.findall(r"enum': \[(.*?)\]", str(rule_of(kind, field)[0]))
]


@pytest.mark.parametrize(("kind", "field", "listed"), WORDED)
def test_a_word_with_a_typing_error_is_refused_with_the_right_one(
    tmp_path, kind, field, listed
):
    _, key, _ = rule_of(kind, field)
    for word in re.findall(r"'(.*?)'", listed):
        texts = (text_of(kind, {key: one}) for one in (f"'{word}q'", f"['{word}q']"))
        said = "".join(refusal(tmp_path, kind, text) for text in texts)
        assert f'"{word}q"; did you mean' in said or f"'{word}q' in" in said, said


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_with_a_typing_error_is_refused_with_the_right_one(tmp_path, kind):
    if not kind.__struct_config__.forbid_unknown_fields:
        return  # it has keys that are no fields
    for key in kind.__struct_encode_fields__:
        message = refusal(tmp_path, kind, text_of(kind, {f"{key}q": "1"}))
        said = f": unknown key '{key}q'; did you mean {key!r}?"
        assert message.endswith(said), message


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind, field in KEYS if field and field.required],
)
def test_a_key_that_must_be_there_is_missed_by_its_name(tmp_path, kind, field):
    message = refusal(tmp_path, kind, text_of(kind, {field.encode_name: ""}))
    assert message == f"1: the file has no {field.encode_name!r}, which it must have."


def test_the_tables_of_all_files_are_tried():
    named = json.dumps([json_schema(k) for k in (schema.SuiteFile, StatedOfComponent)])
    defs = set(re.findall(r'"#/\$defs/(\w+)"', named))
    assert defs - {kind.__name__ for kind in KINDS} == {"EndToEndTable", "TargetTable"}
