"""`parity plan` writes a variant that is smaller, holds its bound, and can be run."""

import json
import tomllib

import pytest

from harness.plugins.plan.place import FEW, MANY, place_of
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.plugin.drawing import STEPS, write_drawing
from tests.plugin.project import TOLERANCES, unchanged, write_project
from tests.unit import browser as chromiums

pytestmark = pytest.mark.slow


PROMPTS = FEW + 2
PLAN = ("plan", "vae_decoder", "--unseen", "2")
BOUND = 'outputs = "quantized"'
TIGHT = "outputs = { sqnr_db = 30.0 }\nwhy = 'for a plan of several widths'"


def bounded(project, text=TIGHT):
    """Give the variant that a plan starts from another bound of its outputs."""
    path = project.path / "tolerances.toml"
    head, table, rest = path.read_text().partition("[mnn.int8-weights]")
    path.write_text(head + table + rest.replace(BOUND, text, 1))
    return project


@pytest.fixture(scope="module")
def planned(passing, tmp_path_factory):
    """A project with a plan of its decoder, and what the command printed."""
    project = bounded(passing[0].branch(tmp_path_factory.mktemp("plan") / "project"))
    return project, project.parity(*PLAN, "--within", "outputs")


def bits(project):
    text = (project.path / "vae_decoder-planned.json").read_text()
    (algorithm,) = json.loads(text)["algo"]
    layers = algorithm["quantParams"]["layer"]
    return {one["opName"]: one["weight"][0]["bits"] for one in layers}


def test_a_plan_says_what_it_gained_and_how_well_errors_add_up(planned):
    _, ended = planned
    ended.check(
        0,
        "The sum of the layers' single squared errors is",
        "On 2 inputs that the search did not see, the plan uses",
        "of 8 conversions",
    )


def test_a_plan_uses_several_widths(planned):
    assert len({*bits(planned[0]).values()}) > 1


def test_the_suite_has_the_plan_as_a_variant_of_the_component(planned):
    project, _ = planned

    table = tomllib.loads((project.path / "parity.toml").read_text())["variant"]["mnn"]
    (case,) = (c for c in load_suite(project.path).cases if c.variant.name == "planned")

    assert table["planned"] == {
        "from": "int8-weights",
        "flags": ["--compressionParamsFile=vae_decoder-planned.json"],
        "components": ["vae_decoder"],
    }
    assert case.variant.files[0][1] == project.path / "vae_decoder-planned.json"


def sizes(project):
    """Size of each variant's deployed file, in bytes, in a project's last run."""
    return {
        one["variant"]: one["artifacts"][one["backend"]]["size_bytes"]
        for one in project.report["cases"]
    }


def test_the_plan_runs_within_its_tolerances_and_is_smaller_than_int8(planned):
    project, _ = planned
    project.parity("run", "mnn/planned", "mnn/int8-weights").check(0)
    size = sizes(project)
    assert size["planned"] < size["int8-weights"]


def test_the_page_of_a_plan_opens_with_its_chart_and_every_layer(planned):
    project, ended = planned
    path = project.path / "reports/plans/mnn/vae_decoder-planned.html"
    with chromiums.chromium() as browser, chromiums.opened(browser, path) as seen:
        seen.page.wait_for_selector("#sizes-chart .scatterlayer .point")
        texts = seen.page.locator("#sizes-chart .textpoint text").all_text_contents()
        blocks = seen.page.locator(".blocks .block").count()

        assert sorted(texts) == ["fp32", "int4-weights", "int8-weights", "planned"]
        assert blocks == len(bits(project))
        assert seen.complaints == []
    assert ended.has(path.name)


def test_the_front_of_a_plan_goes_from_small_files_to_small_errors(planned):
    path = planned[0].path / "reports/plans/mnn/vae_decoder-planned.json"
    front = json.loads(path.read_text())["front"]
    usages = [one["usage"] for one in front]
    assert len(front) > 2
    assert front == sorted(front, key=lambda one: one["size_bytes"])
    assert usages == sorted(usages, reverse=True)


def test_a_layer_is_explained_by_its_module_and_by_its_operator(planned):
    project, _ = planned
    by_module = project.parity("plan", "vae_decoder", "--explain", "decoder.conv_in")
    by_operator = project.parity("plan", "vae_decoder", "--explain", "conv2d_1")
    assert by_module.code == 0, by_module.text
    assert by_module.text == by_operator.text
    assert by_module.has("this layer alone would use")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--explain", "decoder.conv_inn"), "did you mean 'decoder.conv_in'?"),
        (("--explain", "x", "--backend", "openvino"), "there is no plan at"),
        (("--within", "picture"), "--within takes outputs, latents, image or bounds"),
        (
            ("--within", "psnr_db=9,sqnr_db=9"),
            "psnr_db and ssim bound pictures, and sqnr_db bounds outputs",
        ),
        (("--within", "image"), "no pipeline of parity.toml has vae_decoder in mnn"),
        (("--within", "latents", "--pipeline", "p"), "'p' is not in the suite"),
        (("--within", "outputs", "--backend", "tvm"), "does not run in 'tvm'"),
        (("--within", "outputs", "--name", "fp32"), "the variant mnn/fp32 is built in"),
        (("--within", "outputs", "--name", "a/b"), "'a/b'"),
        ((), "give a bound: parity plan vae_decoder --within outputs."),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_a_sentence(planned, options, words):
    with unchanged(planned[0].path):
        planned[0].parity("plan", "vae_decoder", *options).check(2, words)


@pytest.fixture(scope="module")
def in_pictures(drawn, tmp_path_factory):
    """A plan of a decoder that is held to a bound of a pipeline's pictures."""
    project = drawn[0].branch(tmp_path_factory.mktemp("pictures") / "project")
    prompts = [f"a {number} in red ink" for number in range(PROMPTS)]
    project.change("parity.toml", '["a seven in red ink on white paper"]', str(prompts))
    bound = "psnr_db=45,ssim=0.9"
    return project, project.parity(*PLAN, "--within", bound, "--name", "seen")


def test_layers_alone_are_measured_on_the_few_pictures_that_move_most(in_pictures):
    _, ended = in_pictures
    assert ended.has(f"over {FEW} values of image of text2img"), ended.text


def test_a_plan_within_a_bound_of_pictures_writes_that_bound(in_pictures):
    project, ended = in_pictures
    assert ended.code == 0, ended.text
    tolerances = tomllib.loads((project.path / "tolerances.toml").read_text())
    assert tolerances["mnn"]["seen"]["image"] == {"psnr_db": 45.0, "ssim": 0.9}


@pytest.fixture(scope="module")
def in_latents(drawn, tmp_path_factory):
    """A plan of a text encoder that is held to a bound of a pipeline's latents."""
    project = drawn[0].branch(tmp_path_factory.mktemp("latents") / "project")
    project.change("parity.toml", '["vae_decoder"]', '["vae_decoder", "text_encoder"]')
    bound = "[mnn.int8-weights]\nlatents = { sqnr_db = 30.0 }\nwhy = 'a plan'\n"
    project.add("tolerances.toml", bound)
    return project.parity("plan", "text_encoder", "--within", "latents")


def test_a_plan_within_a_bound_of_latents_names_the_step_that_it_moves_most(in_latents):
    in_latents.check(0, "Rounding moves step ")


def test_the_search_knows_what_a_role_gives_the_first_step(in_latents):
    embeddings = 1
    words = f"over {STEPS + embeddings} values of latents of text2img"
    assert in_latents.has(words), in_latents.text


def test_a_plan_within_a_bound_of_pictures_has_the_pipelines_batch(tmp_path):
    project = write_drawing(tmp_path / "guided")
    project.only_onnxruntime()
    project.change("parity.toml", '["vae_decoder"]', '["unet"]')
    suite = load_suite(project.path)
    place = place_of(suite, None, "unet", "onnxruntime", what="image")
    assert {dict(one.shapes)["batch"] for one in place.case.samples} == {2}


def test_a_search_draws_the_suites_own_samples_in_the_first_size():
    suite = load_suite(FIXTURES / "sd15")
    place = place_of(suite, None, "unet", "mnn", what="outputs")
    first, *_ = place.case.samples
    ids = [sample.id for sample in place.searched.samples]
    assert ids == ["realistic-0", "realistic-1", "realistic-2"]
    assert {sample.shapes for sample in place.searched.samples} == {first.shapes}
    assert len(place.case.samples) > len(ids)


def test_the_few_inputs_are_those_that_use_most_of_their_limits(tmp_path):
    project = write_drawing(tmp_path / "drawing")
    project.change(
        "parity.toml", '["a seven in red ink on white paper"]', str(["a"] * 12)
    )

    place = place_of(load_suite(project.path), None, "vae_decoder", "mnn", what="image")

    # A step is of all pictures. The names of pictures 1 and 11 begin alike.
    shares = {f"picture {at}": at / 10 for at in range(12)} | {"step 01": 9.0}
    assert place.most_moved(shares) == (8, 9, 10, 11)
    assert place.most_moved(shares | {"picture 1": 2.0}) == (1, 9, 10, 11)
    assert place.most_moved({"step 01": 9.0}) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("sqnr_db", "said"),
    [
        pytest.param(
            190.0, "vae_decoder/mnn/fp32 itself is out of this bound", id="float32"
        ),
        pytest.param(100.0, "was found that holds this bound", id="any-rounding"),
    ],
)
def test_a_bound_that_is_too_tight_is_refused(project, sqnr_db, said):
    bounded(project, f"outputs = {{ sqnr_db = {sqnr_db} }}\nwhy = 'tight'")
    with unchanged(project.path):
        project.parity(*PLAN, "--within", "outputs").check(2, said)


@pytest.fixture(scope="module")
def in_onnxruntime(store, tmp_path_factory):  # noqa: ARG001  # which it fills
    """A project with a plan for ONNX Runtime, of a decoder with matrix products."""
    project = write_project(tmp_path_factory.mktemp("onnxruntime") / "project")
    project.change(
        "checkpoint/vae/config.json",
        '"mid_block_add_attention": false',
        '"mid_block_add_attention": true',
    )
    project.change(
        "parity.toml",
        '[backend.mnn]\nvariants = ["fp32", "int8-weights"]\n',
        '[backend.openvino]\nvariants = ["fp32"]\n',
    )
    project.change(
        "parity.toml",
        '[backend.onnxruntime]\nvariants = ["fp32"]',
        '[backend.onnxruntime]\nvariants = ["fp32", "int8-weights"]',
    )
    project.change("parity.toml", "realistic = 1", f"realistic = {MANY + 1}")
    exact, _, integers = TOLERANCES.partition("[mnn.fp32]")
    integers = integers.partition("[mnn.")[2]
    (project.path / "tolerances.toml").write_text(
        f"{exact}{exact.replace('onnxruntime', 'openvino')}[onnxruntime.{integers}"
    )
    return project, project.parity(*PLAN, "--within", "sqnr_db=63")


def test_onnxruntime_gets_a_plan_of_integers_and_float16(in_onnxruntime):
    _, ended = in_onnxruntime
    ended.check(0, "in 8 bits", "in float16, of 15 layers")


def test_the_last_check_has_all_samples_of_the_suite(in_onnxruntime):
    drawn, beyond_the_search = 2, 1
    words = f"On {drawn + beyond_the_search} inputs that the search did not see"
    assert in_onnxruntime[1].has(words), in_onnxruntime[1].text


def test_the_plan_names_layers_as_a_variant_by_hand_does(in_onnxruntime):
    project, _ = in_onnxruntime
    text = (project.path / "parity.toml").read_text()
    table = tomllib.loads(text)["variant"]["onnxruntime"]["planned"]
    (flag,) = table.pop("flags")
    assert flag.startswith("--half=")
    assert table == {"from": "int8-weights", "components": ["vae_decoder"]}


def test_the_plan_for_onnxruntime_runs_and_is_smaller_than_int8(in_onnxruntime):
    project, _ = in_onnxruntime
    project.parity("run", "onnxruntime/planned", "onnxruntime/int8-weights").check(0)
    size = sizes(project)
    assert size["planned"] < size["int8-weights"]


def test_a_layer_of_the_plan_for_onnxruntime_is_explained(in_onnxruntime):
    project, _ = in_onnxruntime
    value = "decoder.mid_block.attentions.0.to_out.0"
    project.parity("plan", "vae_decoder", "--explain", value).check(
        0, "is stored in float16", "In 8 bits in place of float16 it would be"
    )
