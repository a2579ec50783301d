"""Pipelines under pytest: workers, a missing runtime, bounds, folders."""

import re

import pytest

from harness.engine.store import Store
from tests.plugin.drawing import MNN, ONNXRUNTIME, write_drawing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def distributed(tmp_path_factory):
    """A run of two workers on an empty store of its own."""
    project = write_drawing(tmp_path_factory.mktemp("distributed"))
    store = project.path / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_STORE", str(store))
        return project, project.start_pytest("-n", "2", "-k", "text2img"), store


def test_two_workers_come_to_the_same_verdicts(distributed):
    project, ended, _ = distributed

    assert ended.code == 0, ended.text
    assert project.outcomes == {
        f"{name}/{what}": "within"
        for name in (ONNXRUNTIME, MNN)
        for what in ("latents", "image")
    }
    told = " 2 of 2 cases agree (weights drawn at random). Closest to their limit:"
    assert ended.parity[0] == told
    for name in (ONNXRUNTIME, MNN):
        assert len(re.findall(rf"^ ✓ {name} ", ended.text, re.MULTILINE)) == 1


def test_two_workers_share_one_reference(distributed):
    _, _, store = distributed
    assert [entry.kind for entry in Store(root=store).entries()].count("drawing") == 1


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
