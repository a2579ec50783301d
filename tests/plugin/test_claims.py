"""Claims of the pages that a machine can try, beside those of test_docs.py.

A setting, a table, a file, a module, a default, an outcome and an import that a page
names must exist. `test_screens.py` compares what commands print with what pages show.
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
from harness.core.outcome import Outcome
from harness.core.runtime import runtimes
from tests.places import ROOT
from tests.plugin.test_docs import BLOCK, DOCS, TRIED

KEYS: dict[str, list[dict]] = {}
"""The rules of each key of a file of a suite, as its JSON Schema has them."""

for path in sorted(DOCS.glob("*.schema.json")):
    schema = json.loads(path.read_text("utf-8"))
    for table in schema["$defs"].values():
        for key, rule in table.get("properties", {}).items():
            KEYS.setdefault(key, []).append({**rule, "$defs": schema["$defs"]})

RECIPES = sorted((ROOT / "harness" / "recipes").rglob("*.py"))
OF_RECIPES = "".join(path.read_text("utf-8") for path in RECIPES)
"""A recipe may have keys of its own, such as `pooling`."""

# Keys of files that are not ours.
OTHERS = {"addopts", "parity_store", "theirs"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
TABLES = {"gap", "mixed", "project", "tool", *KEYS, *EXTRAS, *runtimes()}
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:benchmarks|docs|fixtures|harness|reports|tests)/\S*")
# Made by a run, so not in a fresh repository.
OF_A_RUN = re.compile(r"reports/(runs|plans|tuning|versions-|baselines/<)")
MODULE = re.compile(
    r"(?:harness\.)?((?:core|measure|judge|recipes|suite|engine|runtimes|report"
    r"|commands|plugins)(?:\.(?!json$|html$|md$|toml$)\w+)+)"
)
# README.md shows them before they are there.
COMING = set() if "check" in harness.__all__ else {"check", "capture"}


def codes(text):
    """Return what stands as code within the sentences of a page."""
    spans = re.findall(r"`([^`]+)`", FENCED.sub("", text))
    return [" ".join(span.split()) for span in spans]


def is_setting(code):
    """Whether a `key = value` may stand in a file; a word in capitals is any text."""
    try:
        setting = tomllib.loads(re.sub(r"\b([A-Z]{2,})\b", r'"\1"', code))
    except tomllib.TOMLDecodeError:
        return False
    ((key, value),) = setting.items()
    if key in OTHERS or key in runtimes() or f'"{key}"' in OF_RECIPES:
        return True
    rules = map(jsonschema.Draft7Validator, KEYS.get(key, []))
    return any(rule.is_valid(value) for rule in rules)


def settings(text):
    named = [code for code in codes(text) if re.match(r"[a-z_]\w* = [^…]+$", code)]
    return [code for code in named if not is_setting(code)]


def tables(text):
    named = [re.fullmatch(r"\[+([\w-]+)[\w.…*\"@-]*\]+", one) for one in codes(text)]
    names = [one[1] for one in named if one]
    return [name for name in names if not name.isupper() and name not in TABLES]


def files(text):
    words = [word for code in codes(text) for word in code.split()]
    named = [word for word in words if FILE.fullmatch(word)]
    return [
        name
        for name in named
        if not OF_A_RUN.match(name) and not (ROOT / name).exists()
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


def modules(text):
    named = [MODULE.fullmatch(code) for code in codes(text)]
    return [one[1] for one in named if one and not is_module(one[1])]


def defaults(command, name):
    """Yield the default of an option in each command that has it."""
    for parameter in command.params:
        if name in parameter.opts:
            yield parameter.default
    for one in getattr(command, "commands", {}).values():
        yield from defaults(one, name)


def stated_defaults(text):
    stated = re.findall(r"\(`(--[\w-]+) ([\d.]+)`\)", text)
    return [
        (name, value)
        for name, value in stated
        if float(value) not in [*defaults(cli, name)]
    ]


def outcomes(text):
    said = r"(?:ends?\s+(?:the\s+case\s+)?(?:in|as)|the\s+outcome)\s+`([^`]+)`"
    return [word for word in re.findall(said, text) if word not in {*Outcome}]


def imports(text):
    wrong = []
    for kind, block in BLOCK.findall(text):
        if kind != "python":
            continue
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("harness."):
                home = node.module.removeprefix("harness.")
                wrong += [f"{home}.{name.name}" for name in node.names]
        called = set(re.findall(r"\bharness\.([a-z]\w*)\(", block))
        wrong += sorted(called - {*harness.__all__} - COMING)
    return [name for name in wrong if not is_module(name)]


CLAIMS = (settings, tables, files, modules, stated_defaults, outcomes, imports)
"""Functions of a page's text; each returns what it names and is not there."""


@pytest.mark.parametrize("claims", CLAIMS)
@pytest.mark.parametrize("page", [pytest.param(one, id=one.name) for one in TRIED])
def test_all_that_a_page_names_is_there(page, claims):
    assert claims(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("claims", "text", "wrong"),
    [
        (settings, "`coverage = 2`, `job = 3` and `jobs = 3`", "coverage = 2 job = 3"),
        (tables, "`[limit]`, `[RUNTIME.VARIANT]` and `[limits]`", "limit"),
        (files, "`harness/judge/values.py`, `docs`", "harness/judge/values.py"),
        (modules, "`judge.values` and `judge.value`", "judge.values"),
        (stated_defaults, "(`--samples 100`), (`--samples 200`)", "--samples"),
        (outcomes, "It ends in `timed-out` or ends as `slow`.", "slow"),
        (imports, "```python\nfrom harness.suite import a\n```\n", "suite.a"),
    ],
)
def test_a_wrong_claim_would_be_seen(claims, text, wrong):
    found = [one[0] if isinstance(one, tuple) else one for one in claims(text)]
    assert " ".join(found) == wrong


def test_a_page_begins_with_who_needs_it_and_what_they_will_have():
    for page in sorted(DOCS.glob("*.md")):
        first = page.read_text(encoding="utf-8").split("\n\n")[1]
        assert re.match(r"This page (is for|explains)\s", first), page
        assert "At its end" in " ".join(first.split()), page


def test_the_first_page_has_eight_commands_names_the_others_and_has_150_lines():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    table = page.partition("## Eight commands")[2]
    eight = re.findall(r"^\| `parity (\w+)", table, re.MULTILINE)
    others = table.partition("The other commands:")[2].partition("\n\n")[0]
    before = re.findall(r"^parity (\w+)", page, re.MULTILINE)
    assert len(eight) == len({*eight}) == 8
    assert cli.commands.keys() <= {*eight, *before, *re.findall(r"[a-z]+", others)}
    assert len(page.splitlines()) <= 150
