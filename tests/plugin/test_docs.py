"""What the pages tell people to type is there to be typed."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from harness.cli import cli
from harness.plugin import _OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
WORKFLOW = DOCS / "github-actions.yml"
COMMAND = re.compile(
    r"^\s*(?:- run: |run: |\$ )?(parity [a-z].*?)(?:\s+#.*)?$", re.MULTILINE
)


def commands(path):
    return [shlex.split(words) for words in COMMAND.findall(path.read_text())]


def parse(words):
    """Have click read a command's words without running it."""
    command, rest = cli, words[1:]
    while isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(" ".join(words), rest)


@pytest.mark.parametrize("name", ["ci.md", "release.md", "github-actions.yml"])
def test_every_command_of_a_page_is_one(name):
    found = commands(DOCS / name)

    assert found
    for words in found:
        parse(words)


def test_a_wrong_word_would_be_seen():
    with pytest.raises(click.UsageError):
        parse(["parity", "gate", "last", "--basline", "digits"])


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
    from harness.gaps import load_gaps

    text = (DOCS / "release.md").read_text()
    path = tmp_path / "known_gaps.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])

    (gap,) = load_gaps(path)
    assert gap.who == "B. Owner"
    assert str(gap.until) == "2027-01-31"
