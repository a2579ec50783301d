"""Claims of the pages that a machine can try, beside those of test_docs.py.

A setting, a table, a file, a module, a default, an outcome, an exit code and an import
that a page names must exist. `test_screens.py` runs commands and compares what they
print with what the pages show.
"""

import ast
import importlib
import json
import re
import tomllib

import jsonschema
import pytest

import harness
from harness.commands.cli import cli
from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY, Outcome
from harness.core.runtime import runtimes
from tests.places import ROOT
from tests.plugin.test_docs import DOCS, PAGES, each_page

FILES = ("parity", "tolerances", "known_gaps")
SCHEMAS = [
    json.loads((DOCS / f"{name}.schema.json").read_text("utf-8")) for name in FILES
]
KEYS: dict[str, list[dict]] = {}
for schema in SCHEMAS:
    for table in schema["$defs"].values():
        for key, rule in table["properties"].items():
            KEYS.setdefault(key, []).append({**rule, "$defs": schema["$defs"]})
# Keys of pytest's and Python's own files, and names of another program's settings.
OTHERS = {"addopts", "parity_store", "theirs"}
TOP = {"backend", "component", "export", "files", "inputs", "limits", "pipeline"}
TOP |= {"shapes", "source", "target", "variant", "gap", "mixed"}
OF_OTHERS = {"tool", "project"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
TABLE = re.compile(r"\[+([\w.…*\"@-]+)\]+")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
FOLDERS = "benchmarks|docs|fixtures|harness|reports|tests"
# Made by a run, so not in a repository that is fresh.
OF_A_RUN = ("reports/runs", "reports/plans", "reports/tuning", "reports/versions-")
OF_A_RUN += ("reports/baselines/<",)
MODULE = re.compile(
    r"(?:harness\.)?((?:core|measure|judge|recipes|suite|engine|runtimes|report"
    r"|commands|plugins)(?:\.(?!json$|html$|md$|toml$)\w+)+)"
)
OF_PYTEST = {4, 5}
# README.md shows them before they are there.
COMING = set() if "check" in harness.__all__ else {"check", "capture"}


def text_of(page):
    return page.read_text(encoding="utf-8")


def codes(text):
    """Return what stands as code within the sentences of a page."""
    spans = re.findall(r"`([^`]+)`", FENCED.sub("", text))
    return [" ".join(span.split()) for span in spans]


def wrong_settings(text):
    """Return each `key = value` that no file of a suite could have."""
    wrong = []
    for code in codes(text):
        if not re.match(r"[a-z_]\w* = ", code) or "…" in code:
            continue
        try:
            setting = tomllib.loads(re.sub(r"\b([A-Z]{2,})\b", r'"\1"', code))
        except tomllib.TOMLDecodeError:
            wrong.append(code)
            continue
        ((key, value),) = setting.items()
        rules = KEYS.get(key, [])
        fits = any(jsonschema.Draft7Validator(rule).is_valid(value) for rule in rules)
        # A recipe may have keys of its own, such as `pooling`.
        if not fits and key not in OTHERS | own_keys() | runtimes().keys():
            wrong.append(code)
    return wrong


def own_keys():
    """Return the keys that recipes read of their tables."""
    recipes = ROOT / "harness" / "recipes"
    read = "".join(text_of(path) for path in sorted(recipes.rglob("*.py")))
    return set(re.findall(r"[\"'](\w+)[\"']", read))


def wrong_tables(text):
    """Return each `[table]` that no file of a suite could have."""
    tables = [TABLE.fullmatch(code) for code in codes(text) if code[:1] == "["]
    names = {found[1].split(".")[0] for found in tables if found}
    placeholders = {name for name in names if name.isupper() or name == "…"}
    return names - TOP - OF_OTHERS - placeholders - runtimes().keys() - EXTRAS.keys()


def absent_files(text):
    """Return each file or folder of this repository that is named and not there."""
    named = [code for code in codes(text) if re.match(rf"({FOLDERS})/\S*$", code)]
    named += [
        word
        for code in codes(text)
        for word in code.split()
        if re.match(r"(benchmarks|docs|tests)/\S+\.py$", word)
    ]
    return [
        name
        for name in dict.fromkeys(named)
        if not name.startswith(OF_A_RUN) and not (ROOT / name).exists()
    ]


def is_module(name):
    """Whether a dotted name is a module, or what a module has."""
    parts = f"harness.{name}".split(".")
    for count in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def defaults(command, name):
    """Yield the default of an option in each command that has it."""
    for parameter in command.params:
        if name in parameter.opts:
            yield parameter.default
    for one in getattr(command, "commands", {}).values():
        yield from defaults(one, name)


def wrong_defaults(text):
    """Return each (`--option number`) in brackets that is no command's default."""
    stated = re.findall(r"\(`(--[\w-]+) ([\d.]+)`\)", text)
    return [
        (name, value)
        for name, value in stated
        if float(value) not in [*defaults(cli, name)]
    ]


def wrong_outcomes(text):
    """Return each word after `ends in`, `ends as` or `the outcome` that is none."""
    said = r"(?:ends?\s+(?:the\s+case\s+)?(?:in|as)|the\s+outcome)\s+`([^`]+)`"
    return {*re.findall(said, text)} - {*map(str, Outcome)}


def exit_codes(text):
    """Return the numbers that a page gives as exit codes."""
    return {
        int(code) for code in re.findall(r"exit\s+code\s+(?:is\s+)?\*{0,2}(\d)", text)
    }


def unknown_imports(text):
    """Return each name that a block of Python imports of the harness, and is not."""
    wrong = []
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("harness"):
                wrong += [
                    f"{node.module}.{name.name}"
                    for name in node.names
                    if not is_module(f"{node.module}.{name.name}"[len("harness.") :])
                ]
        called = set(re.findall(r"\bharness\.([a-z]\w*)\(", block))
        wrong += sorted(called - {*harness.__all__} - COMING)
    return wrong


@each_page
def test_every_setting_of_a_page_is_one(page):
    assert wrong_settings(text_of(page)) == []


@each_page
def test_every_table_of_a_page_is_one(page):
    assert wrong_tables(text_of(page)) == set()


@each_page
def test_every_file_of_a_page_is_there(page):
    assert absent_files(text_of(page)) == []


@each_page
def test_every_module_of_a_page_is_there(page):
    named = [MODULE.fullmatch(code) for code in codes(text_of(page))]
    assert [one[1] for one in named if one and not is_module(one[1])] == []


@each_page
def test_every_default_of_a_page_is_one(page):
    assert wrong_defaults(text_of(page)) == []


@each_page
def test_every_outcome_of_a_page_is_one(page):
    assert wrong_outcomes(text_of(page)) == set()


@each_page
def test_every_exit_code_of_a_page_is_one(page):
    known = {PARITY, NO_PARITY, CANNOT_TELL} | OF_PYTEST
    assert exit_codes(text_of(page)) <= known


@each_page
def test_every_name_that_a_page_imports_is_there(page):
    assert unknown_imports(text_of(page)) == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name)
        for page in PAGES
        if page.suffix == ".md" and page.parent == DOCS
    ],
)
def test_a_page_begins_with_who_needs_it_and_what_they_will_have(page):
    first = " ".join(text_of(page).split("\n\n")[1].split())
    assert re.match(r"This page (is for|explains)", first)
    assert "At its end " in first


def test_a_wrong_claim_would_be_seen():
    assert wrong_settings("`coverage = 2`, `job = 3` and `jobs = 3`") == [
        "coverage = 2",
        "job = 3",
    ]
    assert wrong_tables("`[limit]` and `[limits]`") == {"limit"}
    assert absent_files("`harness/judge/values.py`, `harness/judge`") == [
        "harness/judge/values.py"
    ]
    assert not is_module("judge.values")
    assert not is_module("judge.value.no_such_name")
    assert wrong_defaults("(`--samples 100`) and (`--samples 200`)") == [
        ("--samples", "100")
    ]
    assert wrong_outcomes("It ends in `timed-out` or ends as `slow`.") == {"slow"}
    assert exit_codes("exit code 3, exit code **1**") == {3, 1}
    wrong = "```python\nfrom harness.suite.suite import load\n```"
    assert unknown_imports(wrong) == ["harness.suite.suite.load"]


def test_the_first_page_has_eight_commands_and_names_the_others():
    page = text_of(ROOT / "README.md")
    table = page.partition("## Eight commands")[2]
    eight = re.findall(r"^\| `parity (\w+)", table, re.MULTILINE)
    others = table.partition("The other commands:")[2].partition("\n\n")[0]
    before = re.findall(r"^parity (\w+)", page, re.MULTILINE)
    assert len(eight) == len({*eight}) == 8
    assert cli.commands.keys() <= {*eight, *before, *re.findall(r"[a-z]+", others)}


def test_the_first_page_has_150_lines_at_most():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150
