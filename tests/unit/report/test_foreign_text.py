"""A run of somebody else, whose every text is hostile, is shown as plain text."""

import json
import re
import shutil
import unicodedata
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from harness.commands.cli import cli, main
from harness.core.record import LAYERS, OUTPUTS, Failure
from harness.core.settings import Settings
from harness.engine.kept import kept
from harness.engine.run import path_of
from harness.engine.run_folder import RunFolder
from harness.report.finish import STEP_SUMMARY, conclude
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit.reports import output, record, row

BERT = FIXTURES / "text_tasks" / "bert"
FORGED = "✓ all agree"
PLANTED = "qT9sEcReT"
LONG = "x" * 10_000
HOSTILE = (
    f"\x1b]0;x\x07\x9b31m\u202e\u2066\u200b\ufeff\ue000\r\n {FORGED}\n```\n"
    f"https://host/x?sig={PLANTED} /home/somebody/x/net.py |<b>{LONG}"
)


def kinds_in(text):
    """Categories of characters in a text that a terminal acts on, but line ends."""
    found = {unicodedata.category(letter) for letter in set(text) - {"\n"}}
    return found & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def check_plain(text):
    """Check a screen or a file that people read."""
    assert kinds_in(text) == set()
    assert PLANTED not in text
    assert LONG not in text


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder of a suite, with a run and a baseline that others have sent."""
    folder = shutil.copytree(BERT, tmp_path_factory.mktemp("place") / "bert")
    suite = load_suite(folder)
    whole, broken = (case.id for case in suite.cases[:2])
    rows = [
        replace(
            row("v0", 1000, module=HOSTILE),
            probe=f"v{HOSTILE}",
            source=HOSTILE,
            looks=HOSTILE,
            sample=HOSTILE,
            op=HOSTILE,
        ),
        replace(output(5000), probe=HOSTILE, sample=HOSTILE),
    ]
    about = {
        "ran": RAN,
        "log": HOSTILE,
        "node": HOSTILE,
        "too_large": (HOSTILE,),
        "artifacts": {"onnx": {"digest": "0", "size_bytes": 1, "meta": {"x": HOSTILE}}},
    }
    failure = {"outcome": "crashed", "message": HOSTILE, "log": HOSTILE * 20}
    records = [
        record(*rows, case=whole, **about),
        record(case=broken, failure=failure, **about),
    ]
    runs = folder / "reports/runs"
    made = RunFolder.create(runs, datetime.now(UTC))
    for one in records:
        made.record_once((path_of(suite), one.case), partial(replace, one))
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv(STEP_SUMMARY, str(folder / "step.md"))
        conclude(
            made,
            [suite],
            Settings(),
            asked=[
                (path_of(suite), one.case, w)
                for one in records
                for w in (LAYERS, OUTPUTS)
            ],
            argv=["parity", "run", HOSTILE],
            about={},
        )
        main(["baseline", "accept", "last", "--who", HOSTILE, "--why", HOSTILE])
    return folder, whole, made.path


RAN = {
    **dict.fromkeys(("backend", "device", "version", "precision"), HOSTILE),
    "threads": 1,
}
FILE = HOSTILE.replace(LONG, "x")
"""A name that a file may have."""

COMMANDS = (
    *(["show"], ["show", "last", "CASE"], ["show", "last", "CASE", "--modules"]),
    *(["show", "last", HOSTILE], ["show", "last", "CASE", "--sample", HOSTILE]),
    *(["report"], ["nodes", "last", "CASE"], ["gate", "last"], ["baseline", "list"]),
    *(["diff", "last", "bert"], ["card", "last"], ["merge", "last"], ["run", HOSTILE]),
    *(["explain", HOSTILE], ["store", "push", HOSTILE], ["store", "list"]),
    *(["init", FILE], ["judge", FILE], ["verify", FILE, FILE], [f"rum{HOSTILE}"]),
    *(["target", "make", "--root", HOSTILE], ["doctor", "--app", f"{LONG}\x1b\x9b"]),
)


INSTALLED = [
    pytest.param(words, id=str(number))
    for number, words in enumerate(COMMANDS)
    if words[0] in cli.commands or HOSTILE in words[0]  # a plug-in may be taken away
]


@pytest.mark.parametrize("words", INSTALLED)
def test_no_command_lets_a_foreign_text_act_on_the_terminal(
    words, place, monkeypatch, capsys
):
    folder, case, _ = place
    monkeypatch.chdir(folder)

    code = main([case if word == "CASE" else word for word in words])

    said = capsys.readouterr()
    assert code in {0, 1, 2}
    assert said.out + said.err
    assert "Traceback" not in said.err
    for text in (said.out, said.err):
        check_plain(text)
        assert not re.search(rf"^\W*{FORGED}", text, re.MULTILINE)


PAGES = ["report.html"] if "report" in cli.commands else []  # a plug-in's


@pytest.mark.parametrize("name", ["summary.md", *PAGES, "../../../step.md"])
def test_no_file_that_people_read_has_it(name, place):
    _, _, run = place

    text = (run / name).read_text(encoding="utf-8")

    assert FORGED in text
    check_plain(text)
    assert "/home/somebody" not in text


def test_a_foreign_text_does_not_end_the_block_of_a_summary(place):
    _, _, run = place
    summary = (run / "summary.md").read_text()

    head, _, opened, *rest = summary.splitlines()
    fence = opened.removesuffix("text")
    assert head.startswith("## Parity ")
    assert rest.count(fence) == 1
    assert not re.search(rf"^\W*{FORGED}", summary, re.MULTILINE)


def test_a_record_keeps_no_secret_and_no_home():
    own = row("v0", 1000)
    failure = Failure(outcome="crashed", message=HOSTILE, log=HOSTILE)
    told = {"ran": {"provider": HOSTILE}, "log": HOSTILE, "artifacts": {"x": [HOSTILE]}}

    made = kept(replace(record(replace(own, source=HOSTILE)), failure=failure, **told))

    text = json.dumps(made.to_json())
    assert PLANTED not in text
    assert "/home/somebody" not in text
    assert "~/x" not in made.rows[0].source  # a module is told by its package


def test_a_report_keeps_no_secret_of_the_command(place):
    _, _, run = place
    command = json.loads((run / "report.json").read_text())["command"]

    assert command[:2] == ["parity", "run"]
    assert PLANTED not in command[2]
    assert "/home/somebody" not in command[2]


def test_a_megabyte_of_a_log_is_kept_at_its_beginning_and_its_end():
    said = "begin\n" + "x" * (1 << 20) + "\nend"
    flood = Failure(outcome="crashed", message=said, log=said)

    made = kept(replace(record(failure=None), failure=flood, log=said))

    assert made.failure
    assert made.failure.log.startswith("begin")
    assert made.failure.log.endswith("end")
    assert len(made.failure.log) == len(made.log) == 64 << 10
    assert len(made.failure.message) == 4_000
