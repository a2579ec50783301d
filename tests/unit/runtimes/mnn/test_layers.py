"""`harness.runtimes.mnn.layers`: the converter stores what these functions foretell."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.case import Device
from harness.core.rounding import Trials
from harness.engine.export_files import MODEL as ONNX
from harness.engine.store import Store
from harness.runtimes.mnn import MODEL, RUNTIME
from harness.runtimes.mnn.layers import (
    float_weights,
    integers_of,
    plan_text,
    rounded,
    stored,
    stored_bytes,
)
from harness.runtimes.mnn.session import MnnSession
from harness.runtimes.pytorch.reference import run_of
from harness.runtimes.pytorch.rounded import Roundable, effects
from tests.unit import nets

assert RUNTIME.mixed is not None
BITS = RUNTIME.mixed.bits


@pytest.fixture(scope="module")
def deployed(blocks_files, tmp_path_factory):
    """Convert the small network: in float32, and by a plan of bits."""
    folder = tmp_path_factory.mktemp("deployed")

    def made(name, kind="fp32", bits=None):
        (out := folder / name).mkdir()
        flags: tuple[str, ...] = ()
        files: tuple[tuple[str, Path], ...] = ()
        if bits is not None:
            path = folder / f"{name}.json"
            path.write_text(plan_text(bits), encoding="utf-8")
            flags = ("--compressionParamsFile=plan.json",)
            files = ((flags[0], path),)
        source = blocks_files["dynamo"] / ONNX
        return nets.to_mnn(source, out, kind=kind, flags=flags, files=files)

    exact = made("exact")
    every = [layer.name for layer in stored(exact)]
    plans = {
        bits: made(f"bits{bits}", "fp32", dict.fromkeys(every, bits)) for bits in BITS
    }
    mixture = {name: BITS[at % len(BITS)] for at, name in enumerate(every)}
    return {
        "exact": exact,
        **plans,
        "mixture": (mixture, made("mixture", "int8-weights", mixture)),
        "half": made("half", "fp16-weights"),
        "int4": made("int4", "int4-weights"),
    }


def read_back(model, layer):
    """Return the integers, the smallest weights and the steps that a file stores."""
    data = model.with_name(f"{model.name}.weight").read_bytes()
    weights, scales = layer.sizes[:2]
    channels = layer.channels
    count_of = np.frombuffer(data, np.uint16, 2, layer.begin + 1)
    size = int(np.prod(count_of))
    packed = np.frombuffer(
        data, np.uint8, weights - 6 - 2**layer.bits, layer.begin + 6 + 2**layer.bits
    )
    digits = np.unpackbits(packed)[: size * layer.bits].reshape(size, layer.bits)
    values = digits @ (1 << np.arange(layer.bits)[::-1]) - 2 ** (layer.bits - 1)
    pairs = np.frombuffer(data, np.float32, scales // 4, layer.begin + weights)
    return values.reshape(channels, -1), pairs[0::2], pairs[1::2]


@pytest.mark.parametrize("bits", BITS[1:])
def test_the_rounding_is_bit_equal_to_what_the_converter_stores(deployed, bits):
    exact, model = deployed["exact"], deployed[bits]
    for before, after in zip(stored(exact), stored(model), strict=True):
        found = integers_of(float_weights(exact, before), bits)
        values, least, scale = read_back(model, after)
        assert after.bits == bits
        np.testing.assert_array_equal(found.values, values)
        np.testing.assert_array_equal(found.least, least)
        np.testing.assert_array_equal(found.scale, scale)


@pytest.mark.parametrize("bits", BITS)
def test_the_size_of_a_layer_is_known_before_it_is_converted(deployed, bits):
    known = [stored_bytes(layer, bits) for layer in stored(deployed["exact"])]
    assert known == [layer.stored_bytes for layer in stored(deployed[bits])]


def test_each_layer_gets_the_bits_of_the_plan(deployed):
    mixture, model = deployed["mixture"]
    assert {layer.name: layer.bits for layer in stored(model)} == mixture
    assert len({*mixture.values()}) == len(BITS)


@pytest.mark.parametrize(("name", "bits"), [("exact", 32), ("half", 16), ("int4", 4)])
def test_the_bits_of_a_built_in_variant_are_read_from_its_file(deployed, name, bits):
    assert {layer.bits for layer in stored(deployed[name])} == {bits}


def test_a_channel_of_equal_weights_keeps_its_value():
    weights = np.array([[0.5, 0.5], [-1.0, 1.0]], np.float32)
    np.testing.assert_array_equal(rounded(weights, 4)[0], weights[0])


def test_rounding_moves_no_weight_by_more_than_half_a_step():
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    error = np.abs(rounded(weights, 4) - weights).reshape(8, -1).max(axis=1)
    assert (error <= 0.5001 * integers_of(weights, 4).scale).all()


@pytest.fixture
def trials(deployed, tmp_path):
    """Trials of the small network, without any trial yet."""

    def copy(folder):
        shutil.copytree(deployed["exact"].parent, folder, dirs_exist_ok=True)
        return {}

    return Trials(
        backend="mnn",
        component=nets.BLOCKS,
        artifact=Store(root=tmp_path).make("mnn", {"of": "blocks"}, copy),
        model=MODEL,
        device=Device(),
        trials=(),
    )


def test_a_layer_in_float32_needs_no_weights_of_pytorch(deployed, trials):
    feeds = nets.feeds(nets.BLOCKS)
    first, *_, last = deployed["mixture"][0]
    given = replace(trials, trials=(((first, 4), (last, 32)), ((last, 4),)))
    network = Roundable(nets.Blocks(), given)
    network.layers[last] = []  # as where an exporter has changed the weights
    run = run_of(network.module, nets.BLOCKS, "cpu")

    one, other = effects(network, given, lambda: run(feeds)).errors

    assert 0 < min(one) < max(one) < np.inf
    assert np.isnan(other).all()


def test_the_deployed_file_computes_with_the_rounded_weights(deployed, trials):
    mixture, model = deployed["mixture"]
    feeds = nets.feeds(nets.BLOCKS)
    given = replace(trials, trials=(tuple(mixture.items()), ()))
    network = Roundable(nets.Blocks(), given)
    run = run_of(network.module, nets.BLOCKS, "cpu")

    found = effects(network, given, lambda: run(feeds))

    with MnnSession(model, Device(), ["map", "pooled"]) as session:
        made = session.run(feeds)
    rms = [
        np.sqrt(np.mean((made[name] - run(feeds)[name]) ** 2)) for name in found.rows
    ]
    assert np.sqrt(found.errors[0]) == pytest.approx(rms, rel=0.02)
    assert found.errors[1] == (0.0, 0.0)
    assert {*found.parameters.values()} == {
        (name,)
        for name in (
            *("conv_in", "attention.to_q", "attention.to_k", "attention.to_v"),
            *("attention.to_out", "ff.0", "ff.2", "conv_out"),
        )
    }
