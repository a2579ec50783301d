"""The `parity` command has the same engine, ids and exit codes as the plugin."""

import json
import shutil
import sys

import pytest

from harness.commands.cli import main
from harness.engine.run_folder import SCHEMA
from tests.plugin.project import CASES, CONFIG


@pytest.fixture
def shown(failing, monkeypatch):
    """Work where a finished run lies."""
    project, _ = failing
    monkeypatch.chdir(project.path)


def say(capsys, *args):
    code = main(list(args))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_run_has_a_line_a_case_and_the_same_summary(project, failing):
    project.tighten()

    ended = project.parity("run")

    assert ended.code == 1, ended.text
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
    ended = project.parity("run", "onnxruntime/fp32")

    assert ended.code == 0, ended.text
    assert ended.has("1 of 1 case agrees")
    assert [case["case"] for case in project.report["cases"]] == [CASES[0]]


def test_run_lists_what_it_would_run(project):
    ended = project.parity("run", "--list", "mnn")

    assert ended.text.split() == [*CASES[1:]]
    assert not (project.path / "reports").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["run", "unet"], "matches 'unet'", id="no-such-case"),
        pytest.param(["run", "--tier", "standart"], "'standard'", id="no-such-tier"),
        pytest.param(["run", "--require", "mmn"], "'mnn'", id="no-such-runtime"),
        pytest.param(["run", "--suite", "gone.toml"], "gone.toml", id="no-suite"),
        pytest.param(["run", "--set", "floor=1"], "'floors'", id="no-such-bound"),
        pytest.param(["show"], "There is no run 'last'", id="no-run"),
    ],
)
def test_what_is_not_there_is_a_sentence_and_2(quick, monkeypatch, capsys, args, words):
    monkeypatch.chdir(quick.path)

    code, out, err = say(capsys, *args)

    assert code == 2
    assert words in err
    assert "Traceback" not in err + out
    assert not (quick.path / "reports").exists()


def test_a_runtime_that_is_required_and_missing_is_2(quick, monkeypatch, capsys):
    monkeypatch.chdir(quick.path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    assert say(capsys, "run")[0] == 2

    code, out, _ = say(capsys, "run", "--require", "onnxruntime")
    assert code == 2
    assert "onnxruntime is not installed (pip install onnxruntime" in out


@pytest.mark.usefixtures("shown")
def test_show_repeats_the_summary(failing, capsys):
    code, out, _ = say(capsys, "show")

    assert code == 1
    assert out.splitlines()[1:] == failing[1].parity[:-1]


@pytest.mark.usefixtures("shown")
def test_show_judges_again_under_other_tolerances(capsys):
    code, out, _ = say(capsys, "show", "last", "--tier", "quantized")
    assert code == 0
    assert "3 of 3 cases agree" in out

    code, out, _ = say(capsys, "show", "last", "--tier", "exact")
    assert code == 1
    assert "0 of 3 cases agree" in out


@pytest.mark.usefixtures("shown")
def test_show_lists_the_layers_of_a_case_in_order(capsys):
    code, out, _ = say(capsys, "show", "last", "vae_decoder/mnn/fp32")
    lines = out.splitlines()

    assert code == 1
    assert "values in order of execution" in lines[0]
    assert set(lines[1].strip()) <= set(" ▁▂▃▄▅▆▇█")
    head = next(at for at, line in enumerate(lines) if line.endswith("where"))
    assert lines[head + 1].endswith("post_quant_conv  conv2d")
    assert lines[-1].endswith("sample  output")
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["vae_decoder/mnn/fp23"], "vae_decoder/mnn/fp32", id="case"),
        pytest.param([CASES[1], "--sample", "real"], "realistic-0", id="sample"),
    ],
)
def test_show_names_the_nearest_of_what_is_not_there(capsys, args, words):
    code, _, err = say(capsys, "show", "last", *args)

    assert code == 2
    assert words in err


def test_show_says_that_the_suite_has_changed_or_moved(failing, tmp_path, capsys):
    project, _ = failing
    moved = tmp_path / "moved"
    shutil.copytree(project.path, moved)
    (report,) = moved.glob("reports/runs/*/report.json")
    text = report.read_text().replace(str(project.path), str(moved))
    report.write_text(text)
    tolerances = moved / "tolerances.toml"
    tolerances.write_text(tolerances.read_text().replace("exact", "standard"))

    code, out, _ = say(capsys, "show", str(report))
    assert code == 0
    assert "tolerances.toml has changed since the run" in out

    (moved / "parity.toml").rename(moved / "other.toml")
    code, _, err = say(capsys, "show", str(report))
    assert code == 2
    assert "is no longer there; name the one to judge by with --suite" in err

    code, out, _ = say(
        capsys, "show", str(report), "--suite", str(moved / "other.toml")
    )
    assert code == 0


def test_show_refuses_a_report_it_cannot_read(tmp_path, capsys):
    report = tmp_path / "report.json"
    for text, words in (
        ('{"schema": 99}', "has schema 99"),
        ("[]", "has schema None"),
        ('{"schema": 1}', "has schema 1"),
        (f'{{"schema": {SCHEMA}}}', "is damaged"),
        ("{", "cannot be read"),
    ):
        report.write_text(text)
        code, _, err = say(capsys, "show", str(report))
        assert (code, words in err) == (2, True), err


def test_init_writes_a_suite_that_can_be_listed(tmp_path, monkeypatch, capsys):
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "vae").mkdir(parents=True)
    (checkpoint / "vae" / "config.json").write_text(json.dumps(CONFIG))
    (checkpoint / "model_index.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    code, out, _ = say(capsys, "init", "checkpoint", "--into", "suite", "--no-measure")
    assert code == 0
    assert out.splitlines()[0] == (
        "note  checkpoint has no weights: they will be drawn from seed 0"
    )
    assert out.splitlines()[-1] == "next  pytest -m parity suite"
    code, out, _ = say(capsys, "run", "--suite", "suite", "--list")
    assert code == 0
    assert "vae_decoder/mnn/fp32" in out.split()

    code, _, err = say(capsys, "init", "checkpoint", "--into", "suite")
    assert code == 2
    assert "--force" in err


@pytest.mark.usefixtures("passing")
def test_store_lists_verifies_and_clears(store, tmp_path, capsys):
    # Not all of it, because other tests fill the shared store meanwhile.
    copy = tmp_path / "store"
    for kind in ("onnx", "mnn"):
        shutil.copytree(store / "v1" / kind, copy / "v1" / kind)
    shutil.copy(store / "store.json", copy)
    at = ("--store", str(copy))

    code, out, _ = say(capsys, "store", "list", *at)
    assert code == 0
    assert "onnx" in out
    assert "vae_decoder" in out
    assert say(capsys, "store", "verify", *at)[0] == 0

    model = next(copy.glob("v1/onnx/*/*/*.onnx"))
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    code, out, _ = say(capsys, "store", "verify", *at)
    assert code == 2
    assert "removed" in out

    code, out, _ = say(capsys, "store", "clear", *at)
    assert code == 2
    assert "--yes" in out
    assert list(copy.glob("v1/*/*/*"))
    assert say(capsys, "store", "clear", "--yes", *at)[0] == 0
    assert not list(copy.glob("v1/*/*/*"))


def test_every_command_explains_itself(capsys):
    names = ("run", "show", "doctor", "init", "store", "diff", "gate")
    for words in ([], *([name] for name in names), ["baseline"]):
        code, out, _ = say(capsys, *words, "--help")
        assert code == 0
        assert "Usage: parity" in out


def test_doctor_answers_with_a_line_each_and_a_code(quick):
    ended = quick.parity("doctor")

    assert ended.code in {0, 1, 2}, ended.text
    assert ended.has("onnxruntime")
    assert ended.has("MNN")
    assert not ended.has("Traceback")
