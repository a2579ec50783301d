"""Every command, option, variable and link in the documentation exists."""

import configparser
import re
import runpy
import shlex
from dataclasses import replace

import click
import pytest
import yaml

import harness
from harness.commands.cli import cli
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.core.run_options import OF_RUN
from harness.core.runtime import runtimes
from harness.core.toml_file import TomlFile
from harness.core.toml_schema import read
from harness.judge.known_gaps import load_gaps
from harness.judge.policy import Policy
from harness.plugins.pipelines.tables import PIPELINES
from harness.suite import schema
from tests.places import ROOT

DOCS = ROOT / "docs"
WORKFLOW = DOCS / "github-actions.yml"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), WORKFLOW]
# It shows `harness.check`, and its claims are tried from then on.
OF_CHECK = DOCS / "any-network.md"
TRIED = [page for page in PAGES if page != OF_CHECK or "check" in harness.__all__]
COMMAND = re.compile(
    r"(?:^\s*(?:- run: |run: |\$ )?|# (?:or|then): )(parity [a-z].*?)(?:\s+#.*)?$",
    re.MULTILINE,
)
MENTION = re.compile(r"`(parity [a-z][^`]*)`")
BLOCK = re.compile(r"^```(toml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("harness", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
each_page = pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name) for page in TRIED]
)


def commands(text, kind=COMMAND):
    """Return the words of each command of a page."""
    return [
        shlex.split(words)
        for line in kind.findall(text)
        for words in line.split(" && ")
    ]


def parse(words, *, mentioned=False):
    """Have click read a command's words without running it.

    Where it is only mentioned, its name may stand alone.
    """
    command, rest = cli, words[1:]
    while isinstance(command, click.Group) and (rest or not mentioned):
        command, rest = command.commands[rest[0]], rest[1:]
    if rest or not mentioned:
        command.make_context(" ".join(words), rest)


def options(command):
    """Yield the options of a command and of those below it."""
    for parameter in command.params:
        yield from parameter.opts
    for one in getattr(command, "commands", {}).values():
        yield from options(one)


def unknown(text):
    """Return the options in a text that neither we nor a converter have."""
    ours = {
        *options(cli),
        *(f"--parity-{name}" for name in (*OF_RUN, "component", "backend", "variant")),
    }
    flags = {
        flag.partition("=")[0]
        for one in runtimes().values()
        for built_in in one.variants.values()
        for flag in built_in.flags
    }
    mixed = [one.mixed for one in runtimes().values() if one.mixed]
    flags |= {flag for one in mixed for flag in (one.flag.rstrip("="), *one.fast)}
    named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", text))
    benchmark = {one for one in named if one.startswith("--benchmark-")}
    # Of a variant, of pytest, and of docs/families.py.
    others = {"--keep", "--half", "--junitxml", "--check"}
    return named - ours - flags - benchmark - others


@each_page
def test_every_command_of_a_page_is_one(page):
    text = page.read_text(encoding="utf-8")
    typed, mentioned = commands(text), commands(text, MENTION)
    assert typed or mentioned
    for words in typed:
        parse(words)
    for words in mentioned:
        parse(words, mentioned=True)


@each_page
def test_every_option_of_a_page_is_one(page):
    assert unknown(page.read_text(encoding="utf-8")) == set()


@each_page
def test_every_variable_of_a_page_is_one(page):
    named = set(re.findall(r"\bPARITY_[A-Z_]+", page.read_text(encoding="utf-8")))
    assert {name for name in named if f'"{name}"' not in CODE} == set()


@pytest.mark.parametrize(
    "page",
    [pytest.param(one, id=one.name) for one in (*PAGES, ROOT / "CONTRIBUTING.md")],
)
def test_every_environment_of_a_page_is_one(page):
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    named = re.findall(r"\btox (?:run )?-e (\w+)", page.read_text(encoding="utf-8"))
    assert [name for name in named if f"testenv:{name}" not in tox] == []


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [pytest.param(one, id=one.name) for one in PAGES])
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_a_wrong_word_would_be_seen():
    with pytest.raises(click.UsageError):
        parse(["parity", "gate", "last", "--basline", "digits"])
    with pytest.raises(KeyError):
        parse(["parity", "baseline", "acept"])
    assert unknown("`--parity-backends` and `--allow-looser`") == {"--parity-backends"}


def test_commands_are_found_where_they_stand():
    text = (
        "$ parity run --e2e  # why\n x  # or: parity run && parity gate\na `parity x`"
    )
    found = [" ".join(words) for words in commands(text)]
    assert found == ["parity run --e2e", "parity run", "parity gate"]
    assert commands(text, MENTION) == [["parity", "x"]]


def test_the_workflow_is_yaml_whose_options_exist():
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]

    (tests,) = [step["run"] for step in steps if "pytest" in step.get("run", "")]
    options = re.findall(r"--parity-([a-z-]+)", tests)
    assert options == ["require", "shard"]
    assert set(options) <= OF_RUN.keys()
    used = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert used[-1] == "actions/upload-artifact"
    assert {"actions/cache/restore", "actions/cache/save"} <= set(used)


def test_the_workflow_runs_every_shard():
    shard = yaml.safe_load(WORKFLOW.read_text())["jobs"]["shard"]
    of = shard["env"]["SHARDS"]
    assert shard["strategy"]["matrix"]["shard"] == list(range(1, of + 1))


def read_block(kind, text, folder):
    """Read a block of a page as the file that it is a part of would be read."""
    if kind == "python":
        compile(text, "block", "exec")
        return
    path = folder / "block.toml"
    path.write_text(text, encoding="utf-8")
    root = TomlFile.load(path).root
    if "gap" in root:
        load_gaps(path)
    elif set(root.data) <= set(schema.SuiteFile.__struct_encode_fields__):
        read(root, schema.SuiteFile)
        for name in root.data.get("pipeline", {}):
            table = root.table("pipeline").table(name)
            struct = PIPELINES[table.data.get("kind", name)]
            # A block may show a part of a pipeline, and every pipeline has a size.
            size = {key: 64 for key in ("height", "width") if key in fields(struct)}
            read(replace(table, data={**size, **table.data}), struct)
    elif set(root.data) != {"project"}:  # pyproject.toml of a package is not ours
        Policy.load(path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(*block.groups(), id=f"{page.name}:{number}")
        for page in TRIED
        for number, block in enumerate(BLOCK.finditer(page.read_text("utf-8")), 1)
    ],
)
def test_every_block_of_a_page_can_be_read(kind, text, tmp_path):
    read_block(kind, text, tmp_path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("toml", "[limits]\njob = 2\n", id="a key of parity.toml"),
        pytest.param("toml", "[pipeline.text2img]\nstep = 2\n", id="of a pipeline"),
        pytest.param("toml", "[mnn.fp32]\noutput = 'strict'\n", id="of tolerances"),
        pytest.param("python", "def f(:\n", id="python"),
    ],
)
def test_a_wrong_block_would_be_seen(kind, text, tmp_path):
    with pytest.raises((SuiteError, SyntaxError)):
        read_block(kind, text, tmp_path)


def test_the_generated_reference_has_every_key_and_every_outcome():
    pages = runpy.run_path(str(DOCS / "generate_pages.py"), run_name="docs")["pages"]()
    keys = {name for kind in PIPELINES.values() for name in fields(kind)}
    assert [key for key in keys if f"| `{key}` |" not in pages["parity-toml.md"]] == []
    assert [one for one in Outcome if f"| `{one}` |" not in pages["outcomes.md"]] == []


def fields(struct):
    return struct.__struct_encode_fields__
