"""`parity explain`, `repro` and `ranges`: why a case diverges, and how to show it."""

import html
import json
import os
import sys

import numpy as np
import pytest

from harness.suite.suite import load_suite
from tests.plugin.project import run_repro
from tests.plugin.test_targets import run_on

pytestmark = pytest.mark.slow

CASE = "vae_decoder/mnn/int8-weights"
STRICT = ("--tier", "strict")
KEPT = '[variant.onnxruntime.fp16-fixed]\nfrom = "fp16"\nflags = ["--keep=Conv"]\n'


@pytest.fixture(scope="module")
def explained(passing, tmp_path_factory):
    """What is said of eight-bit weights that fail a run under the strict tier."""
    project = passing[0].branch(tmp_path_factory.mktemp("explained") / "project")
    assert project.parity("run", CASE, *STRICT).code == 1
    return project, project.parity("explain", CASE, *STRICT)


WRONG_THERE = """
import onnxruntime

run = onnxruntime.InferenceSession.run
onnxruntime.InferenceSession.run = lambda *given: [1.1 * one for one in run(*given)]
"""


def test_a_target_that_computes_wrong_is_told_from_this_machine(quick):
    # A Python looks for this module when it starts.
    (quick.path / "sitecustomize.py").write_text(WRONG_THERE)
    run_on(
        quick,
        '[target.phone]\ncommand = ["env", "PYTHONPATH=.", '
        f"{json.dumps(sys.executable)}]\n",
        targets='["here", "phone"]',
    )

    ended = quick.parity("explain", "vae_decoder/onnxruntime/fp32@phone")

    ended.check(0, "right here, wrong on phone", 'fixed by targets = ["here"]')
    assert not ended.has("[backend.onnxruntime]"), "[target.phone] would be unused"


def page_of(project):
    (report,) = project.reports
    return html.unescape(report.with_suffix(".html").read_text())


@pytest.mark.smoke
@pytest.mark.parametrize(
    "words",
    [
        f"{CASE} first diverges from PyTorch at ",
        "weights in int8",
        "fixed by fp32 for int8-weights",
        "onnxruntime runs the same graph at ",
        "changed the error by no more than 2%",
        "the operators around it alone show it",
        "ship vae_decoder/mnn/fp32 in its place",
    ],
)
def test_it_says_where_it_diverges_what_was_tried_and_what_fixes_it(explained, words):
    _, ended = explained
    ended.check(0, words)


def test_it_says_what_floors_are_and_what_the_setting_costs(explained):
    _, ended = explained
    text = " ".join(ended.text.split())  # it may stand on two lines
    assert text.count("floors (× PyTorch's own float32 rounding error)") == 1
    cost = next(line for line in ended.text.splitlines() if ", size " in line)
    assert "memory " in cost
    assert "size +" in cost, "full precision takes more room"
    assert not ended.has("parity.toml ["), "other components may keep the variant"


def test_the_page_of_the_run_shows_the_explanation_and_keeps_it(explained):
    project, ended = explained
    (report,) = project.reports
    path = report.with_suffix(".html")

    shown = page_of(project)
    assert ended.has(f"page {path.relative_to(project.path)} shows this now")
    assert f"Explained by <code>parity explain {CASE} --tier strict</code>" in shown
    assert "onnxruntime runs the same graph at " in shown
    assert "ship vae_decoder/mnn/fp32 in its place" in shown

    path.unlink()
    assert project.parity("report").code == 0
    assert page_of(project) == shown


def test_the_page_of_a_run_of_another_build_does_not_show_it(explained, tmp_path):
    project = explained[0].branch(tmp_path / "other")
    project.change("parity.toml", "seed = 0", "seed = 1")
    assert project.parity("run", CASE, *STRICT).code == 1
    before = page_of(project)
    project.change("parity.toml", "seed = 1", "seed = 0")
    assert not project.parity("explain", CASE, *STRICT).check(0).has("shows this now")
    assert page_of(project) == before


def test_a_case_that_agrees_is_not_explained(project):
    project.parity("explain", CASE).check(
        2,
        "agrees in all that was compared",
        "a tighter --tier or --set finds what is nearest",
    )


def test_where_no_setting_helps_it_says_so(project):
    """Nothing takes a sum in another order to the last bit of PyTorch's."""
    ended = project.parity("explain", "vae_decoder/mnn/fp32", "--tier", "exact")
    ended.check(0, "fixed by no setting that was tried")
    assert not ended.has("parity.toml")


CONVERTER = """\
#!{python}
import sys

import MNN, _tools
import onnx
from onnx import numpy_helper

arguments = sys.argv[1:]
if not {right!r} & set(arguments):
    at = arguments.index("--modelFile") + 1
    model = onnx.load(arguments[at])
    for weight in model.graph.initializer:
        if len(weight.dims) == 4:
            wrong = numpy_helper.to_array(weight) * 1.01
            weight.CopyFrom(numpy_helper.from_array(wrong, weight.name))
    onnx.save(model, "wrong.onnx")
    arguments[at] = "wrong.onnx"
_tools.mnnconvert(["", *arguments])
"""
"""The wheel's converter, which gets convolutions wrong without one of some flags."""


def explained_with(project, monkeypatch, *right):
    program = project.path / "bin" / "MNNConvert"
    program.parent.mkdir()
    program.write_text(CONVERTER.format(python=sys.executable, right=set(right)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return project.parity("explain", "vae_decoder/mnn/fp32")


def test_a_flag_without_which_the_converter_is_wrong_fixes_it(project, monkeypatch):
    ended = explained_with(project, monkeypatch, "--optimizeLevel=2")
    ended.check(0, "fixed by --optimizeLevel=2")
    assert not ended.has("nondeterministic")


def test_a_flag_that_helps_by_chance_is_no_fix(project, monkeypatch):
    """Any change of the command may bring a right file, a name in it too."""
    names = {f"--bizCode={'again'.ljust(length, '-')}" for length in (48, 112)}
    ended = explained_with(project, monkeypatch, "--optimizeLevel=2", *names)
    ended.check(0, "of 6 files converted again with the same flags 2 are right")
    assert not ended.has("fixed by --optimizeLevel=2")


@pytest.mark.parametrize("command", ["explain", "repro"])
def test_one_case_is_taken_and_no_more(project, command):
    project.parity(command, "mnn").check(
        2, "takes one case of a component; 'mnn' is vae_decoder/mnn/fp32, "
    )


@pytest.fixture(scope="module")
def folder(passing, tmp_path_factory):
    project, _ = passing
    into = tmp_path_factory.mktemp("repro") / "shown"
    project.parity("repro", CASE, *STRICT, "--out", str(into)).check(0)
    return into


def test_the_folder_shows_the_divergence_without_the_harness(folder):
    ended = run_repro(folder)
    assert ended.returncode == 1, ended.stderr
    assert "largest error " in ended.stdout
    assert " times the noise of float32" in ended.stdout
    assert "harness" not in (folder / "repro.py").read_text()
    assert "torch" not in (folder / "repro.py").read_text()


def test_the_folder_holds_both_models_and_the_numbers(folder):
    assert {path.name for path in folder.iterdir()} == {
        *("exported.onnx", "model.mnn", "model.mnn.weight"),
        *("inputs.npz", "expected.npy", "repro.py", "repro.json"),
    }
    assert np.isfinite(np.load(folder / "expected.npy")).all()


def test_its_script_ends_with_nothing_once_the_two_agree(project, tmp_path):
    project.parity(
        *("repro", "vae_decoder/onnxruntime/fp32", "--probe", "decoder.conv_out"),
        *("--out", str(tmp_path / "fine")),
    ).check(0, "within tolerance there")
    again = run_repro(tmp_path / "fine")
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_folder_that_is_there_is_left_alone(project, folder):
    before = sorted(path.name for path in folder.iterdir())
    project.parity("repro", CASE, *STRICT, "--out", str(folder)).check(
        2, "is there already; give another with --out"
    )
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_value_that_is_not_there_is_refused_and_nothing_written(project, tmp_path):
    into = tmp_path / "none"
    project.parity("repro", CASE, "--probe", "nowhere", "--out", str(into)).check(
        2, "compares no value 'nowhere'; `parity show` lists them"
    )
    assert not into.exists()


def test_ranges_says_what_float16_would_lose(project):
    project.parity("ranges").check(
        0, "vae_decoder float16 holds every value of 1 sample"
    )


def test_its_lines_of_a_kept_value_make_a_variant(quick):
    quick.change("parity.toml", '["fp32"]', '["fp32", "fp16-fixed"]')
    quick.add("parity.toml", KEPT)
    bounds = '[onnxruntime.fp16-fixed]\noutputs = "relaxed"\nlayers = "relaxed"\n'
    quick.add("tolerances.toml", bounds)
    quick.parity("run", "onnxruntime").check(0)
    assert "fp16-fixed" in {case.how for case in load_suite(quick.path).cases}
