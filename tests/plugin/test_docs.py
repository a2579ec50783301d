"""Every command, option, variable and link in the documentation exists."""

import configparser
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from harness.commands.cli import cli
from harness.core.runtime import runtimes
from harness.plugin import _OPTIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORKFLOW = DOCS / "github-actions.yml"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), WORKFLOW]
COMMAND = re.compile(
    r"(?:^\s*(?:- run: |run: |\$ )?|# (?:or|then): )(parity [a-z].*?)(?:\s+#.*)?$",
    re.MULTILINE,
)
MENTION = re.compile(r"`(parity [a-z][^`]*)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
each_page = pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name) for page in PAGES]
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
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def unknown(text):
    """Return the options in a text that neither we nor a converter have."""
    ours = {
        *options(cli),
        "--parity-set",
        *(f"--parity-{name}" for name, *_ in _OPTIONS),
    }
    flags = {
        flag.partition("=")[0]
        for one in runtimes().values()
        for built_in in one.variants.values()
        for flag in built_in.flags
    }
    named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", text))
    return named - ours - flags - {"--keep", "--junitxml"}  # of a variant; of pytest


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
def test_every_environment_of_a_page_is_one(page):
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    named = re.findall(r"\btox (?:run )?-e (\w+)", page.read_text(encoding="utf-8"))

    assert [name for name in named if f"testenv:{name}" not in tox] == []


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
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
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["parity"]["steps"]

    (tests,) = [step["run"] for step in steps if "pytest" in step.get("run", "")]
    options = re.findall(r"--parity-([a-z-]+)", tests)
    assert options == ["require"]
    assert set(options) <= {name for name, _, _ in _OPTIONS}
    used = [step["uses"].partition("@")[0] for step in steps if "uses" in step]
    assert used[-1] == "actions/upload-artifact"
    assert {"actions/cache/restore", "actions/cache/save"} <= set(used)


def test_the_example_of_a_gap_is_one(tmp_path):
    from harness.judge.known_gaps import load_gaps

    text = (DOCS / "release.md").read_text()
    path = tmp_path / "known_gaps.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])

    (gap,) = load_gaps(path)
    assert gap.who == "B. Owner"
    assert str(gap.until) == "2027-01-31"
