"""`harness.recipes`: the network behind a signature has its inputs and outputs."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.recipes import describe, discover, recipe_module
from harness.recipes.checkpoint import load_network, load_scheduler
from harness.recipes.diffusion import unet
from harness.recipes.tokenizer import load_tokenizer
from tests.places import DIGITS, FIXTURES
from tests.unit.recipe_runs import answers, changed, check_signature, drawn

FULL_SIZE = FIXTURES / "sd15"
SOURCE = Source(path=DIGITS, seed=0)
XL = Source(path=FIXTURES / "sdxl", seed=0)
ELSEWHERE = {"text_encoder_2": XL}
"""Recipe to a checkpoint that has what it needs, where that is not `SOURCE`."""
# Odd halves, so that the rounding of strided convolutions shows.
SHAPES = {"batch": 2, "height": 10, "width": 12}


def component(name, source=None, **options):
    return describe(name, name, source or ELSEWHERE.get(name, SOURCE), options)


def run(part, shapes=SHAPES, index=1, profile="realistic", attention=""):
    return answers(part, drawn(part, shapes, profile, index), attention)


@pytest.mark.parametrize("name", discover(SOURCE))
def test_a_network_keeps_its_signature(name):
    part = component(name)
    check_signature(part, run(part), SHAPES)


@pytest.mark.parametrize(
    ("name", "options", "output"),
    [
        ("text_encoder", {"penultimate": True}, "penultimate_hidden_state"),
        ("vae_encoder", {"parameters": True}, "latent_parameters"),
    ],
)
def test_options_change_signature_and_network_together(name, options, output):
    part = component(name, **options)
    assert part.outputs[-1].name == output
    check_signature(part, run(part), SHAPES)


def test_a_controlnet_has_thirteen_residuals_with_the_deployed_names():
    names = [spec.name for spec in component("controlnet").outputs]
    assert names == [
        *(f"down_block_res_sample_{index}" for index in range(12)),
        "mid_block_res_sample",
    ]
    assert [spec.name for spec in component("controlled_unet").inputs][3:] == names


def test_a_drawn_controlnet_has_no_silent_residual():
    """Zero-convolutions that stay zero would agree with any runtime."""
    assert all(residual.std() > 1e-4 for residual in run(component("controlnet")))


@pytest.mark.parametrize("name", ["text_encoder", "unet", "vae_decoder"])
def test_extreme_inputs_stay_finite(name):
    for profile in ("low-variance", "large-mean", "boundary"):
        outputs = run(component(name), index=0, profile=profile)
        assert all(torch.isfinite(value).all() for value in outputs)


def test_eager_attention_computes_what_sdpa_does():
    eager, own = (run(component("text_encoder"), attention=a)[0] for a in ("eager", ""))
    torch.testing.assert_close(eager, own, rtol=1e-4, atol=1e-5)


def test_realistic_samples_step_through_timesteps():
    unet = component("unet")
    steps = [int(drawn(unet, SHAPES, index=i)["timestep"][0]) for i in range(4)]
    assert steps == [0, 1, 499, 999]


def test_the_same_seed_draws_the_same_weights_and_another_others():
    first, again = (load_network(SOURCE, "unet", unet.CLASS) for _ in range(2))
    other = load_network(Source(path=DIGITS, seed=1), "unet", unet.CLASS)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
    assert not torch.equal(first.conv_in.weight, other.conv_in.weight)


def test_weights_are_loaded_as_they_were_saved(tmp_path):
    drawn = load_network(SOURCE, "unet", unet.CLASS)
    drawn.save_pretrained(tmp_path / "unet")
    loaded = load_network(Source(path=tmp_path), "unet", unet.CLASS)
    assert not loaded.training
    for name, weight in drawn.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name])


def test_weights_that_the_network_does_not_read_are_refused(tmp_path):
    shutil.copytree(DIGITS / "vae", tmp_path / "vae")
    config = tmp_path / "vae" / "config.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps({**told, "layers_per_block": 0}))
    says = r"52 weights that AutoencoderKL .* decoder.up_blocks.0.resnets.1.conv1.bias"
    with pytest.raises(SuiteError, match=says):
        load_network(Source(path=tmp_path), "vae", "AutoencoderKL")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("vae", "caption_projection.y_embedding"),
        ("text_encoder", "vision_model.post_layernorm.weight"),
    ],
    ids=["training alone reads it", "of another tower"],
)
def test_weights_that_a_network_may_leave_are_no_fault(part, other, tmp_path):
    shutil.copytree(DIGITS / part, tmp_path / part)
    (weights,) = (tmp_path / part).glob("*.safetensors")
    save_file(
        {**load_file(weights), other: torch.zeros(1)},
        weights,
        metadata={"format": "pt"},
    )
    recipe = {"vae": "vae_decoder"}.get(part, part)
    source = Source(path=tmp_path)

    assert recipe_module(recipe).build(component(recipe, source))


@pytest.mark.parametrize("name", discover(SOURCE))
def test_an_option_that_a_recipe_has_not_is_refused(name):
    with pytest.raises(SuiteError, match="unknown option 'no_such'"):
        component(name, no_such=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("json.net", r"no recipe 'json\.net'; there are text_enc"),
        ("json", "has no function 'signature'"),
        ("lacking_recipe", "needs 'no_such_package', which is not"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused(tmp_path, monkeypatch, name, said):
    (tmp_path / "lacking_recipe.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SuiteError, match=said):
        recipe_module(name)


def test_a_configuration_that_lacks_something_is_named(tmp_path):
    for folder in ("unet", "text_encoder"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text("{}")
    with pytest.raises(SuiteError, match=r"config\.json has no '\w+'"):
        component("unet", Source(path=tmp_path))


@pytest.mark.parametrize(
    ("folder", "about"),
    [
        ("text_encoder", {"model_type": "bert"}),
        ("unet", {"_class_name": "UNet3DConditionModel"}),
        ("unet", {"cross_attention_dim": [32, 32]}),
    ],
)
def test_a_network_of_another_kind_is_named(tmp_path, folder, about):
    source = changed(tmp_path, DIGITS, folder, **about)
    with pytest.raises(SuiteError, match=r"json is of a .* a recipe of your own"):
        component(folder, source)


@pytest.mark.parametrize("name", ["controlnet", "controlled_unet"])
@pytest.mark.parametrize("other", ["SD3ControlNetModel", "ControlNetUnionModel"])
def test_a_controlnet_of_another_class_is_named(tmp_path, name, other):
    about = {"_class_name": other, "num_layers": 6}
    source = changed(tmp_path, DIGITS, "controlnet", **about)
    with pytest.raises(SuiteError, match=rf"is of a {other}, .* know ControlNetModel,"):
        component(name, source)


def test_discovery_reads_folders_not_promises(tmp_path):
    (tmp_path / "model_index.json").write_text('{"unet": ["diffusers", "X"]}')
    with pytest.raises(SuiteError, match="has none of the folders controlnet, text"):
        discover(Source(path=tmp_path))
    (tmp_path / "vae").symlink_to(DIGITS / "vae")
    assert discover(Source(path=tmp_path)) == ("vae_encoder", "vae_decoder")


def test_without_a_tokenizer_prompts_begin_end_and_pad_as_clip_does():
    part = component("text_encoder", Source(path=FULL_SIZE, seed=0))
    ids = drawn(part, {"batch": 2}, index=0)["input_ids"]
    assert load_tokenizer(FULL_SIZE / "tokenizer") is None
    assert set(ids[:, 0].tolist()) == {49406}
    assert set(ids[:, -1].tolist()) == {49407}


def test_the_scheduler_is_the_checkpoints_own():
    assert type(load_scheduler(SOURCE)).__name__ == "DDIMScheduler"
    assert type(load_scheduler(Source(path=FULL_SIZE))).__name__ == "PNDMScheduler"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "names None under `_class_name`"),
        ('{"_class_name": "Of2031"}', "names 'Of2031' under `_class_name`"),
        ('{"_class_name": "UNet2DModel"}', "has no scheduler of that name"),
        ("[]", "cannot be read as JSON: Expected `object`, got `array`"),
        ("{", "cannot be read as JSON"),
    ],
)
def test_a_scheduler_that_is_none_is_refused(tmp_path, text, said):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "scheduler_config.json").write_text(text)
    with pytest.raises(SuiteError, match=rf"scheduler_config\.json .*{said}"):
        load_scheduler(Source(path=tmp_path))


def test_a_text_folder_may_name_no_architecture(tmp_path):
    (tmp_path / "model_index.json").write_text("{}")
    shutil.copytree(DIGITS / "text_encoder", tmp_path / "text_encoder")
    path = tmp_path / "text_encoder" / "config.json"
    config = json.loads(path.read_text()) | {"architectures": None}
    path.write_text(json.dumps(config))
    assert discover(Source(path=tmp_path)) == ("text_encoder",)


def test_the_full_size_fixture_holds_no_weights():
    held = {path.suffix for path in FULL_SIZE.rglob("*") if path.is_file()}
    assert held <= {".json", ".md", ".py", ".toml"}


def test_a_plain_module_is_told_of_recipes(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SuiteError, match="takes a recipe of your own"):
        discover(Source(path=tmp_path))
