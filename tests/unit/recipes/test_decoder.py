"""A decoder's step with a cache, against the same decoder without one."""

import json

import numpy as np
import pytest
import torch

from harness.core.case import Sample
from harness.core.errors import SuiteError
from harness.recipes import describe
from harness.recipes.inputs import draw, generator
from harness.recipes.text import decoder
from harness.recipes.text.decoder import unfit
from tests.unit import recipe_runs
from tests.unit.encoders import write_encoder

KINDS = {
    "llama": {"num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 80},
    "gemma": {"head_dim": 8, "num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "qwen2": {"num_key_value_heads": 2},
    "phi": {},
}
SHAPES = {"batch": 3, "past": 11}
STEP, WHOLE = "text-generation-with-past", "text-generation"


def part(folder, name=STEP, kind="llama", **changes):
    own = {**KINDS[kind], "pad_token_id": 0, **changes}
    return describe(name, name, write_encoder(folder, kind, **own))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_with_a_cache_answers_as_the_whole_text_does(tmp_path, kind):
    step, whole = (part(tmp_path, name, kind) for name in (STEP, WHOLE))
    feeds = recipe_runs.drawn(step, SHAPES)
    made = recipe_runs.answers(step, feeds)
    recipe_runs.check_signature(step, made, SHAPES)

    mask = feeds["attention_mask"]
    (expected,) = recipe_runs.answers(
        whole, {"input_ids": _ids_of(step), "attention_mask": mask}
    )
    assert torch.allclose(made[0], expected[:, -1:], atol=1e-5)


def _ids_of(step):
    """The whole texts that the step's inputs were drawn from."""
    sizes = tuple(sorted(SHAPES.items()))
    sample = Sample(profile="realistic", index=1, shapes=sizes)
    rng = generator(step.name, sample)
    texts = decoder._on_the_left(decoder._texts(step, SHAPES, 1, rng))
    return texts["input_ids"]


def test_the_cache_grows_by_the_new_token_alone(tmp_path):
    step = part(tmp_path)
    feeds = recipe_runs.drawn(step, SHAPES)
    made = recipe_runs.answers(step, feeds)

    for name, present in zip(list(feeds)[2:], made[1:], strict=True):
        assert np.array_equal(present[:, :, :-1].numpy(), feeds[name])


def test_padding_is_on_the_left_and_the_new_token_is_read(tmp_path):
    mask = recipe_runs.drawn(part(tmp_path), SHAPES)["attention_mask"]

    assert (mask[:, -1] == 1).all()
    assert (np.diff(mask) >= 0).all()
    assert (mask == 0).any()


@pytest.mark.parametrize("profile", ["unit-normal", "large-mean", "boundary"])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_profile_draws_a_step(tmp_path, profile, batch):
    sizes = (("batch", batch), ("past", 7))
    feeds = draw(part(tmp_path), Sample(profile=profile, index=0, shapes=sizes))

    assert feeds["attention_mask"].shape == (batch, 8)
    assert feeds["past_key_values.1.value"].shape == (batch, 2, 7, 8)


def test_two_texts_may_end_in_the_same_token(tmp_path):
    step = part(tmp_path, vocab_size=2)

    for seed in range(8):
        sizes = (("batch", 4), ("past", 7))
        draw(step, Sample(profile="unit-normal", index=0, shapes=sizes, seed=seed))


def test_the_last_position_is_kept_for_the_new_token(tmp_path):
    source = part(tmp_path, max_position_embeddings=16).source

    assert unfit(source, {"past": 15}) == ("", "")
    assert unfit(source, {"past": 16})[0] == "past"


def test_an_encoder_and_decoder_is_refused(tmp_path):
    with pytest.raises(SuiteError, match="encoder's keys and values"):
        describe(STEP, STEP, write_encoder(tmp_path, "bart", d_model=32))


@pytest.mark.parametrize(
    "keys",
    [
        {"num_hidden_layers": [2, 2]},
        {"num_hidden_layers": 2**31 - 1},
        {"num_key_value_heads": [2, 2]},
        {"num_key_value_heads": "many"},
        {"head_dim": [8]},
        {"hidden_size": [32]},
    ],
    ids=str,
)
def test_a_configuration_with_another_kind_of_number_is_refused(tmp_path, keys):
    source = write_encoder(tmp_path, "llama", **KINDS["llama"], pad_token_id=0)
    path = source.path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    with pytest.raises(SuiteError):
        describe(STEP, STEP, source)
