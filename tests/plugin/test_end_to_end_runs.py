"""Pipelines under pytest: workers, a missing runtime, bounds, folders."""

import re

import pytest

from tests.plugin.drawing import MNN, ONNXRUNTIME, write_drawing

pytestmark = pytest.mark.slow


def test_a_bound_of_pictures_is_set_on_the_command_line(drawing):
    ended = drawing.pytest("-k", "text2img", "--parity-set", "psnr_db=500").check(1)
    assert re.search(r"PSNR \d+\.\d dB, at least 500.0 asked", ended.text)
    assert drawing.report["changes"] == ["psnr_db=500"]


@pytest.mark.parametrize("run", ["pytest", "parity"])
def test_a_missing_tolerance_is_2_and_a_sentence_before_anything_runs(drawing, run):
    drawing.change("tolerances.toml", 'image = "standard"\n', "")

    ended = drawing.pytest() if run == "pytest" else drawing.parity("run", "--e2e")

    ended.check(
        2,
        f"tolerances.toml: no image tolerance for {ONNXRUNTIME}; add "
        'image = "standard" under [onnxruntime.fp32].',
    )
    assert not ended.has("agree")
    assert drawing.reports == []


def test_a_missing_tolerance_of_mixtures_is_one_table_for_all(drawing):
    drawing.change(
        "parity.toml", "steps = 3", 'steps = 3\nmixed = ["pytorch", "onnxruntime/fp32"]'
    )
    drawing.parity("run").check(
        2, 'add latents = "standard" and image = "standard" under [mixed."*"].'
    )


@pytest.mark.usefixtures("store", "without_mnn")  # no artifact is made
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ("2 skipped", "1 case skipped: mnn is not installed")),
        (
            ("--parity-require=mnn",),
            ("2 failed", f"{MNN}/image: unavailable: mnn is not installed (pip"),
        ),
    ],
    ids=["may-lack", "required"],
)
def test_a_pipeline_whose_runtime_is_missing_is_2_and_says_so(tmp_path, options, said):
    write_drawing(tmp_path).pytest("-k", "text2img and mnn", *options).check(2, *said)
