"""The page on security leaves out no command, and names modules that there are."""

import re

from harness.commands.cli import cli
from tests.places import ROOT
from tests.unit.test_architecture import MODULES

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_each_command_has_a_row_of_what_it_reads_writes_and_runs():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {
        word for row in rows for word in re.findall(r"`([a-z]+)", row.split("|")[1])
    }
    assert set(cli.commands) <= named


def test_each_rule_has_a_module():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.partition("## Data is never code")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if re.match(r"\| [a-i] \|", line)]
    named = [
        word
        for row in rows
        for word in re.findall(r"`((?:[a-z_]+\.)+[a-z_]+)`", row.split("|")[3])
    ]

    assert len(rows) == len("abcdefghi")
    for word in named:
        parts = word.split(".")
        known = word in MODULES or ".".join(parts[:-1]) in MODULES
        assert known, word
