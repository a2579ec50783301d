"""The `parity` command has the same engine, ids and exit codes as the plugin."""

import json
import shutil
import sys

import pytest

from harness.commands.cli import cli
from harness.engine.run_folder import SCHEMA
from tests.plugin.project import CASES, Project, called, write_project


def test_run_has_a_line_a_case_and_the_same_summary(project, failing):
    project.tighten()

    ended = project.parity("run").check(1)
    lines = ended.text.splitlines()
    assert lines[0].startswith("parity: parity.toml · 3 cases: 1 component, 2 backends")
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["✓", CASES[0]],
        ["✗", CASES[1]],
        ["✓", CASES[2]],
    ]
    assert failing[1].parity[:6] == lines[5:11]
    assert "\x1b" not in ended.text
    assert len(project.reports) == 1


def test_run_takes_cases_by_their_ids(project):
    project.parity("run", "onnxruntime/fp32").check(0, "1 of 1 case agrees")
    assert [case["case"] for case in project.report["cases"]] == [CASES[0]]


def test_run_lists_what_it_would_run(project):
    assert project.parity("run", "--list", "mnn").text.split() == [*CASES[1:]]
    assert not (project.path / "reports").exists()


NOT_THERE = {
    "case": (["run", "vae_encoder"], ("'vae_encoder'", CASES[0])),
    "tier": (["run", "--tier", "strikt"], ("strikt", "did you mean 'strict'?")),
    "runtime": (["run", "--require", "mmn"], ("did you mean 'mnn'?",)),
    "suite": (
        ["run", "--suite", "gone.toml"],
        ("there is no suite at gone.toml", "parity init"),
    ),
    "bound": (["run", "--set", "floor=1"], ("did you mean 'floors'?",)),
    "run": (["show"], ("There is no run 'last'",)),
}


@pytest.mark.parametrize("what", NOT_THERE)
def test_what_is_not_there_is_a_sentence_and_2(quick, what):
    args, words = NOT_THERE[what]
    quick.parity(*args).check(2, *words)
    assert not (quick.path / "reports").exists()


def test_a_runtime_that_is_required_and_missing_is_2(quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert quick.parity("run").code == 2
    quick.parity("run", "--require", "onnxruntime").check(
        2, "onnxruntime is not installed (pip install onnxruntime"
    )


def test_show_repeats_the_summary(failing):
    project, ran = failing
    assert project.parity("show").check(1).text.splitlines()[1:] == ran.parity[:-1]


@pytest.mark.parametrize(
    ("tier", "code", "agree"), [("quantized", 0, 3), ("exact", 1, 0)]
)
def test_show_judges_again_under_other_tolerances(failing, tier, code, agree):
    failing[0].parity("show", "last", "--tier", tier).check(
        code, f"{agree} of 3 cases agree"
    )


def test_show_lists_the_layers_of_a_case_in_order(failing):
    ended = failing[0].parity("show", "last", CASES[1])
    lines = ended.text.splitlines()

    assert ended.code == 1
    assert "values in order of execution" in lines[0]
    assert any(line.strip() and set(line) <= set(" ▁▂▃▄▅▆▇█") for line in lines[1:3])
    head = next(at for at, line in enumerate(lines) if line.endswith("where"))
    assert lines[head + 1].endswith("post_quant_conv  conv2d")
    assert lines[-1].endswith("sample  output")
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["show", "last", "vae_decoder/mnn/fp23"], CASES[1], id="case"),
        pytest.param(["nodes", "last", "vae_decoder/mnn/fp31"], CASES[1], id="nodes"),
        pytest.param(
            ["show", "last", CASES[1], "--sample", "real"], "realistic-0", id="sample"
        ),
    ],
)
def test_the_nearest_of_what_is_not_there_is_named(failing, args, words):
    failing[0].parity(*args).check(2, f"the nearest: {words}")


def test_the_nodes_of_a_case_are_the_values_of_its_program(failing, tmp_path):
    project, _ = failing
    out = tmp_path / "nodes.json"
    ended = project.parity("nodes", "last", CASES[1], "--out", str(out))
    results = json.loads(out.read_text())["results"]
    assert (ended.code, ended.text.strip()) == (0, str(out))
    assert set(results) == set(project.case(CASES[1])["probes"]["probe"])


def test_show_says_that_the_suite_has_changed_or_moved(failing, tmp_path):
    project = Project(tmp_path / "moved")
    shutil.copytree(failing[0].path, project.path)
    (report,) = project.reports
    text = report.read_text().replace(str(failing[0].path), str(project.path))
    report.write_text(text)
    project.change("tolerances.toml", "exact", "standard")

    changed = project.parity("show")
    (project.path / "parity.toml").rename(project.path / "other.toml")
    moved = project.parity("show")
    named = project.parity("show", "--suite", "other.toml")

    # Without its suite a run is shown as it was judged.
    assert (changed.code, moved.code, named.code) == (0, 1, 0)
    assert changed.has("tolerances.toml has changed since the run")
    assert moved.has("judged by the tolerances that the run keeps, because its suite")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": 99}', "has schema 99"),
        ('{"schema": 99}', "use the version that wrote it, or run again."),
        ("[]", "is damaged"),
        ('{"schema": 1}', "has schema 1"),
        (f'{{"schema": {SCHEMA}}}', "is damaged"),
        ("{", "is damaged"),
    ],
)
def test_show_refuses_a_report_it_cannot_read(tmp_path, text, words):
    (tmp_path / "report.json").write_text(text)
    called(tmp_path, "show", "report.json").check(2, words)


def test_init_writes_a_suite_that_can_be_listed(tmp_path):
    project = write_project(tmp_path)
    init = ("init", "checkpoint", "--into", "suite", "--no-measure")

    written = project.parity(*init)
    listed = project.parity("run", "--suite", "suite", "--list")
    again = project.parity(*init)

    assert (written.code, listed.code, again.code) == (0, 0, 2)
    first, *_, last = written.text.splitlines()
    assert first == "note  checkpoint has no weights: they will be drawn from seed 0"
    assert last == "next  pytest -m parity suite"
    assert "vae_decoder/mnn/fp32" in listed.text.split()
    assert again.has("--force")


@pytest.mark.usefixtures("passing")
def test_store_lists_verifies_and_clears(store, tmp_path):
    # Not all of it, because other tests fill the shared store meanwhile.
    copy = tmp_path / "store"
    for kind in ("onnx", "mnn"):
        shutil.copytree(store / "v1" / kind, copy / "v1" / kind)
    shutil.copy(store / "store.json", copy)

    def ended(*words):
        return called(tmp_path, "store", *words, "--store", "store")

    ended("list").check(0, "onnx", "vae_decoder")
    ended("verify").check(0)
    model = next(copy.glob("v1/onnx/*/*/*.onnx"))
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    ended("verify").check(2, "removed")

    ended("clear").check(2, "--yes")
    assert list(copy.glob("v1/*/*/*"))
    assert ended("clear", "--yes").code == 0
    assert not list(copy.glob("v1/*/*/*"))


def every(command, words=()):
    """Yield the words of a command and of those below it."""
    yield words
    for name, one in getattr(command, "commands", {}).items():
        yield from every(one, (*words, name))


@pytest.mark.parametrize(
    "words", [pytest.param(one, id=" ".join(("parity", *one))) for one in every(cli)]
)
def test_every_command_explains_itself(tmp_path, words):
    called(tmp_path, *words, "--help").check(0, " ".join(("Usage: parity", *words)))
