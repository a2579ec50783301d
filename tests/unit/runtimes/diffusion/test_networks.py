"""Networks give the outputs of their modules, and use no more memory."""

from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

from harness.core.case import Device, Source, TensorSpec
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.pipelines.drawing import networks
from harness.plugins.pipelines.drawing.networks import (
    Remembered,
    Resident,
    Residents,
    TorchNetwork,
    as_declared,
    fingerprint,
)
from harness.recipes import describe, recipe_module
from harness.recipes.diffusion import vae_decoder
from tests.places import DIGITS

pytestmark = pytest.mark.usefixtures("one_thread")

TIMESTEP = TensorSpec(name="timestep", shape=("batch",), dtype="int32")
SAMPLE = TensorSpec(name="sample", shape=("batch", 2), dtype="float32")
GIB = 1 << 30
DECODER = describe("vae_decoder", "vae_decoder", Source(path=DIGITS), {})


def numbers(*values):
    return {"x": torch.tensor(values, dtype=torch.float32)}


class Doubling:
    """A network that counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, feeds):
        self.asked += 1
        return {"y": feeds["x"] * 2}


@pytest.mark.parametrize(
    ("draw", "given"), [("timestep", torch.float32), ("normal", torch.bfloat16)]
)
def test_a_timestep_alone_is_not_rounded_in_a_network_of_fewer_bits(draw, given):
    taken: list[torch.Tensor] = []

    def network(value):
        taken.append(value)
        return (value,)

    class Kept(Residents):
        def use(self, *_):
            return network

    spec = TensorSpec(name="x", shape=("batch",), draw=draw)
    component = replace(DECODER, inputs=(spec,), outputs=(spec,))

    TorchNetwork(component, Kept(), Device(), torch.bfloat16)(numbers(999.0))

    assert taken[0].dtype == given


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_whole_timesteps_of_any_dtype_become_int32(dtype):
    made = as_declared(TIMESTEP, torch.tensor([981], dtype=dtype), "unet")
    assert made.dtype == np.int32
    assert made.tolist() == [981]


@pytest.mark.parametrize("value", [958.9, 2**40])
def test_a_timestep_that_int32_does_not_hold_is_refused_with_the_way_out(value):
    with pytest.raises(StageError) as caught:
        as_declared(TIMESTEP, torch.tensor([value]), "unet")
    said = str(caught.value)
    assert caught.value.outcome is Outcome.DTYPE
    assert f"takes 'timestep' as int32, and the scheduler gives {value:g}" in said
    assert 'scheduler_options = { timestep_spacing = "leading" }' in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("draw", "given"),
    [
        pytest.param("hint", [0.0, 255.0], id="hint-of-bytes"),
        pytest.param("hint", [-1.0, 1.0], id="hint-as-a-picture"),
        pytest.param("image", [0.0, 255.0], id="picture-of-bytes"),
        pytest.param("tokens", [-100.0, 5.0], id="ids-that-training-leaves-out"),
    ],
)
def test_values_that_a_network_does_not_take_are_refused(draw, given):
    spec = TensorSpec(name="x", shape=("batch",), draw=draw)
    with pytest.raises(StageError, match=r"net: input 'x' holds values from"):
        as_declared(spec, torch.tensor(given), "net")


def test_what_is_not_finite_is_left_to_be_judged():
    spec = TensorSpec(name="x", shape=("batch",), draw="image")
    assert np.isnan(as_declared(spec, torch.tensor([0.5, np.nan]), "net")).any()


def test_a_runtime_gets_what_its_file_takes_in_one_piece():
    value = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64).T
    made = as_declared(SAMPLE, value, "unet")
    assert made.flags.c_contiguous
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, value.numpy().astype(np.float32))


def test_the_same_bits_are_asked_once():
    network = Doubling()
    remembered = Remembered(network)
    first, second = remembered(numbers(1, 2)), remembered(numbers(1, 2))
    remembered(numbers(1, 3))
    assert network.asked == 2
    assert first["y"].tolist() == second["y"].tolist() == [2, 4]


def test_what_is_measured_always_runs():
    network = Doubling()
    remembered = Remembered(network)
    remembered.always_runs = True

    remembered(numbers(1))
    remembered(numbers(1))
    assert network.asked == 2

    remembered.always_runs = False
    remembered(numbers(1))
    assert network.asked == 2


def test_an_answer_may_be_changed_without_changing_the_memory():
    remembered = Remembered(Doubling())
    for _ in range(3):
        answer = remembered(numbers(1))
        assert answer["y"].tolist() == [2]
        answer["y"].zero_()


def test_no_more_is_kept_than_there_is_room_for():
    network = Doubling()
    remembered = Remembered(network, limit_bytes=2 * 4)

    for value in (1, 2, 3):
        remembered(numbers(value))
    for value in (1, 2):
        remembered(numbers(value))
    assert network.asked == 3

    remembered(numbers(3))
    assert network.asked == 4


def test_an_answer_that_is_kept_already_takes_no_more_room():
    network = Doubling()
    remembered = Remembered(network, limit_bytes=2 * 4)
    remembered.always_runs = True
    for value in (1, 1, 2):
        remembered(numbers(value))
    remembered.always_runs = False
    remembered(numbers(2))
    assert network.asked == 3


def test_what_was_learned_is_not_asked():
    network = Doubling()
    remembered = Remembered(network)
    remembered.learn(fingerprint(numbers(1)), {"y": torch.tensor([7.0])})
    assert remembered(numbers(1))["y"].tolist() == [7]
    assert network.asked == 0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"x": torch.zeros(6, dtype=torch.float64)}, id="dtype"),
        pytest.param({"x": torch.zeros(6, dtype=torch.int32)}, id="same-bits"),
        pytest.param({"x": torch.zeros(2, 3)}, id="shape"),
        pytest.param({"z": torch.zeros(6)}, id="name"),
        pytest.param({"x": -torch.zeros(6)}, id="sign-of-zero"),
        pytest.param({"x": torch.tensor([0, 0, 0, 0, 0, 1e-45])}, id="one-bit"),
        pytest.param({"x": torch.zeros(6), "y": torch.zeros(6)}, id="one-more"),
    ],
)
def test_inputs_that_differ_have_other_fingerprints(other):
    assert fingerprint(other) != fingerprint({"x": torch.zeros(6)})


def test_the_order_of_names_and_the_layout_do_not_matter():
    one, two = torch.zeros(2), torch.arange(6.0).reshape(2, 3)
    turned = two.T.contiguous().T
    assert not turned.is_contiguous()
    seen = fingerprint({"a": one, "b": two})
    assert seen == fingerprint({"b": turned, "a": one})
    assert seen != fingerprint({"a": two, "b": one}), "exchanged"


class Memory:
    """Loads things that take memory of a machine that has only so much."""

    def __init__(self, monkeypatch, gib):
        self.left = gib * GIB
        self.closed = []
        monkeypatch.setattr(networks, "available_bytes", lambda: self.left)

    def load(self, name, gib):
        def close():
            self.left += gib * GIB
            self.closed.append(name)

        def load():
            self.left -= gib * GIB
            return Resident(value=f"{name} as loaded", close=close)

        return name, gib * GIB, load


def test_the_least_recently_used_goes_first(monkeypatch):
    memory, residents = Memory(monkeypatch, 12), Residents()
    text, unet, decoder = (memory.load(name, 4) for name in ("text", "unet", "vae"))
    residents.use(*text)
    residents.use(*unet)
    residents.use(*text)
    assert memory.closed == []

    residents.use(*decoder)  # 4 GiB, and 2 to work with: one must go

    assert memory.closed == ["unet"]
    residents.use(*text)
    assert memory.closed == ["unet"]


def test_as_many_go_as_must(monkeypatch):
    memory, residents = Memory(monkeypatch, 12), Residents()
    for name in ("one", "two", "three"):
        residents.use(*memory.load(name, 2))
    residents.use(*memory.load("large", 8))
    assert memory.closed == ["one", "two"]


def test_what_needs_more_than_there_is_is_loaded_alone(monkeypatch):
    memory, residents = Memory(monkeypatch, 4), Residents()
    residents.use(*memory.load("one", 1))
    assert residents.use(*memory.load("huge", 100)) == "huge as loaded"
    assert memory.closed == ["one"]


def test_a_limit_counts_what_this_process_has_taken_already(monkeypatch):
    taken_gib = psutil.Process().memory_info().rss / GIB
    memory, residents = Memory(monkeypatch, 64), Residents(taken_gib + 4)
    residents.use(*memory.load("small", 1))
    assert memory.closed == []
    residents.use(*memory.load("large", 3))  # and 2 GiB to work with
    assert memory.closed == ["small"], "64 GiB are free, and 4 of them allowed"


def test_closing_lets_go_of_everything_once(monkeypatch):
    memory, residents = Memory(monkeypatch, 64), Residents()
    for name in ("one", "two"):
        residents.use(*memory.load(name, 2))
    residents.close()
    residents.close()
    assert memory.closed == ["one", "two"]
    assert memory.left == 64 * GIB


@pytest.fixture(scope="module")
def latents():
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.standard_normal((2, 4, 16, 16), dtype=np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_is_the_recipes_own_module(latents, dtype):
    network = TorchNetwork(DECODER, Residents(), Device(), dtype)
    made = network({"latent_sample": latents, "unasked": latents})
    with torch.no_grad():
        expected = vae_decoder.build(DECODER).to(dtype)(latents.to(dtype))
    assert list(made) == ["sample"]
    assert made["sample"].dtype == dtype
    assert not made["sample"].requires_grad
    assert torch.equal(made["sample"], expected)


def test_double_precision_is_closer_to_itself_than_single(latents):
    residents = Residents()
    single, double = (
        TorchNetwork(DECODER, residents, Device(), dtype)
        for dtype in (torch.float32, torch.float64)
    )

    one, two = (each({"latent_sample": latents})["sample"] for each in (single, double))

    # Both of one component stay in memory at once, and are not taken for each other.
    assert 0 < (one.double() - two).abs().max() < 1e-4
    assert torch.equal(single({"latent_sample": latents})["sample"], one)


def test_whole_numbers_stay_whole_in_double_precision():
    text = describe("text_encoder", "text_encoder", Source(path=DIGITS), {})
    network = TorchNetwork(text, Residents(), Device(), torch.float64)
    made = network({"input_ids": torch.full((1, 77), 596)})
    assert list(made) == ["last_hidden_state", "pooler_output"]
    assert made["last_hidden_state"].dtype == torch.float64


def test_a_network_is_built_when_it_is_first_asked(latents, monkeypatch):
    built = []

    def counted(name):
        built.append(name)
        return recipe_module(name)

    monkeypatch.setattr(networks, "recipe_module", counted)
    network = TorchNetwork(DECODER, Residents(), Device())
    assert built == []

    for _ in range(2):
        network({"latent_sample": latents})

    assert built == ["vae_decoder"]


def test_only_a_components_own_weights_are_made_room_for(latents, monkeypatch):
    asked = []
    residents = Residents()
    use = residents.use

    def told(key, need_bytes, load):
        asked.append(need_bytes)
        return use(key, need_bytes, load)

    monkeypatch.setattr(residents, "use", told)
    TorchNetwork(DECODER, residents, Device())({"latent_sample": latents})

    (weights,) = (DIGITS / "vae").glob("*.safetensors")
    assert asked == [weights.stat().st_size]
