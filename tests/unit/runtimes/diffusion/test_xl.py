"""Stable Diffusion XL's and 3's pipelines: roles change no bit of diffusers' own."""

from dataclasses import replace

import diffusers
import numpy as np
import pytest
import torch

from harness.core.case import Device, Source
from harness.core.errors import SuiteError
from harness.plugins.pipelines.case import (
    FAMILIES,
    SD,
    SD3,
    SDXL,
    Pipeline,
    pipelines_of,
)
from harness.plugins.pipelines.drawing.draw import PipelineParts, assemble, draw
from harness.plugins.pipelines.drawing.inputs import draw_inputs
from harness.plugins.pipelines.drawing.modules import StoredTokens
from harness.plugins.pipelines.drawing.networks import Residents
from harness.plugins.pipelines.drawing.reference import (
    conditions_of,
    listening,
    record,
    torch_networks,
)
from harness.plugins.pipelines.families import family_of
from harness.plugins.pipelines.read import mixture_name, mixtures
from harness.recipes import describe, recipe_module
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES

XL = Source(path=FIXTURES / "sdxl", seed=0)
FLOW = Source(path=FIXTURES / "sd3", seed=0)
RESIDENTS = Residents()
pytestmark = [
    # Of diffusers' own tables.
    pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning"),
    pytest.mark.usefixtures("one_thread"),
]


def pipeline(source=XL, **about):
    family = family_of(source)
    roles = FAMILIES[family]["text2img"]
    plan = Pipeline(
        name="text2img",
        kind="text2img",
        source=source,
        family=family,
        components=tuple(describe(role, role, source) for role in roles),
        prompts=("a small house by the sea", "three"),
        height=64,
        width=96,
        steps=2,
        guidance_scale=3.0,
    )
    return replace(plan, **about)


def drawn(plan, inputs, **networks):
    """Pictures, and the networks that drew them: PyTorch's, but for those given."""
    own_networks = torch_networks(plan, RESIDENTS, Device())
    networks = listening({**own_networks, **networks})
    pipe = assemble(
        plan, inputs, PipelineParts(networks=networks, sampling=plan.sampling)
    )
    return draw(pipe, plan, inputs), networks


def own(plan, folder):
    """The network that a component wraps, as diffusers' pipeline would hold it."""
    (part,) = (part for part in plan.components if part.name == folder)
    return recipe_module(part.recipe).build(part).network


def real(plan, inputs):
    """Diffusers' pipeline, of diffusers' and transformers' own networks."""
    if plan.family == SDXL:
        cls = diffusers.StableDiffusionXLPipeline
        scheduler = diffusers.EulerDiscreteScheduler
        rest = {"unet": own(plan, "unet"), "add_watermarker": False}
    else:
        cls = diffusers.StableDiffusion3Pipeline
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler
        rest = {"transformer": own(plan, "transformer")}
        rest |= {"text_encoder_3": None, "tokenizer_3": None}
    vae = diffusers.AutoencoderKL.from_config(
        diffusers.AutoencoderKL.load_config(plan.source.path / "vae")
    )
    # Built apart, as the decoder's component has no encoder.
    vae.load_state_dict(own(plan, "vae_decoder").state_dict(), strict=False)
    pipe = cls(
        vae=vae.eval(),
        text_encoder=own(plan, "text_encoder"),
        text_encoder_2=own(plan, "text_encoder_2"),
        tokenizer=StoredTokens(inputs.ids["text_encoder"]),
        tokenizer_2=StoredTokens(inputs.ids["text_encoder_2"]),
        scheduler=scheduler.from_pretrained(plan.source.path / "scheduler"),
        **rest,
    )
    pipe.set_progress_bar_config(disable=True)
    if plan.vae_tiling:
        pipe.vae.enable_tiling()
    return pipe


@pytest.mark.parametrize(
    ("source", "about"),
    [
        pytest.param(XL, {}, id="xl-zeros-for-no-negative-prompt"),
        pytest.param(XL, {"negative_prompt": "blurred"}, id="xl-negative"),
        pytest.param(XL, {"guidance_scale": 1.0}, id="xl-unguided"),
        pytest.param(XL, {"vae_tiling": True}, id="xl-tiled"),
        pytest.param(FLOW, {"t5_tokens": 8}, id="flow"),
        pytest.param(FLOW, {"negative_prompt": "blurred"}, id="flow-negative"),
    ],
)
def test_a_picture_is_diffusers_own_to_the_bit(source, about):
    plan = pipeline(source, **about)
    inputs = draw_inputs(plan)

    ours, _ = drawn(plan, inputs)
    with torch.no_grad():
        theirs = real(plan, inputs)(
            prompt=list(plan.texts),
            negative_prompt=[plan.negative_prompt] * 2
            if plan.negative_prompt
            else None,
            num_inference_steps=plan.steps,
            guidance_scale=plan.guidance_scale,
            height=plan.height,
            width=plan.width,
            **({} if source is XL else {"max_sequence_length": plan.t5_tokens}),
            latents=torch.from_numpy(inputs.noise[0].copy()),
            output_type="np",
            return_dict=False,
        )[0]

    assert ours.shape == (2, 64, 96, 3)
    assert ours.std() > 5
    np.testing.assert_array_equal(ours, theirs * np.float32(255))


def test_a_negative_prompt_changes_the_picture():
    plan = pipeline()
    inputs = draw_inputs(replace(plan, negative_prompt="blurred"))
    without, _ = drawn(plan, draw_inputs(plan))
    assert (drawn(replace(plan, negative_prompt="blurred"), inputs)[0] != without).any()


def test_each_encoder_is_heard_and_its_pooled_output_too():
    plan = pipeline(negative_prompt="blurred")
    _, networks = drawn(plan, draw_inputs(plan))
    assert {name: value.shape for name, value in conditions_of(networks).items()} == {
        "text_encoder.embeddings": (4, 77, 32),
        "text_encoder_2.embeddings_2": (4, 77, 48),
        "text_encoder_2.pooled_2": (4, 40),
    }


def test_a_reference_has_a_floor_for_each_condition(tmp_path):
    plan = pipeline(prompts=("three",), steps=1)
    record(plan, draw_inputs(plan), tmp_path, Device())

    with np.load(tmp_path / "reference.npz") as arrays:
        floors = {
            name: float(arrays[name][0])
            for name in arrays.files
            if name.startswith("floors.text_encoder")
        }
    assert len(floors) == 3
    assert all(0 < floor < 1e-5 for floor in floors.values())


def test_the_family_is_the_longest_name_that_fits(tmp_path):
    assert family_of(XL) == SDXL
    assert family_of(Source(path=FIXTURES / "sd3")) == SD3
    assert family_of(Source(path=DIGITS)) == SD
    assert family_of(Source(path=tmp_path)) == SD
    assert family_of(Source(path=FIXTURES / "flux")) == ""


def test_two_text_encoders_share_a_place_in_mixtures():
    plan = pipeline()
    words = ("pytorch", "mnn/fp32")
    found = {mixture_name(plan, given): given for given in mixtures(words, plan)}

    assert len(found) == 2**3 - 2
    assert found["mnn-pytorch-pytorch"] == {
        "text_encoder": "mnn/fp32",
        "text_encoder_2": "mnn/fp32",
        "unet": "pytorch",
        "vae_decoder": "pytorch",
    }


def test_the_suite_has_a_chain_of_four_seats():
    pipeline_cases = {
        chain.id: chain
        for chain in pipelines_of(load_suite(FIXTURES / "sdxl").pipeline_cases)
    }
    assert [role for role, _ in pipeline_cases["text2img/mnn/fp32"].roles] == [
        *("text_encoder", "text_encoder_2", "unet", "vae_decoder")
    ]
    assert "text2img/mixed/mnn-onnxruntime-mnn" in pipeline_cases


def test_a_kind_that_a_family_lacks_is_refused(tmp_path):
    path = suite_of(tmp_path, "sdxl", XL.path) / "parity.toml"
    text = path.read_text().replace("[pipeline.text2img]", "[pipeline.img2img]")
    path.write_text(text)
    with pytest.raises(
        SuiteError, match="'img2img' is not drawn with a StableDiffusionXL"
    ):
        load_suite(tmp_path)


def suite_of(tmp_path, name, checkpoint, extra=""):
    text = (FIXTURES / name / "parity.toml").read_text(encoding="utf-8")
    text = text.replace('checkpoint = "."', f'checkpoint = "{checkpoint.as_posix()}"')
    head = "[pipeline.text2img]\n"
    (tmp_path / "parity.toml").write_text(text.replace(head, f"{head}{extra}"))
    return tmp_path


def test_a_velocity_is_not_taken_for_noise(tmp_path):
    suite = suite_of(tmp_path, "sd3", FIXTURES / "sd3", 'scheduler = "ddim"\n')
    with pytest.raises(SuiteError, match=r"DDIM.* StableDiffusion3 .* a velocity"):
        load_suite(suite)


def test_noise_is_not_taken_for_a_velocity(tmp_path):
    for path in XL.path.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "scheduler").unlink()
    (tmp_path / "scheduler").symlink_to(FIXTURES / "sd3" / "scheduler")
    (tmp_path / "parity.toml").unlink()

    with pytest.raises(
        SuiteError, match=r"FlowMatchEuler.* StableDiffusionXL .* noise"
    ):
        load_suite(suite_of(tmp_path, "sdxl", tmp_path))


def test_tiles_are_the_size_that_the_configuration_says():
    plan = pipeline(vae_tiling=True, prompts=("three",), steps=1)
    asked = []
    decoder = torch_networks(plan, RESIDENTS, Device())["vae_decoder"]

    def overheard(feeds):
        asked.append(tuple(feeds["latent_sample"].shape[2:]))
        return decoder(feeds)

    inputs = draw_inputs(plan)
    tiled, _ = drawn(plan, inputs, vae_decoder=overheard)
    whole, _ = drawn(replace(plan, vae_tiling=False), inputs)

    assert max(asked) == (8, 8)
    assert len(asked) == 3 * 4
    # Each tile is normalised by itself, so tiling is another picture.
    assert np.abs(tiled - whole).max() > 1


def test_tiles_that_a_file_would_not_take_are_refused(tmp_path):
    path = suite_of(tmp_path, "sdxl", XL.path) / "parity.toml"
    path.write_text(path.read_text().replace('"batch", "height", "width"]', '"batch"]'))
    with pytest.raises(SuiteError, match=r"give dynamic_axes = .*vae_decoder\]"):
        load_suite(tmp_path)
