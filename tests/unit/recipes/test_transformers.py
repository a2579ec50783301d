"""Diffusion transformers, T5, tiny autoencoders: their configuration and inputs."""

import json

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import T5Tokenizer

from harness.core.case import ExportSettings, Source
from harness.core.errors import StageError, SuiteError
from harness.core.outcome import Outcome
from harness.plugins.contracts.judged import FAINT
from harness.plugins.contracts.runs.reference import effects_at
from harness.recipes import describe, discover, recipe_module
from harness.recipes.diffusion.clip_text import PROMPTS
from harness.recipes.diffusion.flow_matching import sigmas
from harness.recipes.diffusion.transformer import class_of
from harness.recipes.diffusion.transformer_flux import GUIDANCE, grid_of
from harness.runtimes.pytorch.export import export_onnx
from harness.runtimes.pytorch.reference import run_of
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit import nets, recipe_runs

SHAPES = {
    "batch": 3,
    "height": 8,
    "width": 12,
    "text_tokens": 85,
    "tokens": 9,
    "image_tokens": 24,
}
OURS = {"transformer", "t5_encoder", "vae_encoder", "vae_decoder"}
"""CLIP, which some of these checkpoints have too, has tests of its own."""

FOUND = {
    "sd3": {"transformer", "vae_encoder", "vae_decoder"},
    "flux": {"transformer", "t5_encoder", "vae_encoder", "vae_decoder"},
    "pixart": {"transformer", "t5_encoder"},
    "dit": {"transformer"},
}
SQUARE = {**SHAPES, "width": 8}
"""DiT draws no other picture."""


def source(name):
    return Source(path=FIXTURES / name, seed=0)


def drawn(part, profile="realistic", index=1, shapes=SHAPES):
    return recipe_runs.drawn(part, shapes, profile, index)


def run(part, feeds):
    (made,) = recipe_runs.answers(part, feeds)
    return made


def changed(tmp_path, name, folder, **values):
    return recipe_runs.changed(tmp_path, FIXTURES / name, folder, **values)


@pytest.mark.parametrize("fixture", FOUND)
def test_every_network_of_a_family_is_found(fixture):
    assert OURS & set(discover(source(fixture))) == FOUND[fixture]


@pytest.mark.parametrize("profile", ["realistic", "boundary"])
@pytest.mark.parametrize(
    ("fixture", "name"), [(one, name) for one in FOUND for name in sorted(FOUND[one])]
)
def test_every_network_keeps_its_signature(fixture, name, profile):
    shapes = SQUARE if fixture == "dit" else SHAPES
    part = describe(name, name, source(fixture))
    out = run(part, drawn(part, profile, shapes=shapes))

    recipe_runs.check_signature(part, [out], shapes)


@pytest.mark.parametrize(
    ("fixture", "inputs"),
    [
        ("dit", ["hidden_states", "timestep", "class_labels"]),
        (
            "sd3",
            [
                *("hidden_states", "encoder_hidden_states"),
                *("pooled_projections", "timestep"),
            ],
        ),
        (
            "pixart",
            [
                *("hidden_states", "encoder_hidden_states", "timestep"),
                *("encoder_attention_mask", "resolution", "aspect_ratio"),
            ],
        ),
        (
            "flux",
            [
                *("hidden_states", "encoder_hidden_states", "pooled_projections"),
                *("timestep", "img_ids", "txt_ids", "guidance"),
            ],
        ),
    ],
)
def test_a_transformer_has_the_inputs_of_its_class(fixture, inputs):
    part = describe("transformer", "transformer", source(fixture))

    assert [spec.name for spec in part.inputs] == inputs


@pytest.mark.parametrize(
    ("fixture", "told", "last"),
    [
        ("flux", {"guidance_embeds": False}, "txt_ids"),
        ("pixart", {"use_additional_conditions": False}, "encoder_attention_mask"),
    ],
)
def test_what_a_network_does_not_embed_is_no_input(tmp_path, fixture, told, last):
    other = changed(tmp_path, fixture, "transformer", **told)
    part = describe("transformer", "transformer", other)

    assert part.inputs[-1].name == last
    assert torch.isfinite(run(part, drawn(part))).all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DiTTransformer3DModel", r"DiTTransformer3DModel.*did you mean 'DiTT"),
        ("Transformer2DModel", "knows the class 'Transformer2DModel'"),
    ],
)
def test_a_class_that_no_recipe_knows_is_named(tmp_path, name, said):
    about = {"_class_name": name, "norm_type": "layer_norm"}
    other = changed(tmp_path, "dit", "transformer", **about)

    with pytest.raises(SuiteError, match=said):
        describe("transformer", "transformer", other)


@pytest.mark.parametrize("fixture", ["dit", "pixart"])
def test_the_name_before_dit_and_pixart_were_two_classes_is_followed(tmp_path, fixture):
    now = source(fixture)
    norm = {"dit": "ada_norm_zero", "pixart": "ada_norm_single"}[fixture]
    about = {"_class_name": "Transformer2DModel", "norm_type": norm}
    legacy = changed(tmp_path, fixture, "transformer", **about)

    for name in {"transformer", "t5_encoder"} & set(discover(now)):
        old, new = (describe(name, name, each) for each in (legacy, now))
        assert (old.inputs, old.outputs) == (new.inputs, new.outputs)
    assert class_of(legacy) == class_of(now)
    old, new = (describe("transformer", "transformer", s) for s in (legacy, now))
    feeds = drawn(new, shapes=SQUARE)
    assert torch.equal(run(old, feeds), run(new, feeds))


def test_noise_is_shifted_as_the_scheduler_shifts_it():
    assert sigmas(source("sd3"), 1, 0) == pytest.approx([1.0])
    assert sigmas(source("sd3"), 1, 2) == pytest.approx([3 * 0.35 / (1 + 2 * 0.35)])
    assert sigmas(source("dit"), 1, 2) == pytest.approx([0.35])


def test_the_last_step_is_nearly_the_picture_and_the_first_is_noise():
    part = describe("transformer", "transformer", source("sd3"))
    steps = [drawn(part, index=index)["timestep"][0] for index in range(4)]

    assert steps == sorted(steps, reverse=True)
    assert steps[0] == pytest.approx(1000.0)
    assert steps[-1] < 100.0


def test_what_dynamo_finds_in_the_sizes_is_quoted_and_no_line_that_there_is_not(
    tmp_path,
):
    part = describe("transformer", "transformer", source("dit"))
    shapes = {"batch": 2, "height": 16, "width": 24}
    feeds = recipe_runs.tensors(drawn(part, shapes=shapes))
    module = recipe_module(part.recipe).build(part)
    settings = ExportSettings(dynamic=("batch",))
    network = nets.traced(module, part, settings, tuple(feeds), tmp_path / "store")

    with pytest.raises(StageError, match=r"found: .*is inconsistent") as refused:
        export_onnx(network, tmp_path)

    assert refused.value.outcome is Outcome.EXPORT
    assert "that line" not in str(refused.value)
    assert "leave axes out of dynamic_axes, or give other [[shapes]]" in str(
        refused.value
    )


SUITE = """\
components = ["transformer"]
[source]
checkpoint = {checkpoint}
seed = 0
[[shapes]]
batch = 1
height = 16
width = 24
text_tokens = 85
[backend.onnxruntime]
"""


def test_a_dit_draws_squares_alone_and_the_suite_says_so(tmp_path):
    def suite(name):
        text = SUITE.format(checkpoint=json.dumps(str(FIXTURES / name)))
        lines = [s for s in text.splitlines() if name == "sd3" or "text_" not in s]
        (tmp_path / "parity.toml").write_text("\n".join(lines))
        return load_suite(tmp_path / "parity.toml")

    with pytest.raises(
        SuiteError,
        match=r"parity\.toml:8: 'transformer': a DiT draws squares alone, got "
        r"height = 16 and width = 24; give both the same\.",
    ):
        suite("dit")
    assert suite("sd3").cases


def test_flux_says_where_each_token_stands_whatever_the_profile():
    part = describe("transformer", "transformer", source("flux"))
    for profile in ("realistic", "large-mean", "boundary"):
        places = drawn(part, profile)["img_ids"]

        assert places[:, 1:].max(axis=0).tolist() == [3, 5]
        assert len(np.unique(places, axis=0)) == 24
    assert grid_of(24) == (4, 6)
    assert grid_of(7) == (1, 7)


def asked_of(name, wrap=lambda run: run):
    """Return what each input of a small transformer moves when it is changed alone."""
    part = describe("transformer", "transformer", source(name))
    sizes = tuple(sorted((SHAPES | {"batch": 1, "text_tokens": 14}).items()))
    module = recipe_module("transformer").build(part)
    return part, effects_at(wrap(run_of(module, part, "cpu")), part, sizes)


@pytest.mark.parametrize("name", ["sd3", "flux", "pixart"])
def test_every_input_is_changed_alone_though_a_pipeline_always_gives_the_same(name):
    part, found = asked_of(name)

    assert list(found) == [spec.name for spec in part.inputs]
    assert min(found.values()) > FAINT


def test_an_input_that_the_network_takes_one_value_of_is_not_tried():
    def only_as_drawn(run):
        def strict(feeds):
            if feeds["guidance"] != GUIDANCE:
                raise ValueError
            return run(feeds)

        return strict

    part, found = asked_of("flux", only_as_drawn)

    assert {spec.name for spec in part.inputs} - set(found) == {"guidance"}


def test_pixart_masks_padding_and_never_a_whole_prompt():
    part = describe("transformer", "transformer", source("pixart"))
    for index in range(90):
        mask = drawn(part, index=index)["encoder_attention_mask"]
        assert (mask.sum(axis=1) >= 1).all()
        assert (np.diff(mask, axis=1) <= 0).all()


def test_what_pixart_masks_does_not_change_its_answer():
    part = describe("transformer", "transformer", source("pixart"))
    feeds = {name: array.copy() for name, array in drawn(part).items()}
    before = run(part, feeds)
    padding = feeds["encoder_attention_mask"] == 0
    assert padding.any()
    feeds["encoder_hidden_states"][padding] = 5.0

    torch.testing.assert_close(run(part, feeds), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("fixture", "folder", "options", "inputs"),
    [
        ("flux", "text_encoder_2", {}, ["input_ids"]),
        (
            *("flux", "text_encoder_2", {"attention_mask": True}),
            ["input_ids", "attention_mask"],
        ),
        ("pixart", "text_encoder", {}, ["input_ids", "attention_mask"]),
    ],
)
def test_t5_is_found_where_its_pipeline_keeps_it(fixture, folder, options, inputs):
    part = describe("t5_encoder", "t5_encoder", source(fixture), options)

    assert (FIXTURES / fixture / folder / "config.json").is_file()
    assert [spec.name for spec in part.inputs] == inputs
    assert "text_encoder" not in discover(source(fixture))


def test_t5_prompts_end_once_and_are_masked_after_their_end():
    part = describe("t5_encoder", "t5_encoder", source("pixart"))
    feeds = drawn(part, shapes={**SHAPES, "tokens": 40})
    ids, mask = feeds["input_ids"], feeds["attention_mask"]

    assert (ids == 1).sum(axis=1).tolist() == [1, 1, 1]
    assert (ids[mask == 0] == 0).all()
    assert (ids[mask == 1] != 0).all()


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789,;"


@pytest.mark.parametrize(("fixture", "number"), [("pixart", ""), ("flux", "_2")])
def test_t5_prompts_go_through_the_checkpoints_tokenizer(tmp_path, fixture, number):
    copy = changed(tmp_path, fixture, f"text_encoder{number}")
    part = describe("t5_encoder", "t5_encoder", copy, {"attention_mask": True})
    by_chance = drawn(part, index=0)["input_ids"]
    words = [(letter, -2.0) for letter in ("\u2581", *LETTERS)]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = T5Tokenizer(vocab=special + words, extra_ids=0)
    tokenizer.save_pretrained(copy.path / f"tokenizer{number}")

    feeds = drawn(part, index=0)

    assert tokenizer.decode(feeds["input_ids"][2]) == "a photo</s>"
    assert feeds["input_ids"][1].tolist() == [1] + [0] * 8  # the empty prompt
    assert feeds["attention_mask"][1].tolist() == [1] + [0] * 8
    assert feeds["input_ids"].dtype == np.int32
    assert not np.array_equal(feeds["input_ids"], by_chance)


def test_a_tokenizer_of_t5_that_cannot_be_read_is_named(tmp_path):
    copy = changed(tmp_path, "pixart", "text_encoder")
    (copy.path / "tokenizer").mkdir()
    (copy.path / "tokenizer" / "tokenizer.json").write_text("{")
    part = describe("t5_encoder", "t5_encoder", copy)

    with pytest.raises(SuiteError, match=r"tokenizer has tokenizer\.json, of which"):
        drawn(part)


@pytest.fixture
def piece(tmp_path):
    """A PixArt whose tokenizer is a spiece.model, as its own repository has it."""
    copy = changed(tmp_path, "pixart", "text_encoder")
    home = copy.path / "tokenizer"
    home.mkdir()
    (home / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    with (home / "spiece.model").open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter([LETTERS, *PROMPTS]),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
        )
    return describe("t5_encoder", "t5_encoder", copy), home


def test_a_spiece_model_is_read(piece):
    part, home = piece
    ids = drawn(part, index=0)["input_ids"][2].tolist()

    read = SentencePieceProcessor(model_file=str(home / "spiece.model"))
    assert read.decode([one for one in ids if one > 2]).startswith("a photo")
    assert ids[-1] == 1


def test_a_spiece_model_that_cannot_be_read_is_told_with_what_it_takes(piece):
    part, home = piece
    (home / "spiece.model").write_bytes(b"no model")

    with pytest.raises(SuiteError, match="needs the package sentencepiece"):
        drawn(part)


def test_a_checkpoint_without_t5_is_told_so():
    with pytest.raises(SuiteError, match="T5EncoderModel"):
        describe("t5_encoder", "t5_encoder", source("dit"))


def test_a_tiny_autoencoder_has_no_distribution_to_ask_for():
    with pytest.raises(SuiteError, match="parameters"):
        describe("vae_encoder", "vae_encoder", source("flux"), {"parameters": True})


def test_an_autoencoder_of_another_class_is_refused(tmp_path):
    video = changed(tmp_path, "sd3", "vae", _class_name="AutoencoderKLWan")

    with pytest.raises(SuiteError, match=r"AutoencoderKLWan.*AutoencoderKL"):
        describe("vae_decoder", "vae_decoder", video)


def test_latents_reach_a_decoder_scaled_back_and_shifted(tmp_path):
    far = changed(tmp_path, "sd3", "vae", shift_factor=7.0, scaling_factor=2.0)
    part = describe("vae_decoder", "vae_decoder", far)
    latents = drawn(part)["latent_sample"]

    assert latents.mean() == pytest.approx(7.0, abs=0.1)
    assert latents.std() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("fixture", "settings", "cause", "way_out"),
    [
        (
            "flux",
            ExportSettings(exporter="torchscript", opset=17),
            "aten::rms_norm",
            'exporter = "dynamo"',
        ),
        (
            "pixart",
            ExportSettings(exporter="dynamo"),
            "an axis of 24",
            'exporter = "torchscript" with dynamic_axes = []',
        ),
    ],
)
def test_an_export_that_cannot_be_right_names_the_way_out(
    tmp_path, fixture, settings, cause, way_out
):
    part = describe("transformer", "transformer", source(fixture))
    example = tuple(recipe_runs.tensors(drawn(part)))
    module = recipe_module("transformer").build(part)
    network = nets.traced(module, part, settings, example, tmp_path / "store")

    with pytest.raises(StageError) as caught:
        export_onnx(network, tmp_path)

    assert caught.value.outcome is Outcome.EXPORT
    assert cause in str(caught.value)
    assert way_out in str(caught.value)
