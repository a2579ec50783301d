"""Decoders with padding: what is read is judged, and what is masked out is told."""

import onnx
import pytest
from onnx import helper, numpy_helper

from harness.engine import export_files
from tests.faults.stand import Stand
from tests.unit.encoders import write_encoder

pytestmark = pytest.mark.slow

SUITE = """
components = ["{name}"]
[source]
checkpoint = "."
seed = 0
[export]
exporter = "{exporter}"
opset = {opset}
attention = "eager"
[[shapes]]
batch = 3
{sizes}
[inputs]
profiles = ["realistic", "large-mean", "boundary"]
realistic = 1
more_sizes = false
[backend.onnxruntime]
[backend.mnn]
"""
TOLERANCES = """
[onnxruntime.fp32]
outputs = "standard"
layers = "standard"
[mnn.fp32]
outputs = "standard"
layers = "standard"
"""
KINDS = {
    "llama": {"num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 80},
    # Where activations are larger, MNN's GELU in its tanh form shows.
    "gemma": {"head_dim": 8, "num_key_value_heads": 2, "initializer_range": 0.02},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 16},
    "qwen2": {"num_key_value_heads": 2},
}
STEP = "text-generation-with-past"
BACKENDS = ("onnxruntime", "mnn")


def stand_of(folder, store, kind, *, exporter="dynamo", opset=18, name="default"):
    """A stand for the suite of one decoder."""
    sizes = "past = 11" if name == STEP else "tokens = 12"
    about = {"exporter": exporter, "opset": opset, "name": name, "sizes": sizes}
    write_encoder(folder, kind, pad_token_id=0, **KINDS[kind])
    (folder / "parity.toml").write_text(SUITE.format(**about))
    (folder / "tolerances.toml").write_text(TOLERANCES)
    return Stand(store, suite=folder / "parity.toml")


@pytest.fixture(scope="module")
def llama(shared_store, tmp_path_factory):
    with stand_of(tmp_path_factory.mktemp("llama"), shared_store, "llama") as stand:
        yield stand


def planted(stand, backend, change, name, component="default"):
    """Run the decoder with a changed graph."""
    case = stand.case(component, backend)
    graph, _ = stand.exported(case)
    model = onnx.load(graph.file(export_files.MODEL))
    change(model.graph)

    def build(folder):
        onnx.save(model, folder / export_files.MODEL)
        probes = graph.file(export_files.PROBES)
        (folder / export_files.PROBES).write_bytes(probes.read_bytes())
        return {}

    entry = stand.store.make("onnx", {"fault": name, "of": graph.key_digest}, build)
    return stand.run(case, lambda: stand.deployed(case, entry), altered=entry)


def lowest(graph):
    """Constants of a mask: the lowest float32."""
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = numpy_helper.to_array(tensor)
            if value.size == 1 and value.item() < -1e30:
                yield tensor


def with_mask_of(number):
    """A change of the number that stands for "not read"."""

    def change(graph):
        found = list(lowest(graph))
        assert found
        for tensor in found:
            other = numpy_helper.to_array(tensor) * 0 + number
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))

    return change


def with_another_angle(graph):
    """Turn every pair by another cosine than PyTorch's."""
    (cosine,) = (node for node in graph.node if node.op_type == "Cos")
    step = helper.make_tensor("step", onnx.TensorProto.FLOAT, [], [1.0])
    graph.initializer.append(step)
    later = helper.make_node("Add", [cosine.input[0], step.name], ["later"])
    graph.node.insert(list(graph.node).index(cosine), later)
    cosine.input[0] = "later"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_healthy_decoder_agrees_and_its_padding_is_told(llama, backend):
    trial = llama.run(llama.case("default", backend))
    _, outputs = trial.verdicts

    assert not trial.caught, trial.said
    assert "last_hidden_state differs at padding alone" in outputs.reason


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_that_is_ignored_is_caught(llama, backend):
    trial = planted(llama, backend, with_mask_of(0.0), "mask-ignored")

    assert not trial.verdicts[1].outcome.passed


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_angle_of_positions_is_caught(llama, backend):
    trial = planted(llama, backend, with_another_angle, "another-angle")

    assert not trial.verdicts[1].outcome.passed


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_at_padding_alone_is_told_and_is_no_failure(llama, backend):
    trial = planted(llama, backend, with_mask_of(-1e5), "mask-weaker")
    layers, outputs = trial.verdicts

    assert not trial.caught, trial.said
    assert "padding alone" in layers.reason
    assert "padding alone" in outputs.reason


@pytest.mark.parametrize(
    ("kind", "exporter", "opset"),
    [
        *((kind, "dynamo", 18) for kind in KINDS if kind != "llama"),
        *((kind, "torchscript", 17) for kind in ("llama", "gemma", "opt")),
    ],
)
def test_every_kind_of_decoder_agrees(shared_store, tmp_path, kind, exporter, opset):
    with stand_of(
        tmp_path, shared_store, kind, exporter=exporter, opset=opset
    ) as stand:
        for backend in BACKENDS:
            trial = stand.run(stand.case("default", backend))

            assert not trial.caught, f"{backend}: {trial.said}"


@pytest.fixture(scope="module")
def step(shared_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("step")
    with stand_of(folder, shared_store, "llama", name=STEP) as stand:
        yield stand


def producer(graph, name):
    return next(node for node in graph.node if name in node.output)


def with_the_new_token_first(graph):
    """Put the new key in front of the cache, in the output and where it is read."""
    node = producer(graph, "present.0.key")
    assert node.op_type == "Concat"
    first, second = node.input
    node.input[:] = [second, first]


def with_values_for_keys(graph):
    """Read the cached values of a layer where its cached keys belong."""
    names = {"past_key_values.1.key", "past_key_values.1.value"}
    (key, value) = sorted(names)
    for node in graph.node:
        node.input[:] = [
            {key: value, value: key}.get(given, given) for given in node.input
        ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_healthy_step_with_a_cache_agrees(step, backend):
    trial = step.run(step.case(STEP, backend))

    assert not trial.caught, trial.said


@pytest.mark.parametrize("change", [with_the_new_token_first, with_values_for_keys])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fault_in_the_cache_is_caught(step, backend, change):
    trial = planted(step, backend, change, change.__name__, STEP)

    assert not trial.verdicts[1].outcome.passed
