"""OpenVINO's session: outputs as deployed, layers as added outputs."""

import numpy as np
import onnx
import pytest

from harness.core.case import Device, Variant
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL as EXPORTED
from harness.runtimes.openvino import MODEL, RUNTIME, WEIGHTS
from harness.runtimes.openvino import session as module
from harness.runtimes.openvino.convert import convert
from harness.runtimes.openvino.session import open_session
from tests.unit import nets

DEVICE = Device(threads=1, precision="f32")
OUTPUTS = ["map", "pooled"]
# Of the largest output, for weights of the order of a tenth.
ALLOWED = {"fp32": 1e-5, "fp16": 5e-3, "int8-weights": 5e-2}


@pytest.fixture(scope="module")
def source(blocks_files):
    return blocks_files["dynamo"] / EXPORTED


@pytest.fixture(scope="module")
def feeds():
    return nets.feeds(nets.BLOCKS)


def converted(source, folder, kind="fp32", flags=()):
    variant = Variant(name=kind, backend="openvino", kind=kind, flags=flags)
    convert(source, variant, folder, component=nets.BLOCKS, probes=(), native=None)
    return folder / MODEL


@pytest.fixture(scope="module")
def model(source, tmp_path_factory):
    return converted(source, tmp_path_factory.mktemp("openvino"))


@pytest.fixture(scope="module")
def expected(source, feeds):
    """Every value of the exported graph, as ONNX Runtime computes it unoptimised."""
    return nets.whole_graph(source, feeds)


def largest_error(one, two):
    return np.abs(one - two).max() / np.abs(two).max()


def test_variants_are_as_near_as_their_weights(source, feeds, expected, tmp_path):
    sizes = []
    for kind in RUNTIME.variants:
        (folder := tmp_path / kind).mkdir()
        path = converted(source, folder, kind)
        sizes.append((folder / WEIGHTS).stat().st_size)

        assert {file.name for file in folder.iterdir()} == {MODEL, WEIGHTS}
        with open_session(path, DEVICE, OUTPUTS) as session:
            made = session.run(feeds)
        assert list(made) == OUTPUTS
        for name, value in made.items():
            assert value.dtype == np.float32
            assert largest_error(value, expected[name]) < ALLOWED[kind]

    assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize("at_once", [1, 2**28])
def test_layers_are_those_of_the_graph(model, feeds, expected, at_once, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE_BYTES", at_once)
    sizes = {name: value.nbytes for name, value in expected.items()}
    seen = nets.Seen()

    with open_session(model, DEVICE, OUTPUTS) as session:
        bare = session.run(feeds)
        made = session.watch(feeds, sizes, seen.keep)

    real = [name for name in seen if expected[name].dtype == np.float32]
    assert len(real) > len(expected) / 2
    for name in real:
        assert seen[name].shape == expected[name].shape
        np.testing.assert_allclose(seen[name], expected[name], rtol=1e-3, atol=1e-5)
    for name in OUTPUTS:
        np.testing.assert_allclose(made[name], bare[name], rtol=1e-4, atol=1e-5)


def test_an_operator_alone_reads_the_values_that_are_given(model, feeds, expected):
    seen = nets.Seen()
    given = {
        name: value for name, value in expected.items() if value.dtype == np.float32
    }

    with open_session(model, DEVICE, OUTPUTS) as session:
        session.isolate(feeds, given, seen.keep)

    assert len(seen) > len(given) / 2
    for name, value in seen.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-5)


def test_a_wrong_given_value_reaches_its_readers_alone(source, model, feeds, expected):
    readers = {
        node.input[0]: node.output[0]
        for node in onnx.load(source).graph.node
        if node.op_type in {"Relu", "Sigmoid", "Tanh", "Erf", "Softmax"}
    }
    value, reader = next(pair for pair in readers.items() if pair[0] in expected)
    given = {
        name: np.zeros_like(one) if name == value else one
        for name, one in expected.items()
        if one.dtype == np.float32
    }
    seen = nets.Seen()

    with open_session(model, DEVICE, OUTPUTS) as session:
        session.isolate(feeds, given, seen.keep)

    wrong = {
        name
        for name, one in seen.items()
        if not np.allclose(one, expected[name], rtol=1e-2, atol=1e-4)
    }
    assert reader in wrong
    assert value not in wrong


def test_what_really_ran_is_said(model):
    with open_session(model, DEVICE, OUTPUTS) as session:
        ran = session.ran
    assert (ran.backend, ran.device, ran.precision) == ("openvino", "cpu", "f32")


@pytest.mark.parametrize("size", [0, 100])
def test_a_truncated_file_is_refused(model, tmp_path, size):
    path = tmp_path / MODEL
    path.write_bytes(model.read_bytes()[:size])
    with pytest.raises(StageError, match="truncated") as caught:
        open_session(path, DEVICE, OUTPUTS)
    assert caught.value.outcome is Outcome.LOAD


@pytest.mark.parametrize(
    ("device", "outputs", "outcome", "words"),
    [
        ("cpu", [*OUTPUTS, "absent"], Outcome.MISSING, "absent"),
        ("npu", OUTPUTS, Outcome.FELL_BACK, "asked for npu"),
    ],
)
def test_an_output_or_device_absent_is_named(model, device, outputs, outcome, words):
    with pytest.raises(StageError, match=words) as caught:
        open_session(model, Device(device=device, precision="f32"), outputs)
    assert caught.value.outcome is outcome


def test_inputs_are_exactly_the_files(model):
    with (
        open_session(model, DEVICE, OUTPUTS) as session,
        pytest.raises(StageError, match="missing"),
    ):
        session.run({})


@pytest.mark.parametrize(
    ("data", "flags", "words"),
    [(b"no model", (), "refuses the graph"), (None, ("--fp16",), "take no flags")],
)
def test_what_cannot_be_converted_leaves_no_file(source, tmp_path, data, flags, words):
    (given := tmp_path / EXPORTED).write_bytes(data or source.read_bytes())
    (folder := tmp_path / "made").mkdir()
    with pytest.raises(StageError, match=words) as caught:
        converted(given, folder, "fp16", flags)
    assert caught.value.outcome is Outcome.CONVERT
    assert list(folder.iterdir()) == []
