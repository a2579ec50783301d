"""What the script of a report says is taken for what it is."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from harness.core.case import Device, Target
from harness.core.errors import ParityError
from harness.core.private import without_paths
from harness.core.program import ended
from harness.core.runtime import runtime
from harness.plugins.explain import post
from harness.plugins.explain.repro import _END
from harness.runtimes.onnxruntime.repro import words
from harness.suite.suite import load_suite
from tests.places import DIGITS

CASE = next(c for c in load_suite(DIGITS).cases if c.id == "unet/mnn/fp32")
DIFFERS = "print('rms 1.0, 9.0 times the noise of float32'); sys.exit(1)"
SHAPE = "sys.exit('shape [1], expected shape [2]')"
AGREES = "print('rms 0.0, 0.0 times the noise of float32')"
RAISES = "raise ImportError('No module named MNN')"
CRASHES = "import os; os.abort()"
SILENT = "sys.exit(3)"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Write the script of a folder, and return the folder."""

    def written(lines):
        (tmp_path / "repro.py").write_text(f"import sys\n{lines}\n")
        return tmp_path

    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    return written


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (DIFFERS, "differs"),
        (SHAPE, "differs"),
        (AGREES, "right"),
        (RAISES, "ImportError: No module named MNN"),
        (CRASHES, "crashes by SIGABRT"),
        (SILENT, "ends with exit code 3"),
    ],
    ids=["differs", "shape", "agrees", "raises", "crashes", "says nothing"],
)
def test_each_installed_version_has_a_row(script, lines, result):
    folder = script(lines)
    python = folder / "store/versions" / f"MNN-3.4.1-{sys.implementation.cache_tag}"
    (python / "bin").mkdir(parents=True)
    (python / "bin/python").symlink_to(sys.executable)
    assert f"| 3.4.1 | {result} |" in post.versions_table(runtime("mnn"), folder)


def test_a_script_that_shows_the_divergence_gives_the_numbers(script):
    assert post.shown(CASE, script(DIFFERS)).startswith("rms 1.0")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (AGREES, "does not show it: the two agree"),
        (RAISES, "does not show it: ImportError: No module named MNN"),
    ],
    ids=["agrees", "raises"],
)
def test_a_script_that_does_not_show_it_is_refused(script, lines, said):
    with pytest.raises(ParityError, match=said):
        post.shown(CASE, script(lines))


def test_the_script_of_a_case_on_a_target_is_not_run(script):
    device = replace(CASE.device, target=Target(name="phone", command=("adb",)))
    said = post.shown(replace(CASE, device=device), script(AGREES))
    assert "was not run here" in said
    assert "phone" not in said


def test_an_option_whose_value_is_a_path_is_in_no_script():
    options: dict[str, str | int | float | bool] = {
        "cache_dir": "/home/ann/cache",
        "device_type": "CPU",
        "load_config": r"C:\Users\ann\config.json",
        "num_streams": 2,
    }
    device = Device(device="openvino", provider_options=tuple(options.items()))

    clean, left_out = post.without_options_of_paths(device)

    assert left_out == ["cache_dir", "load_config"]
    assert words(clean, as_deployed=True)["provider"] == (
        "OpenVINOExecutionProvider",
        {"device_type": "CPU", "num_streams": 2},
    )


WARNS = "print('/home/ann lee/ort.py:12: UserWarning: slow')"


def test_a_path_that_a_runtime_prints_is_in_no_text(script):
    folder = script(f"{WARNS}; print('GPU at ~/ann'); {DIFFERS}")
    text = without_paths(post.shown(CASE, folder))
    assert text.splitlines()[:2] == ["PATH", "GPU at PATH"]
    assert text.endswith("rms 1.0, 9.0 times the noise of float32")


def test_the_script_of_a_case_at_a_version_runs_at_that_version(script):
    folder = script("print(sys.argv, 'rms'); sys.exit(1)")
    made = folder / "store/versions" / f"MNN-3.4.1-{sys.implementation.cache_tag}/bin"
    made.mkdir(parents=True)
    (made / "python").write_text("#!/bin/sh\necho rms of 3.4.1; exit 1\n")
    (made / "python").chmod(0o700)
    device = replace(CASE.device, target=Target(name="old", version="3.4.1"))
    assert post.shown(replace(CASE, device=device), folder) == "rms of 3.4.1"


@pytest.mark.parametrize(
    ("actual", "code", "words"),
    [
        ([1.0, np.nan, np.inf], 0, "rms 0.000000e+00"),
        ([1.5, np.nan, np.inf], 1, "rms 2.886751e-01"),
        ([1.0, 2.0, np.inf], 1, "one of the two alone is NaN or infinite: 1"),
        ([1.0, np.nan, -np.inf], 1, "one of the two alone is NaN or infinite: 1"),
    ],
    ids=["the same", "a number", "no NaN", "the other sign"],
)
def test_two_nan_and_two_infinities_are_the_same_for_the_script(actual, code, words):
    told = {"floor_rms": 1e-7, "allowed_rms": 1e-6}
    head = f"""
import numpy as np, sys
from numpy import inf, nan
told = {told}
actual, expected = np.array({actual}), np.array([1.0, nan, inf])
"""
    script = f"{head}{_END.read_text(encoding='utf-8')}"
    done = ended([sys.executable, "-c", script])
    assert (done.code, words in done.text) == (code, True), done.text
