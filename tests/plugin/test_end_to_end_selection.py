"""The pipeline cases of a suite, their selection, and words that select none."""

import pytest

from tests.plugin.drawing import COMPONENT, MNN, ONNXRUNTIME, PIPELINES, write_drawing


def collected(ended):
    assert ended.code == 0, ended.text
    lines = (line for line in ended.text.splitlines() if "[" in line)
    return [line.partition("[")[2].rstrip("]") for line in lines]


@pytest.fixture
def project(tmp_path):
    return write_drawing(tmp_path)


def test_pytest_collects_latents_and_image_of_every_runtime(project):
    ids = collected(project.collect())
    assert [name for name in ids if name.startswith("text2img/")] == [
        f"{ONNXRUNTIME}/latents",
        f"{ONNXRUNTIME}/image",
        f"{MNN}/latents",
        f"{MNN}/image",
    ]
    assert f"{COMPONENT}/layers" in ids


def test_k_and_an_option_select_a_pipeline(project):
    ids = collected(project.collect("-k", "text2img and mnn"))
    of_one = collected(project.collect("--parity-component=text2img"))
    assert ids == [f"{MNN}/latents", f"{MNN}/image"]
    assert {name.split("/")[0] for name in of_one} == {"text2img"}


def test_e2e_lists_pipelines_and_no_component(project):
    ended = project.parity("run", "--e2e", "--list")
    assert (ended.code, ended.text.split()) == (0, [ONNXRUNTIME, MNN])


def test_e2e_runs_pipelines_alone(drawing):
    ended = drawing.parity("run", "--e2e").check(0)
    assert ended.text.startswith("parity: parity.toml · 1 case: 1 pipeline, 1 backend")
    assert ended.has("1 of 1 case agrees")
    assert [case["case"] for case in drawing.report["cases"]] == [ONNXRUNTIME]


def test_e2e_without_a_pipeline_is_2_and_a_sentence(project):
    project.change("parity.toml", PIPELINES, "")
    project.change("parity.toml", '[component.text_encoder]\nattention = "eager"\n', "")
    ended = project.parity("run", "--e2e")
    assert ended.code == 2
    assert ended.text == (
        "parity: parity.toml has no end-to-end case; add [pipeline.text2img].\n"
    )
    assert not (project.path / "reports").exists()


def test_e2e_of_a_component_is_2_and_names_what_there_is(project):
    ended = project.parity("run", "--e2e", "vae_decoder")
    assert ended.code == 2
    assert ended.text == (
        "parity: parity.toml has no end-to-end case of that name; "
        f"there are {ONNXRUNTIME}, {MNN}.\n"
    )


@pytest.mark.parametrize("run", ["pytest", "parity"])
def test_a_bad_word_in_a_pipeline_is_2_and_a_line_of_the_file(project, run):
    project.change("parity.toml", "guidance_scale = 3.0", "guidance = 3.0")
    lines = (project.path / "parity.toml").read_text().splitlines()
    line = lines.index("guidance = 3.0") + 1

    ended = project.collect() if run == "pytest" else project.parity("run")

    ended.check(
        2,
        f"parity.toml:{line}: unknown key 'guidance'",
        "did you mean 'guidance_scale'?",
    )


def test_a_seat_that_is_not_tested_alone_takes_export_settings_only(project):
    project.change("parity.toml", 'attention = "eager"', "penultimate = true")
    project.parity("run").check(
        2, "there is no component 'text_encoder' here; list it in"
    )
