"""`harness.suite.pipelines`: what [pipeline.*] means, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.core.errors import SuiteError
from harness.core.groups import sample_groups
from harness.core.pipeline import App, Control, Sampling
from harness.engine.keys import onnx_key
from harness.runtimes.diffusion.hints import fit, read_image, three_channels
from harness.runtimes.diffusion.inputs import draw_inputs
from harness.suite.suite import load_suite

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
UPRIGHT, TURNED = 1, 6
"""Exif's words for: show it as it is, and turned by a quarter, clockwise."""

SUITE = f"""\
components = ["text_encoder", "unet"]
[source]
checkpoint = {json.dumps(str(DIGITS))}
[export]
dynamic_axes = ["batch"]
[[shapes]]
batch = 1
height = 32
width = 16
[[shapes]]
batch = 3
height = 16
width = 16
[inputs]
profiles = ["realistic"]
realistic = 2
[backend.onnxruntime]
variants = ["fp32", "fp16"]
[backend.mnn]
variants = ["fp32", "int8-weights"]
"""
FIRST = SUITE.count("\n") + 1
"""Line of the pipeline's header."""

TEXT = """\
[pipeline.text2img]
prompts = ["three"]
height = 64
width = 64
"""
IMAGE = TEXT.replace("text2img", "img2img")
CANNY = """\
[pipeline.canny]
kind = "controlnet"
prompts = ["three"]
resolution = 128
"""


@pytest.fixture
def load(tmp_path):
    def load(pipelines, suite=SUITE):
        path = tmp_path / "parity.toml"
        path.write_text(suite + pipelines, encoding="utf-8")
        return load_suite(path)

    return load


@pytest.fixture
def pipeline(load):
    return lambda text: load(text).chains[0].pipeline


@pytest.fixture
def checkpoint(tmp_path):
    """Digits without some of its folders."""

    def checkpoint(*without):
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        for child in DIGITS.iterdir():
            if child.name not in without:
                (folder / child.name).symlink_to(child)
        return SUITE.replace(json.dumps(str(DIGITS)), '"checkpoint"')

    return checkpoint


def changed(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)


def picture(folder, height, width, orientation=UPRIGHT):
    path = folder / "picture.png"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.zeros((height, width), np.uint8)).save(path, exif=exif)
    return path


def chain(suite, name):
    (found,) = [chain for chain in suite.chains if chain.id == name]
    return found


def sizes(chain):
    """What each seat's file must take, by symbol."""
    return {
        seat: dict(sample.shapes)
        for seat, case in chain.seats
        for sample in case.samples
    }


# Chains


def test_chains_stand_in_file_order_after_the_components_cases(load):
    suite = load(TEXT + 'variants = ["fp32"]\n' + CANNY)

    assert [chain.id for chain in suite.chains] == [
        "text2img/onnxruntime/fp32",
        "text2img/mnn/fp32",
        "canny/onnxruntime/fp32",
        "canny/onnxruntime/fp16",
        "canny/mnn/fp32",
        "canny/mnn/int8-weights",
    ]
    assert suite.tested == (*suite.cases, *suite.chains)


def test_a_variant_that_one_runtime_has_is_run_in_that_one(load):
    suite = load(TEXT + 'variants = ["int8-weights"]\n')

    assert [chain.id for chain in suite.chains] == ["text2img/mnn/int8-weights"]


@pytest.mark.parametrize(
    ("text", "seats"),
    [
        (TEXT, ["text_encoder", "unet", "vae_decoder"]),
        (IMAGE, ["text_encoder", "vae_encoder", "unet", "vae_decoder"]),
        (CANNY, ["text_encoder", "controlnet", "controlled_unet", "vae_decoder"]),
    ],
)
def test_every_seat_is_taken_by_the_component_of_its_name(load, text, seats):
    first = load(text).chains[0]

    assert [seat for seat, _ in first.seats] == seats
    assert [component.name for component in first.pipeline.components] == seats
    for seat, case in first.seats:
        assert case.component.name == seat
        assert case.id == f"{seat}/onnxruntime/fp32"


def test_a_name_of_ones_own_has_a_kind(load):
    suite = load(changed(TEXT, "[pipeline.text2img]", '[pipeline.a]\nkind="text2img"'))

    assert suite.chains[0].id == "a/onnxruntime/fp32"
    assert suite.chains[0].pipeline.kind == "text2img"


def test_a_chain_is_selected_and_checked_by_its_id(load):
    suite = load(TEXT)

    chosen = [case.id for case in suite.select(["text2img/mnn"])]
    assert chosen == ["text2img/mnn/fp32", "text2img/mnn/int8-weights"]
    checks = [check.id for check in suite.checks("latents", "image")]
    assert checks[:2] == [
        "text2img/onnxruntime/fp32/latents",
        "text2img/onnxruntime/fp32/image",
    ]
    assert len(checks) == 2 * len(suite.chains)


def test_settings_of_a_component_hold_for_its_seat_listed_or_not(load):
    listed = changed(
        SUITE, "[inputs]", '[component.unet]\nexporter = "torchscript"\n[inputs]'
    )
    suite = load(TEXT, listed)
    seats = dict(chain(suite, "text2img/mnn/fp32").seats)

    assert seats["unet"].export.exporter == "torchscript"
    assert seats["vae_decoder"].export.exporter == "dynamo"


def test_a_component_under_another_name_takes_the_seat_of_its_recipe(load):
    own = changed(SUITE, '"unet"]', '"painter"]').replace(
        "[inputs]", '[component.painter]\nrecipe = "unet"\n[inputs]'
    )

    seats = dict(chain(load(TEXT, own), "text2img/mnn/fp32").seats)

    assert seats["unet"].component.name == "painter"


# Mixed chains


def test_three_runtimes_make_24_mixed_chains_of_27(load):
    words = '["pytorch", "onnxruntime/fp32", "mnn/fp32"]'
    suite = load(f"{TEXT}mixed = {words}\n")
    mixed = [chain for chain in suite.chains if chain.backend == "mixed"]

    assert len(mixed) == 24
    assert len({chain.id for chain in mixed}) == 24
    assert mixed[0].id == "text2img/mixed/pytorch-pytorch-onnxruntime"
    assert mixed[-1].id == "text2img/mixed/mnn-mnn-onnxruntime"
    names = ("pytorch", "onnxruntime", "mnn")
    for seen in mixed:
        words = seen.variant.split("-")
        assert len(words) == 3
        assert set(words) <= set(names)
        assert len(set(words)) > 1


def test_four_seats_in_two_runtimes_make_14_mixed_chains(load):
    suite = load(IMAGE + 'mixed = ["pytorch", "mnn/fp32"]\n')

    mixed = [chain for chain in suite.chains if chain.backend == "mixed"]
    assert len(mixed) == 2**4 - 2
    assert mixed[0].variant == "pytorch-pytorch-pytorch-mnn"


def test_who_sits_where_is_as_the_name_says(load):
    suite = load(TEXT + 'mixed = ["pytorch", "onnxruntime/fp16", "mnn/int8-weights"]\n')

    found = chain(suite, "text2img/mixed/onnxruntime.fp16-pytorch-mnn.int8-weights")

    assert found.asked == {
        "text_encoder": "onnxruntime/fp16",
        "unet": "pytorch",
        "vae_decoder": "mnn/int8-weights",
    }
    assert dict(found.seats)["unet"] is None
    assert found.runtimes == ("onnxruntime", "mnn")


def test_controlnet_and_unet_are_one_seat_of_a_mixture(load):
    suite = load(CANNY + 'mixed = ["pytorch", "onnxruntime/fp32", "mnn/fp32"]\n')
    mixed = [chain for chain in suite.chains if chain.backend == "mixed"]

    assert len(mixed) == 24
    for found in mixed:
        assert found.asked["controlnet"] == found.asked["controlled_unet"]
        assert len(found.variant.split("-")) == 3
    found = chain(suite, "canny/mixed/pytorch-mnn-onnxruntime")
    assert found.asked["controlled_unet"] == "mnn/fp32"


def test_mixtures_are_drawn_alike_and_their_seats_are_not_exchanged(load):
    suite = load(TEXT + 'mixed = ["pytorch", "mnn/fp32"]\n')
    whole, mixed = chain(suite, "text2img/mnn/fp32"), suite.chains[-1]

    assert whole.pipeline.attribution
    assert not mixed.pipeline.attribution
    assert mixed.pipeline.prompts == whole.pipeline.prompts


def test_nothing_is_mixed_unless_it_is_asked_for(load):
    assert {chain.backend for chain in load(TEXT).chains} == {"onnxruntime", "mnn"}


def test_a_mixture_of_one_is_refused(load):
    with pytest.raises(SuiteError, match="mixed"):
        load(TEXT + 'mixed = ["mnn/fp32"]\n')


# What is drawn


def test_what_is_left_out_has_its_default(pipeline):
    made = pipeline(TEXT)

    assert (made.steps, made.guidance_scale, made.eta, made.seed) == (20, 7.5, 0.0, 0)
    assert (made.added_prompt, made.negative_prompt, made.samples) == ("", "", 1)
    assert (made.sampling, made.app, made.control) == (Sampling(), App(), Control())
    assert (made.image, made.strength, made.reader) == (None, 0.8, "")


def test_what_is_written_is_read(pipeline, tmp_path):
    picture(tmp_path, 64, 64)
    made = pipeline(
        IMAGE
        + """negative_prompt = "blurred"
image = "picture.png"
strength = 0.25
steps = 7
guidance_scale = 1
eta = 1
seed = 5
attribution = false
"""
    )

    assert made.negative_prompt == "blurred"
    assert made.image == tmp_path / "picture.png"
    assert (made.strength, made.steps, made.seed) == (0.25, 7, 5)
    assert (made.guidance_scale, made.eta) == (1.0, 1.0)
    assert not made.guided
    assert not made.attribution


def test_every_prompt_is_drawn_as_often_as_samples_ask(pipeline):
    text = changed(TEXT, '["three"]', '["three", "four"]')
    made = pipeline(text + 'samples = 2\nadded_prompt = "red ink"\n')

    assert made.texts == (
        "three, red ink",
        "three, red ink",
        "four, red ink",
        "four, red ink",
    )


def test_one_prompt_needs_no_list_and_may_be_empty(pipeline):
    assert pipeline(changed(TEXT, '["three"]', '"three"')).texts == ("three",)
    assert pipeline(changed(TEXT, '["three"]', '[""]')).texts == ("",)


def test_prompts_are_read_from_a_file_one_a_line(pipeline, tmp_path):
    (tmp_path / "lines.txt").write_text("one\n\n  two  \n", encoding="utf-8")

    made = pipeline(changed(TEXT, 'prompts = ["three"]', 'prompts_file = "lines.txt"'))

    assert made.prompts == ("one", "two")


def test_a_prompts_file_without_prompts_is_refused(load, tmp_path):
    (tmp_path / "lines.txt").write_text("\n  \n", encoding="utf-8")

    with pytest.raises(
        SuiteError, match=rf"parity\.toml:{FIRST + 1}: .*nothing to draw"
    ):
        load(changed(TEXT, 'prompts = ["three"]', 'prompts_file = "lines.txt"'))


def test_a_scheduler_has_a_short_word_and_options(pipeline):
    made = pipeline(
        TEXT + 'scheduler = "dpm++"\n[pipeline.text2img.scheduler_options]\n'
        'timestep_spacing = "trailing"\nsolver_order = 3\nlower_order_final = false\n'
    )

    assert made.sampling == Sampling(
        scheduler="dpm++",
        options=(
            ("timestep_spacing", "trailing"),
            ("solver_order", 3),
            ("lower_order_final", False),
        ),
    )


def test_what_the_app_does_otherwise_is_read(pipeline):
    text = 'scheduler = "euler"\n[pipeline.text2img.app]\n'

    assert pipeline(TEXT + text).app == App()
    assert pipeline(TEXT + text + "scaling_factor = 0.13025\n").app == App(
        scaling_factor=0.13025
    )
    assert pipeline(TEXT + text + "guidance_scale = 4.0\n").app == App(
        guidance_scale=4.0
    )
    assert pipeline(TEXT + text + 'scheduler = "lms"\n').app.sampling == Sampling(
        scheduler="lms"
    )
    options = "scheduler_options = { steps_offset = 0 }\n"
    assert pipeline(TEXT + text + options).app.sampling == Sampling(
        scheduler="euler", options=(("steps_offset", 0),)
    )


def test_a_checkpoint_without_a_scheduler_can_be_drawn(load, checkpoint, tmp_path):
    suite = checkpoint("scheduler", "model_index.json")
    index = json.loads((DIGITS / "model_index.json").read_text(encoding="utf-8"))
    absent = json.dumps({**index, "scheduler": [None, None]})
    (tmp_path / "checkpoint" / "model_index.json").write_text(absent, encoding="utf-8")

    (own, *_), (named, *_) = (
        load(text, suite).chains for text in (TEXT, TEXT + 'scheduler = "euler"\n')
    )

    assert own.pipeline.sampling == Sampling()
    assert named.pipeline.sampling == Sampling(scheduler="euler")


def test_a_pipeline_that_the_checkpoint_cannot_draw_is_named_with_its_line(
    load, checkpoint
):
    with pytest.raises(SuiteError, match=rf"parity\.toml:{FIRST}: .*controlnet"):
        load(CANNY, checkpoint("controlnet"))


def test_the_reader_is_looked_up_beside_the_suite(pipeline, tmp_path):
    (tmp_path / "eyes.py").touch()

    beside = pipeline(TEXT + 'reader = "eyes.py:read"\n')
    module = pipeline(TEXT + 'reader = "my.eyes:read"\n')

    assert beside.reader == f"{tmp_path / 'eyes.py'}:read"
    assert module.reader == "my.eyes:read"


def test_a_hint_is_described(pipeline):
    made = pipeline(
        CANNY + "low_threshold = 50\nhigh_threshold = 50\nstrength = 1.5\n"
        "guess_mode = true\n"
    )

    assert made.control == Control(
        resolution=128,
        low_threshold=50,
        high_threshold=50,
        strength=1.5,
        guess_mode=True,
    )
    assert (made.height, made.width) == (128, 128)


# Sizes


def test_guidance_doubles_the_batch_of_the_unet_alone(load):
    text = changed(TEXT, "height = 64", "height = 96") + "samples = 3\n"

    guided = sizes(load(text).chains[0])
    alone = sizes(load(text + "guidance_scale = 1.0\n").chains[0])

    # No sample of the components is 24 latents high, so the pipeline's own sizes show.
    assert guided["unet"] == {"batch": 6, "height": 24, "width": 16}
    assert guided["vae_decoder"] == {"batch": 3, "height": 24, "width": 16}
    assert alone["unet"] == {"batch": 3, "height": 24, "width": 16}


def test_a_controlnet_sees_the_prompts_half_only_in_guess_mode(load):
    plain = sizes(load(CANNY).chains[0])
    guess = sizes(load(CANNY + "guess_mode = true\n").chains[0])

    assert plain["controlnet"] == {"batch": 2, "height": 32, "width": 32}
    assert guess["controlnet"] == {"batch": 1, "height": 32, "width": 32}
    assert guess["controlled_unet"] == plain["controlled_unet"] == plain["controlnet"]


def graph(case):
    """What the exported graph of a case's first sample is stored under."""
    first = sample_groups(case, case.samples)[0]
    return onnx_key(case.component, case.export, dict(first.shapes))


def test_a_seat_takes_the_file_that_its_component_is_tested_with(load):
    suite = load(TEXT)
    seats = dict(chain(suite, "text2img/mnn/fp32").seats)
    (unet,) = [case for case in suite.cases if case.id == "unet/mnn/fp32"]

    # Sample 1 is of 16 × 16 latents, which are 64 × 64 px; its batch is left open.
    assert seats["unet"].samples == (unet.samples[1],)
    assert dict(seats["unet"].samples[0].shapes)["batch"] == 3
    tested = [
        onnx_key(unet.component, unet.export, dict(group.shapes))
        for group in sample_groups(unet, unet.samples)
    ]
    assert graph(seats["unet"]) in tested
    assert len(tested) == 2


def test_a_batch_that_is_baked_in_must_be_the_pipelines(load):
    baked = changed(SUITE, '["batch"]', "[]")

    seats = dict(chain(load(TEXT, baked), "text2img/mnn/fp32").seats)

    assert dict(seats["unet"].samples[0].shapes)["batch"] == 2
    assert dict(seats["text_encoder"].samples[0].shapes)["batch"] == 1


def test_a_picture_without_a_sample_of_its_size_gets_one(load):
    wide = changed(TEXT, "width = 64", "width = 96")

    seats = dict(chain(load(wide), "text2img/mnn/fp32").seats)

    (sample,) = seats["unet"].samples
    assert dict(sample.shapes) == {"batch": 2, "height": 16, "width": 24}
    assert sample.profile == "realistic"


@pytest.mark.parametrize(
    ("size", "resolution"),
    [
        ((64, 64), 64),
        ((64, 64), 512),
        ((480, 640), 512),
        ((640, 480), 512),
        ((1080, 1920), 512),
        ((96, 300), 96),
        ((300, 96), 160),
        ((100, 100), 300),
        ((8, 9), 33),
    ],
)
def test_a_hint_has_the_size_that_the_recipe_gives_it(load, tmp_path, size, resolution):
    path = picture(tmp_path, *size)
    text = changed(CANNY, "128", f'{resolution}\nimage = "picture.png"')

    made = load(text).chains[0].pipeline

    fitted = fit(three_channels(read_image(path)), resolution).shape
    assert (made.height, made.width, 3) == fitted


def test_a_picture_held_on_its_side_has_its_size_as_it_is_shown(load, tmp_path):
    path = picture(tmp_path, 64, 128, TURNED)
    assert read_image(path).shape == (128, 64)

    made = load(changed(CANNY, "128", '64\nimage = "picture.png"')).chains[0].pipeline

    assert (made.height, made.width) == (128, 64)
    hint = draw_inputs(made).image
    assert hint is not None
    assert hint.shape == (3, 128, 64)


# Refusals


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param(
            changed(TEXT, "text2img", "sketch"),
            0,
            "is no kind of pipeline",
            id="no-kind",
        ),
        pytest.param(
            TEXT + 'kind = "txt2img"\n', 4, "did you mean 'text2img'", id="kind"
        ),
        pytest.param(
            changed(TEXT, "[pipeline.text2img]", '[pipeline.unet]\nkind = "text2img"'),
            0,
            "'unet' is a component",
            id="name-of-a-component",
        ),
        pytest.param(
            changed(
                TEXT, "[pipeline.text2img]", '[pipeline.vae_encoder]\nkind = "text2img"'
            ),
            0,
            "'vae_encoder' is a component",
            id="name-of-a-recipe",
        ),
        pytest.param(
            changed(TEXT, "[pipeline.text2img]", '[pipeline."A/b"]\nkind = "text2img"'),
            0,
            "lower case letters, digits",
            id="name-that-makes-no-id",
        ),
        pytest.param(
            IMAGE + 'image = "none.png"\n', 4, "there is no picture", id="image"
        ),
        pytest.param(
            CANNY + 'image = "parity.toml"\n',
            4,
            "no picture that can be read",
            id="text",
        ),
        pytest.param(
            changed(CANNY, "128", "32"),
            3,
            "give a resolution above 32",
            id="resolution",
        ),
        pytest.param(
            CANNY + "low_threshold = 201\n", 0, "low <= high <= 255", id="low"
        ),
        pytest.param(CANNY + "high_threshold = 256\n", 4, "got 100 and 256", id="high"),
        pytest.param(CANNY + "low_threshold = 0\n", 4, "1 or more", id="threshold-0"),
        pytest.param(CANNY + "strength = 2.5\n", 4, "from 0 to 2", id="control"),
        pytest.param(IMAGE + "strength = 1.5\n", 4, "from 0 to 1", id="strength"),
        pytest.param(TEXT + "strength = 0.5\n", 4, "unknown key", id="misplaced"),
        pytest.param(TEXT + "guess_mode = true\n", 4, "unknown key", id="guess"),
        pytest.param(TEXT + "eta = 1.5\n", 4, "from 0 to 1, got 1.5", id="eta-high"),
        pytest.param(TEXT + "eta = -0.1\n", 4, "got -0.1", id="eta-low"),
        pytest.param(TEXT + "eta = nan\n", 4, "got nan", id="eta-nan"),
        pytest.param(TEXT + "guidance_scale = -1\n", 4, "from 0 to 100", id="guidance"),
        pytest.param(TEXT + "steps = 0\n", 4, "1 or more", id="steps"),
        pytest.param(TEXT + "samples = 0\n", 4, "1 or more", id="samples"),
        pytest.param(
            changed(TEXT, "height = 64", "height = 72"), 2, "multiple of 32", id="size"
        ),
        pytest.param(changed(TEXT, "width = 64\n", ""), 0, "'width'", id="no-size"),
        pytest.param(
            changed(TEXT, '["three"]', "[]"), 1, "nothing to draw", id="no-prompt"
        ),
        pytest.param(
            changed(TEXT, 'prompts = ["three"]\n', ""), 0, "'prompts'", id="prompts"
        ),
        pytest.param(
            TEXT + 'prompts_file = "parity.toml"\n', 1, "not both", id="two-prompts"
        ),
        pytest.param(
            changed(TEXT, 'prompts = ["three"]', 'prompts_file = "no.txt"'),
            1,
            "no.txt",
            id="prompts-file",
        ),
        pytest.param(TEXT + 'scheduler = "ddmi"\n', 4, "mean 'ddim'", id="scheduler"),
        pytest.param(
            TEXT + "scheduler_options = { betas = [1] }\n", 4, "numbers", id="options"
        ),
        pytest.param(TEXT + 'reader = "read"\n', 4, "'file.py:function'", id="reader"),
        pytest.param(
            TEXT + 'reader = "no.py:read"\n', 4, "there is no file", id="reader-file"
        ),
        pytest.param(TEXT + 'variants = ["fp23"]\n', 4, "'fp32'", id="variant"),
        pytest.param(TEXT + 'variants = ["fp32", "fp32"]\n', 4, "twice", id="twice"),
        pytest.param(TEXT + "variants = []\n", 4, "nothing to test", id="no-variant"),
        pytest.param(
            TEXT + 'mixed = ["pytorch", "mnn"]\n', 4, "'mnn/fp32'", id="mixed-word"
        ),
        pytest.param(
            TEXT + "[pipeline.text2img.app]\nscaling = 1.0\n",
            5,
            "did you mean 'scaling_factor'",
            id="app-key",
        ),
        pytest.param(
            TEXT + "[pipeline.text2img.app]\nscaling_factor = 0\n",
            5,
            "more than 0",
            id="app-factor",
        ),
        pytest.param(
            TEXT + "[pipeline.text2img.app]\nguidance_scale = 1.0\n",
            5,
            "must be more than 1",
            id="app-guidance",
        ),
        pytest.param(TEXT + "step = 5\n", 4, "did you mean 'steps'", id="key"),
        pytest.param(
            TEXT + 'kind = "text2img"\nimages = 3\n', 5, "'image'", id="key-of-a-kind"
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_right_word(load, text, line, said):
    with pytest.raises(SuiteError) as caught:
        load(text)

    message = str(caught.value)
    where = re.match(r".*parity\.toml:(\d+): ", message)
    assert where, message
    assert int(where[1]) == FIRST + line, message
    assert said in message
    assert "\n" not in message


def test_a_pipeline_may_not_share_its_name_with_any_component(load):
    own = changed(SUITE, '"unet"]', '"unet", "sketch"]').replace(
        "[inputs]", '[component.sketch]\nrecipe = "vae_encoder"\n[inputs]'
    )
    text = changed(TEXT, "[pipeline.text2img]", '[pipeline.sketch]\nkind = "text2img"')

    # Its seats are taken by others; the ids would be the same all the same.
    with pytest.raises(SuiteError, match="'sketch' is a component"):
        load(text, own)


def test_noise_of_ddim_is_asked_of_no_other_scheduler(load):
    with pytest.raises(SuiteError, match="eta"):
        load(TEXT + 'scheduler = "euler"\neta = 0.7\n')


def test_a_strength_that_leaves_no_step_is_refused(load):
    with pytest.raises(SuiteError, match="strength"):
        load(IMAGE + "steps = 2\nstrength = 0.4\n")


NO_UNET = """\
components = ["transformer"]
[source]
checkpoint = {checkpoint}
seed = 0
[[shapes]]
batch = 1
{sizes}
[backend.onnxruntime]
"""
CLASSES = {
    "dit": ("DiTPipeline", "height = 16\nwidth = 16"),
    "flux": ("FluxPipeline", "text_tokens = 9\nimage_tokens = 16"),
    "pixart": ("PixArtAlphaPipeline", "height = 16\nwidth = 16\ntext_tokens = 9"),
}


@pytest.mark.parametrize("family", CLASSES)
def test_a_checkpoint_that_is_not_drawn_with_is_named_by_its_class(load, family):
    name, sizes = CLASSES[family]
    checkpoint = json.dumps(str(DIGITS.parent / family))
    suite = NO_UNET.format(checkpoint=checkpoint, sizes=sizes)
    line = suite.count("\n") + 1

    with pytest.raises(SuiteError) as caught:
        load(TEXT, suite)

    words = str(caught.value)
    assert f"parity.toml:{line}: 'text2img' is not drawn with a {name}, which" in words
    assert "StableDiffusionPipeline, StableDiffusionXLPipeline" in words
    assert "StableDiffusion3Pipeline" in words
    assert not load("", suite).chains
