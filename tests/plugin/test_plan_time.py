"""`parity plan --objective time`: faster than every file that holds, or not written."""

import shutil
from types import SimpleNamespace

import pytest

from harness.core.errors import SuiteError
from harness.plugins.plan.command import _bench
from harness.suite.suite import load_suite
from tests.plugin.planted import BOUND, write_planted
from tests.plugin.project import called, files_in

WIDE = {"wide": {"width": 512, "plant": "outlier", "at": 1}}
FAST = ("plan", "wide", "--objective", "time", "--within", BOUND, "--unseen", "1")


@pytest.fixture(scope="module")
def wide(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    return write_planted(tmp_path_factory.mktemp("wide") / "suite", WIDE, batch=128)


@pytest.mark.alone
def test_a_plan_is_faster_than_float32_and_keeps_what_bears_no_rounding(wide):
    called(wide, *FAST, "--backend", "onnxruntime").check(
        0,
        "2 layers in 8 bits, 1 layer in float32, of 3 layers.",
        "layers in 8 bits as DynamicQuantizeMatMul, in float32 as Gemm",
    )
    explained = called(wide, "plan", "wide", "--explain", "blocks.1")
    assert explained.has("In 8 bits in place of float32 it would be")
    assert explained.has("ms faster and use")


@pytest.mark.alone
def test_a_plan_that_the_runtime_widens_again_is_refused_or_said_so(wide, tmp_path):
    wide = shutil.copytree(wide, tmp_path / "suite")
    before = files_in(wide)
    ended = called(wide, *FAST, "--backend", "mnn")
    if ended.code == 0:  # A machine may time equal arithmetic differently each time.
        assert ended.has("These are the same operators"), ended.text
        return
    ended.check(2, "there is nothing to choose")
    assert files_in(wide) == before


def changed(wide, folder, told, more=""):
    """Copy the suite, and say something more about MNN."""
    suite = shutil.copytree(wide, folder / "suite")
    text = (suite / "parity.toml").read_text()
    text = text.replace("[backend.mnn]\n", f"[backend.mnn]\n{told}\n")
    (suite / "parity.toml").write_text(text + more)
    loaded = load_suite(suite)
    return loaded, next(case for case in loaded.cases if case.backend == "mnn")


def test_a_target_that_is_not_timed_is_named(wide, tmp_path, capsys):
    phone = '[target.phone]\ncommand = ["a-phone"]\n'
    suite, case = changed(wide, tmp_path, 'targets = ["here", "phone"]', phone)
    _bench(SimpleNamespace(artifacts=None), suite, case)
    said = capsys.readouterr().err
    assert "timed on this machine alone, and not on phone" in said


def test_a_plan_for_another_device_than_the_processor_has_no_times(wide, tmp_path):
    suite, case = changed(wide, tmp_path, 'device = "opencl"')
    with pytest.raises(SuiteError, match="runs on opencl, and times of single"):
        _bench(SimpleNamespace(artifacts=None), suite, case)
