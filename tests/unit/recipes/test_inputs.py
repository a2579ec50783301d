"""Drawn inputs have the same bits everywhere, differ by item, and are plausible."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from harness.core.case import PROFILES, Component, Sample, Source, TensorSpec
from harness.core.errors import SpecError
from harness.recipes import describe, discover
from harness.recipes import inputs as subject
from harness.recipes.inputs import draw
from harness.recipes.text.encoder import width_of
from harness.recipes.text.folder import longest
from tests.places import DIGITS, FIXTURES, ROOT

SOURCE = Source(path=DIGITS, seed=0)
COMPONENTS = discover(SOURCE)
SYNTHETIC = [profile for profile in PROFILES if profile != "realistic"]
SHAPES = (("batch", 3), ("height", 8), ("width", 12))


def component(name, source=SOURCE):
    return describe(name, name, source)


def sample(profile, index=0, shapes=SHAPES, seed=0):
    return Sample(profile=profile, index=index, shapes=shapes, seed=seed)


def digest(drawn):
    return hashlib.sha256(b"".join(a.tobytes() for a in drawn.values())).hexdigest()


def drawn_by(realistic, monkeypatch):
    """A component of one input, which its recipe draws as told."""
    recipe = SimpleNamespace(realistic=realistic, signature=dict, build=dict)
    monkeypatch.setitem(sys.modules, "stub_recipe", recipe)
    spec = TensorSpec(name="x", shape=("batch", 2), draw="normal")
    return Component(
        name="stub",
        recipe="stub_recipe",
        source=SOURCE,
        inputs=(spec,),
        outputs=(spec,),
    )


@pytest.mark.parametrize("profile", SYNTHETIC)
@pytest.mark.parametrize("name", COMPONENTS)
def test_arrays_are_as_promised_and_no_two_items_are_equal(name, profile):
    part = component(name)
    drawn = draw(part, sample(profile))

    assert list(drawn) == [spec.name for spec in part.inputs]
    for spec in part.inputs:
        array = drawn[spec.name]
        assert array.shape == spec.bind(dict(SHAPES))
        assert array.dtype.name == spec.dtype
        assert array.flags.c_contiguous
        assert array.flags.owndata
        assert not array.flags.writeable
        assert np.isfinite(array).all()
        if spec.shape[0] == "batch":
            assert len({item.tobytes() for item in array}) == 3


def test_realistic_prompts_differ_beyond_the_number_of_texts():
    ids = draw(component("text_encoder"), sample("realistic", 5, (("batch", 13),)))
    assert len({item.tobytes() for item in ids["input_ids"]}) == 13


def test_equal_items_are_refused(monkeypatch):
    part = drawn_by(lambda *_: {"x": np.ones((2, 2), np.float32)}, monkeypatch)
    with pytest.raises(
        SpecError, match="stub realistic-0: items 0 and 1 of x are equal"
    ):
        draw(part, sample("realistic", 0, (("batch", 2),)))


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ({"y": np.zeros((1, 2))}, "drew y; the inputs are x"),
        ({"x": np.zeros((1, 2))}, "float64 .1, 2., and the signature says float32"),
        ({"x": np.zeros((2, 1), np.float32)}, "the signature says float32 .1, 2."),
        ({"x": np.full((1, 2), np.nan, np.float32)}, "NaN or infinity"),
    ],
)
def test_a_recipe_that_breaks_its_signature_is_refused(monkeypatch, drawn, said):
    part = drawn_by(lambda *_: drawn, monkeypatch)
    with pytest.raises(SpecError, match=said):
        draw(part, sample("realistic", 0, (("batch", 1),)))


def test_an_unknown_way_to_draw_names_the_right_one():
    spec = TensorSpec(name="x", shape=("batch",), draw="imagge")
    part = dataclasses.replace(component("vae_encoder"), inputs=(spec,))
    with pytest.raises(SpecError, match="did you mean 'image'"):
        draw(part, sample("boundary"))


def test_the_same_bits_come_in_every_process():
    names = ("text_encoder", "controlnet", "vae_encoder")
    code = (
        "import json, sys; sys.path.insert(0, 'tests/unit/recipes');"
        "import test_inputs as t;"
        f"print(json.dumps([t.digest(t.draw(t.component(n), t.sample(p)))"
        f" for n in {names} for p in t.SYNTHETIC]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    here = [digest(draw(component(n), sample(p))) for n in names for p in SYNTHETIC]
    assert json.loads(done.stdout) == here


def test_synthetic_inputs_load_no_framework():
    code = (
        "import sys; sys.path.insert(0, 'tests/unit/recipes'); import test_inputs as t;"
        "t.draw(t.component('controlnet'), t.sample('unit-normal'));"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        check=False,
    )

    assert done.returncode == 0


def test_name_profile_index_and_seed_each_change_the_draw():
    part = component("vae_decoder")
    draws = [
        draw(part, sample("unit-normal")),
        draw(part, sample("unit-normal", seed=1)),
        draw(part, sample("unit-normal", 1)),
        draw(part, sample("boundary")),
        draw(dataclasses.replace(part, name="other"), sample("unit-normal")),
    ]

    assert len({digest(drawn) for drawn in draws}) == len(draws)


@pytest.mark.parametrize(
    ("profile", "mean", "std"),
    [
        ("unit-normal", 0.0, 1.0),
        ("low-variance", 0.0, subject.LOW_STD),
        ("large-mean", subject.LARGE_MEAN, subject.LARGE_STD),
    ],
)
def test_normal_draws_have_their_profiles_scale(profile, mean, std):
    shapes = (("batch", 4), ("height", 32), ("width", 32))
    latents = draw(component("vae_decoder"), sample(profile, 0, shapes))[
        "latent_sample"
    ]
    assert latents.mean(dtype=np.float64) == pytest.approx(mean, abs=std / 10)
    assert latents.std(dtype=np.float64) == pytest.approx(std, rel=0.05)


def test_boundary_latents_are_zero_or_as_large_as_is_plausible():
    latents = draw(component("vae_decoder"), sample("boundary"))["latent_sample"]
    assert set(np.unique(latents)) == {-subject.LARGEST, 0.0, subject.LARGEST}


def test_boundary_items_of_one_number_differ():
    spec = TensorSpec(name="x", shape=("batch", 1), draw="normal")
    for name in map("net{}".format, range(20)):
        one = dataclasses.replace(component("vae_decoder"), name=name, inputs=(spec,))
        drawn = draw(one, sample("boundary"))["x"]
        assert len(set(drawn[:, 0])) == len(drawn)


@pytest.mark.parametrize("profile", SYNTHETIC)
def test_pictures_and_hints_keep_their_range(profile):
    picture = draw(component("vae_encoder"), sample(profile))["sample"]
    hint = draw(component("controlnet"), sample(profile))["controlnet_cond"]
    assert -1.0 <= picture.min() < picture.max() <= 1.0
    assert 0.0 <= hint.min() < hint.max() <= 1.0


@pytest.mark.parametrize("size", [8, 64])
def test_hints_have_edges_at_every_size(size):
    """A gradient per pixel falls as pictures grow; edges must not fall with it."""
    shapes = (("batch", 2), ("height", size), ("width", size))
    hint = draw(component("controlnet"), sample("unit-normal", 0, shapes))
    for item in hint["controlnet_cond"]:
        assert 0.005 < item.mean() < 0.3


def test_boundary_timesteps_are_the_last_and_then_the_first():
    spec = TensorSpec(name="t", shape=("steps",), dtype="int32", draw="timestep")
    part = dataclasses.replace(component("unet"), inputs=(spec,))
    drawn = [draw(part, sample("boundary", 0, (("steps", n),)))["t"] for n in (1, 2)]
    assert [steps.tolist() for steps in drawn] == [[999], [999, 0]]


def test_boundary_tokens_hold_the_vocabularys_ends_and_a_row_of_padding():
    part = component("text_encoder", Source(path=FIXTURES / "sd15", seed=0))
    ids = draw(part, sample("boundary", 0, (("batch", 3),)))["input_ids"]
    assert {0, 49407, 2049, 32769} <= set(ids[0].tolist())
    assert set(ids[1].tolist()) == {49407}
    assert ids.min() >= 0
    assert ids.max() < 49408


@pytest.mark.parametrize("profile", SYNTHETIC)
def test_tokens_stay_within_a_small_vocabulary(profile):
    ids = draw(component("text_encoder"), sample(profile))["input_ids"]
    assert ids.min() >= 0
    assert ids.max() < 598


@pytest.mark.parametrize("profile", SYNTHETIC)
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@pytest.mark.parametrize(
    "shape",
    [("tokens",), ("batch", "tokens"), ("batch", 1, 1, "tokens"), ("batch", 4, 4)],
)
def test_a_mask_of_any_shape_holds_words_and_padding(profile, dtype, shape):
    spec = TensorSpec(name="m", shape=shape, dtype=dtype, draw="mask")
    part = dataclasses.replace(component("unet"), inputs=(spec,))
    mask = draw(part, sample(profile, 0, (("batch", 3), ("tokens", 7))))["m"]
    assert set(np.unique(mask).tolist()) <= {0, 1}
    assert (mask.reshape(-1, mask.shape[-1]).sum(-1) >= 1).all()


@pytest.mark.parametrize("name", ["n_embd", "n_embed", "d_model", "dim", "emb_dim"])
def test_the_width_of_a_state_has_many_names(tmp_path, name):
    config = {"model_type": "gpt2", name: 24, "n_positions": 40}
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = Source(path=tmp_path)
    assert (width_of(source), longest(source)) == (24, 40)


def test_a_decoder_that_projects_its_states_has_the_width_of_the_projection(tmp_path):
    config = {"model_type": "opt", "hidden_size": 32, "word_embed_proj_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert width_of(Source(path=tmp_path)) == 16
