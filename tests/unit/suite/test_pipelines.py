"""`plugins.pipelines.read`: the meaning of [pipeline.*], and the refused entries."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from harness.core.errors import SuiteError
from harness.core.groups import sample_groups
from harness.engine.tasks import GRAPH
from harness.plugins.pipelines.case import App, Control, Sampling
from harness.plugins.pipelines.drawing.hints import fit, read_image, three_channels
from harness.plugins.pipelines.drawing.inputs import draw_inputs
from tests.places import DIGITS, FIXTURES
from tests.unit.suite.pipelines import (
    APP,
    BASES,
    CANNY,
    FIRST,
    IMAGE,
    SUITE,
    TEXT,
    changed,
)

UPRIGHT, TURNED = 1, 6
"""Exif's words for: show it as it is, and turned by a quarter, clockwise."""


def digits_without(folder, *names):
    """Return a suite of the checkpoint of digits without some of its folders."""
    (folder / "digits").mkdir()
    for child in DIGITS.iterdir():
        if child.name not in names:
            (folder / "digits" / child.name).symlink_to(child)
    return SUITE.replace(json.dumps(str(DIGITS)), '"digits"')


def picture(folder, height, width, orientation=UPRIGHT):
    path = folder / "picture.png"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.zeros((height, width), np.uint8)).save(path, exif=exif)
    return path


def chain(suite, name):
    (found,) = [chain for chain in suite.pipeline_cases if chain.id == name]
    return found


def test_cases_stand_in_file_order_after_the_components_cases(load):
    suite = load(TEXT + 'variants = ["fp32"]\n' + CANNY)

    assert [chain.id for chain in suite.pipeline_cases] == [
        "text2img/onnxruntime/fp32",
        "text2img/mnn/fp32",
        "canny/onnxruntime/fp32",
        "canny/onnxruntime/fp16",
        "canny/mnn/fp32",
        "canny/mnn/int8-weights",
    ]
    assert suite.tested == (*suite.cases, *suite.pipeline_cases)


def test_a_variant_for_one_component_starts_from_its_origin_in_the_others(load):
    flags = '[variant.onnxruntime.kept]\nfrom = "fp16"\nflags = ["--keep=sin"]\n'
    suite = load(TEXT, SUITE + flags + 'components = ["unet"]\n')
    made = [case.id for case in suite.cases if case.how == "kept"]
    roles = dict(chain(suite, "text2img/onnxruntime/kept").roles)
    assert made == ["unet/onnxruntime/kept"]
    assert roles["unet"].variant.name == "kept"
    origin = roles["text_encoder"].variant
    assert (origin.name, origin.flags) == ("fp16", ())


def test_a_variant_for_one_component_needs_not_be_listed_there(load):
    own = '[variant.mnn.mine]\nfrom = "fp32"\ncomponents = ["unet"]\n'
    listed = '[component.unet]\nvariants = ["fp32"]\n'
    suite = load("", SUITE + own + listed)
    ran = [case.id for case in suite.cases if case.subject == "unet"]
    assert ran == ["unet/onnxruntime/fp32", "unet/mnn/fp32", "unet/mnn/mine"]
    left = [name for component, name in suite.left_out if component == "unet"]
    assert left == ["onnxruntime/fp16", "mnn/int8-weights"]


def test_a_variant_that_one_runtime_has_is_run_in_that_one(load):
    suite = load(TEXT + 'variants = ["int8-weights"]\n')
    assert [chain.id for chain in suite.pipeline_cases] == ["text2img/mnn/int8-weights"]


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        (TEXT, ["text_encoder", "unet", "vae_decoder"]),
        (IMAGE, ["text_encoder", "vae_encoder", "unet", "vae_decoder"]),
        (CANNY, ["text_encoder", "controlnet", "controlled_unet", "vae_decoder"]),
    ],
)
def test_every_role_is_taken_by_the_component_of_its_name(load, text, roles):
    first = load(text).pipeline_cases[0]
    assert [role for role, _ in first.roles] == roles
    assert [component.name for component in first.pipeline.components] == roles
    for role, case in first.roles:
        assert case.component.name == role
        assert case.id == f"{role}/onnxruntime/fp32"


def test_a_name_of_ones_own_has_a_kind(load):
    suite = load(changed(TEXT, "[pipeline.text2img]", '[pipeline.a]\nkind="text2img"'))
    assert suite.pipeline_cases[0].id == "a/onnxruntime/fp32"
    assert suite.pipeline_cases[0].pipeline.kind == "text2img"


def test_a_chain_is_selected_and_checked_by_its_id(load):
    suite = load(TEXT)
    chosen = [case.id for case in suite.select(["text2img/mnn"])]
    assert chosen == ["text2img/mnn/fp32", "text2img/mnn/int8-weights"]
    checks = [check.id for check in suite.checks("latents", "image")]
    ids = [case.id for case in suite.pipeline_cases]
    assert checks == [f"{name}/{what}" for name in ids for what in ("latents", "image")]


def test_settings_of_a_component_hold_for_its_role_listed_or_not(load):
    component = '[component.unet]\nexporter = "torchscript"\n'
    suite = load(TEXT, changed(SUITE, "[inputs]", f"{component}[inputs]"))
    roles = dict(chain(suite, "text2img/mnn/fp32").roles)
    assert roles["unet"].export.exporter == "torchscript"
    assert roles["vae_decoder"].export.exporter == "dynamo"


def test_a_component_under_another_name_takes_the_role_of_its_recipe(load):
    own = changed(SUITE, '"unet"]', '"painter"]').replace(
        "[inputs]", '[component.painter]\nrecipe = "unet"\n[inputs]'
    )
    assert load(TEXT, own).pipeline_cases[0].pipeline.components[1].name == "painter"


@pytest.mark.parametrize("alike", [True, False])
def test_a_role_is_calibrated_as_the_file_that_is_tested(load, alike):
    suite = SUITE.replace('"fp32", "int8-weights"]', '"fp32", "int8-static"]')
    suite = suite.replace("height = 32", "height = 16") if alike else suite
    loaded = load(TEXT + 'variants = ["int8-static"]\n', suite)
    own = {
        case.subject: case.calibration
        for case in loaded.cases
        if case.variant.name == "int8-static"
    }

    (pipeline,) = loaded.pipeline_cases
    roles = {role: case.calibration for role, case in pipeline.roles}

    assert all(len(samples) == 16 for samples in roles.values())
    assert (roles["unet"] == own["unet"]) is alike
    assert roles["text_encoder"] == own["text_encoder"]
    assert {dict(one.shapes)["height"] for one in roles["unet"]} == {16}


TWO = 'mixed = ["pytorch", "mnn/fp32"]\n'
THREE = TWO.replace("]", ', "onnxruntime/fp32"]')


@pytest.mark.parametrize(
    ("text", "count", "ends"),
    [
        (TEXT, 0, []),
        (TEXT + THREE, 24, ["pytorch-pytorch-mnn", "onnxruntime-onnxruntime-mnn"]),
        (
            IMAGE + TWO + "seeds = 18\n",
            14,
            ["pytorch-pytorch-pytorch-mnn", "mnn-mnn-mnn-pytorch"],
        ),
        # ControlNet and UNet work in turns, and have one runtime.
        (CANNY + THREE, 24, ["pytorch-pytorch-mnn", "onnxruntime-onnxruntime-mnn"]),
    ],
)
def test_every_mixture_of_the_runtimes_is_a_case(load, text, count, ends):
    cases = load(text).pipeline_cases
    mixed = [case for case in cases if case.backend == "mixed"]
    names = [case.variant for case in mixed]

    assert len(set(names)) == len(names) == count
    assert [*names[:1], *names[-1:]] == ends
    for case in mixed:
        words = case.variant.split("-")
        assert 1 < len(set(words)) <= len(words)
        assert case.asked.get("controlnet") == case.asked.get("controlled_unet")
        # It is drawn alike; exchanged roles and pairs would find nothing new.
        assert case.pipeline == replace(cases[0].pipeline, attribution=False, seeds=0)
    assert cases[0].pipeline.attribution


def test_each_role_has_the_runtime_that_the_name_says(load):
    suite = load(TEXT + 'mixed = ["pytorch", "onnxruntime/fp16", "mnn/int8-weights"]\n')

    found = chain(suite, "text2img/mixed/onnxruntime.fp16-pytorch-mnn.int8-weights")

    assert found.asked == {
        "text_encoder": "onnxruntime/fp16",
        "unet": "pytorch",
        "vae_decoder": "mnn/int8-weights",
    }
    assert dict(found.roles)["unet"] is None
    assert found.runtimes == ("onnxruntime", "mnn")


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
    assert (made.guided, made.attribution) == (False, False)


FROM_FILE = changed(TEXT, 'prompts = ["three"]', 'prompts_file = "lines.txt"')


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (changed(TEXT, '["three"]', '"three"'), ["three"]),
        (changed(TEXT, '["three"]', '[""]'), [""]),
        (FROM_FILE, ["one", "two"]),
        (
            changed(TEXT, '["three"]', '["three", "four"]')
            + 'samples = 2\nadded_prompt = "red ink"\n',
            [*["three, red ink"] * 2, *["four, red ink"] * 2],
        ),
    ],
)
def test_every_prompt_is_drawn_as_often_as_samples_ask(pipeline, tmp_path, text, texts):
    # Windows' editor puts a mark in front.
    (tmp_path / "lines.txt").write_text("one\n\n  two  \n", encoding="utf-8-sig")
    assert pipeline(text).texts == tuple(texts)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"\n  \n", "nothing to draw", id="no-prompt"),
        pytest.param(b"caf\xe9\n", "cannot be read as UTF-8 text", id="other-encoding"),
    ],
)
def test_a_prompts_file_without_prompts_is_refused(refused, tmp_path, data, words):
    (tmp_path / "lines.txt").write_bytes(data)
    refused(FROM_FILE, FIRST + 1, words)


def test_a_scheduler_has_a_short_word_and_options(pipeline):
    made = pipeline(
        TEXT + 'scheduler = "dpm++"\n[pipeline.text2img.scheduler_options]\n'
        'timestep_spacing = "trailing"\nsolver_order = 3\nlower_order_final = false\n'
    )

    assert made.sampling.scheduler == "dpm++"
    assert dict(made.sampling.options) == {
        "timestep_spacing": "trailing",
        "solver_order": 3,
        "lower_order_final": False,
    }


@pytest.mark.parametrize(
    ("text", "app"),
    [
        ("", App()),
        ("scaling_factor = 0.13025", App(scaling_factor=0.13025)),
        ("guidance_scale = 4.0", App(guidance_scale=4.0)),
        ('scheduler = "lms"', App(sampling=Sampling(scheduler="lms"))),
        (
            "scheduler_options = { steps_offset = 0 }",
            App(sampling=Sampling(scheduler="euler", options=(("steps_offset", 0),))),
        ),
    ],
)
def test_what_the_app_does_otherwise_is_read(pipeline, text, app):
    table = f'{TEXT}scheduler = "euler"\n[pipeline.text2img.app]\n{text}\n'
    assert pipeline(table).app == app


def test_a_checkpoint_without_a_scheduler_can_be_drawn(load, tmp_path):
    suite = digits_without(tmp_path, "scheduler", "model_index.json")
    index = json.loads((DIGITS / "model_index.json").read_text(encoding="utf-8"))
    absent = json.dumps({**index, "scheduler": [None, None]})
    (tmp_path / "digits" / "model_index.json").write_text(absent, encoding="utf-8")
    for text, name in ((TEXT, ""), (TEXT + 'scheduler = "euler"\n', "euler")):
        drawn = load(text, suite).pipeline_cases[0].pipeline
        assert drawn.sampling == Sampling(scheduler=name)


def test_a_pipeline_that_a_checkpoint_cannot_draw_has_its_line(load, tmp_path):
    suite = digits_without(tmp_path, "controlnet")
    with pytest.raises(SuiteError, match=rf"parity\.toml:{FIRST}: .*controlnet"):
        load(CANNY, suite)


def test_the_reader_is_looked_up_beside_the_suite(pipeline, tmp_path):
    (tmp_path / "eyes.py").touch()
    for said, path in (
        ("eyes.py:read", f"{tmp_path / 'eyes.py'}:read"),
        ("my.eyes:read", "my.eyes:read"),
    ):
        assert pipeline(f'{TEXT}reader = "{said}"\n').reader == path


def test_a_hint_is_described(pipeline):
    thresholds = "low_threshold = 50\nhigh_threshold = 50\n"
    made = pipeline(f"{CANNY}{thresholds}strength = 1.5\nguess_mode = true\n")

    assert made.control == Control(
        resolution=128,
        low_threshold=50,
        high_threshold=50,
        strength=1.5,
        guess_mode=True,
    )
    assert (made.height, made.width) == (128, 128)


TALL = changed(TEXT, "height = 64", "height = 96") + "samples = 3\n"


@pytest.mark.parametrize(
    ("text", "batches"),
    [
        (TALL, {"unet": 6, "vae_decoder": 3}),
        (TALL + "guidance_scale = 1.0", {"unet": 3, "vae_decoder": 3}),
        (CANNY, {"controlnet": 2, "controlled_unet": 2, "vae_decoder": 1}),
        (CANNY + "guess_mode = true", {"controlnet": 1, "controlled_unet": 2}),
    ],
)
def test_guidance_doubles_the_batch_of_what_sees_both_halves(load, text, batches):
    case, *_ = load(text).pipeline_cases
    sizes = {role: dict(one.samples[0].shapes) for role, one in case.roles}
    # No sample of the components has these sizes, so the pipeline's own show.
    side = {"height": 24, "width": 16} if TALL in text else {"height": 32, "width": 32}
    for role, batch in batches.items():
        assert sizes[role] == {"batch": batch, **side}


def test_a_role_takes_the_file_that_its_component_is_tested_with(load):
    suite = load(TEXT)
    role = dict(chain(suite, "text2img/mnn/fp32").roles)["unet"]
    (unet,) = [case for case in suite.cases if case.id == "unet/mnn/fp32"]
    tested, stored = (
        [GRAPH.key(case.component, case.export, group) for group in groups]
        for case in (unet, role)
        for groups in (sample_groups(case, case.samples),)
    )

    # Sample 1 is of 16 × 16 latents, which are 64 × 64 px; its batch is left open.
    assert role.samples == (unet.samples[1],)
    assert dict(role.samples[0].shapes)["batch"] == 3
    assert len(tested) == 2
    assert stored[0] in tested


def test_a_batch_that_is_baked_in_must_be_the_pipelines(load):
    suite = load(TEXT, changed(SUITE, '["batch"]', "[]"))
    roles = dict(chain(suite, "text2img/mnn/fp32").roles)
    assert dict(roles["unet"].samples[0].shapes)["batch"] == 2
    assert dict(roles["text_encoder"].samples[0].shapes)["batch"] == 1


def test_a_picture_without_a_sample_of_its_size_gets_one(load):
    suite = load(changed(TEXT, "width = 64", "width = 96"))
    (sample,) = dict(chain(suite, "text2img/mnn/fp32").roles)["unet"].samples
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
def test_a_hint_has_the_size_of_its_recipe(pipeline, tmp_path, size, resolution):
    path = picture(tmp_path, *size)
    made = pipeline(changed(CANNY, "128", f'{resolution}\nimage = "picture.png"'))
    fitted = fit(three_channels(read_image(path)), resolution).shape
    assert (made.height, made.width, 3) == fitted


def test_a_picture_held_on_its_side_has_its_size_as_it_is_shown(pipeline, tmp_path):
    assert read_image(picture(tmp_path, 64, 128, TURNED)).shape == (128, 64)
    made = pipeline(changed(CANNY, "128", '64\nimage = "picture.png"'))
    assert (made.height, made.width) == (128, 64)
    hint = draw_inputs(made).image
    assert hint is not None
    assert hint.shape == (3, 128, 64)


@pytest.mark.parametrize(
    ("base", "added", "said"),
    [
        ("text", 'kind = "txt2img"', "did you mean 'text2img'"),
        ("image", 'image = "none.png"', "there is no picture"),
        ("canny", 'image = "parity.toml"', "no picture that can be read"),
        ("canny", "high_threshold = 256", "got 100 and 256"),
        ("image", "steps = 2\nstrength = 0.4", "none of 2 steps"),
        ("text", "strength = 0.5", "unknown key"),
        ("text", "guess_mode = true", "unknown key"),
        ("text", 'scheduler = "euler"\neta = 0.7', "'eta' is DDIM's"),
        ("text", 'reader = "read"', "'file.py:function'"),
        ("text", 'reader = "no.py:read"', "there is no file"),
        ("text", 'variants = ["fp23"]', "'fp32'"),
        ("text", 'mixed = ["pytorch", "mnn"]', "'mnn/fp32'"),
        ("text", 'mixed = ["mnn/fp32"]', "two or more"),
        ("text", f"{APP}\nscaling = 1.0", "did you mean 'scaling_factor'"),
        ("text", 'kind = "text2img"\nimages = 3', "'image'"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_the_right_word(refused, base, added, said):
    text = f"{BASES[base]}{added}\n"
    refused(text, FIRST + text.count("\n") - 1, said)


@pytest.mark.parametrize(
    ("base", "change", "line", "said"),
    [
        ("text", ("text2img", "sketch"), 0, "is no kind of pipeline"),
        ("text", ("text2img]", 'unet]\nkind = "text2img"'), 0, "'unet' is a comp"),
        ("text", ("text2img]", 'vae_encoder]\nkind = "text2img"'), 0, "is a component"),
        ("text", ("text2img]", '"A/b"]\nkind = "text2img"'), 0, "lower case letters"),
        ("text", ("text2img]", f'{"l" * 65}]\nkind = "text2img"'), 0, "may have 64"),
        ("canny", ("128", "32"), 3, "give a resolution above 32"),
        ("canny", ("128", "128\nlow_threshold = 201"), 0, "low <= high <= 255"),
        ("text", ("height = 64", "height = 72"), 2, "multiple of 32"),
        ("text", ("width = 64\n", ""), 0, "'width'"),
        ("text", ('["three"]', "[]"), 1, "nothing to draw"),
        ("text", ('prompts = ["three"]\n', ""), 0, "'prompts'"),
        (
            "text",
            ('["three"]', '["three"]\nprompts_file = "parity.toml"'),
            1,
            "not both",
        ),
        ("text", ('prompts = ["three"]', 'prompts_file = "no.txt"'), 1, "no.txt"),
    ],
)
def test_a_wrong_table_is_named_by_the_line_at_fault(refused, base, change, line, said):
    refused(changed(BASES[base], *change), FIRST + line, said)


def test_a_pipeline_may_not_share_its_name_with_any_component(load):
    own = changed(SUITE, '"unet"]', '"unet", "sketch"]').replace(
        "[inputs]", '[component.sketch]\nrecipe = "vae_encoder"\n[inputs]'
    )
    text = changed(TEXT, "[pipeline.text2img]", '[pipeline.sketch]\nkind = "text2img"')
    # Its roles are taken by others; the ids would be the same all the same.
    with pytest.raises(SuiteError, match="'sketch' is a component"):
        load(text, own)


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
    checkpoint = json.dumps(str(FIXTURES / family))
    suite = NO_UNET.format(checkpoint=checkpoint, sizes=sizes)
    line = suite.count("\n") + 1

    with pytest.raises(SuiteError) as caught:
        load(TEXT, suite)

    words = str(caught.value)
    assert f"parity.toml:{line}: 'text2img' is not drawn with a {name}, which" in words
    assert "StableDiffusionPipeline, StableDiffusionXLPipeline" in words
    assert "StableDiffusion3Pipeline" in words
    assert not load("", suite).pipeline_cases
