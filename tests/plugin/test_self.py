"""`within`: the model's own error is the bound, on the screen, on the page, later."""

import pytest

from tests.plugin.drawing import ONNXRUNTIME, WRONG, pipeline, write_drawing
from tests.plugin.project import MAKING, parity_without, write_project

INT8 = "vae_decoder/mnn/int8-weights"
WITHIN = """\
[vae_decoder.mnn.int8-weights]
outputs = { within = "self-bf16" }
why = "no worse than the model's own bfloat16"
"""


def tables(within=WITHIN):
    return f'[mnn.int8-weights]\noutputs = "quantized"\nlayers = "quantized"\n{within}'


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    project = write_project(tmp_path_factory.mktemp("self"))
    project.change("parity.toml", '[backend.onnxruntime]\nvariants = ["fp32"]\n', "")
    project.change("parity.toml", '"fp32", "int8-weights"', '"int8-weights"')
    (project.path / "tolerances.toml").write_text(tables())
    return project, project.parity("run")


def own_of(project, case=INT8, what="outputs"):
    """The ratio of a case's error to the model's own, from the record."""
    record = project.case(case)
    names = [record["probes"]["what"][at] for at in record["rows"]["probe"]]
    rms = dict(zip(names, record["rows"]["rms"], strict=True))
    return rms[what] / rms["self-bf16"]


def test_the_case_passes_exactly_where_it_is_no_worse_than_the_model(ran):
    project, ended = ran
    times = own_of(project)
    ended.check(
        0 if times <= 1 else 1, f"off by {times:.3g} × the model's own bfloat16"
    )


def test_the_page_says_it_too(ran):
    (page,) = ran[0].path.glob("reports/runs/*/report.html")
    times = own_of(ran[0])
    assert (
        f"outputs off by {times:.3g} × the model&#39;s own bfloat16" in page.read_text()
    )


BESIDE = WITHIN.replace("{ within", "{ floors = 1.0, within")
FLOAT16 = WITHIN.replace("bf16", "fp16")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (WITHIN, 0, "× the model's own bfloat16, allowed 1"),
        (BESIDE, 1, "outputs off by 0."),
        (FLOAT16, 1, "the model's own float16 was not measured"),
    ],
)
def test_a_recorded_run_is_judged_again_without_pytorch(ran, text, code, said):
    project, _ = ran
    (project.path / "tolerances.toml").write_text(tables(text))
    parity_without(project, MAKING, "show", "last").check(code, said)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A pipeline, and one whose app is wrong by more than the model's own bfloat16."""
    project = write_drawing(tmp_path_factory.mktemp("pictures"))
    project.only_onnxruntime()
    project.add("parity.toml", pipeline("scaled", WRONG, "attribution = false"))
    within = 'image = { within = "self-bf16" }\nwhy = "as bfloat16"'
    project.change("tolerances.toml", 'image = "standard"', within)
    return project, project.parity("run", "text2img", "scaled", "--e2e")


def test_a_picture_may_be_as_far_off_as_the_models_own(drawn):
    project, ended = drawn
    scaled = "scaled/onnxruntime/fp32"
    assert own_of(project, ONNXRUNTIME, "image") < 1, ended.text
    assert project.outcomes[f"{ONNXRUNTIME}/image"] == "within"
    assert own_of(project, scaled, "image") > 1
    assert project.outcomes[f"{scaled}/image"] == "exceeds"
    assert ended.has("× the model's own bfloat16")
