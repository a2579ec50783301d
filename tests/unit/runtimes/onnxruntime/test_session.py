"""`harness.runtimes.onnxruntime.session`: outputs as deployed, layers as exported."""

from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL
from harness.runtimes.graph.onnx_graph import exact_nodes
from harness.runtimes.onnxruntime import session as backend
from harness.runtimes.onnxruntime.providers import Placement
from harness.runtimes.onnxruntime.segments import plan_segments, segment_model
from harness.runtimes.onnxruntime.session import open_session
from tests.unit import nets

DEVICE = Device(threads=1)
OUTPUTS = ["map", "pooled"]


@pytest.fixture(scope="module", params=["dynamo", "external"])
def model(request, blocks_files, tmp_path_factory):
    if request.param != "external":
        return blocks_files[request.param] / MODEL
    folder = tmp_path_factory.mktemp("external")
    nets.export(nets.Blocks(), nets.BLOCKS, folder, external_data=True)
    return folder / MODEL


@pytest.fixture
def values(model, feeds):
    """Every value of the graph, by one session."""
    return nets.whole_graph(model, feeds)


@pytest.fixture
def limit(request, monkeypatch):
    """Let segments hold at most so many bytes."""
    planned = partial(plan_segments, limit_bytes=request.param)
    monkeypatch.setattr(backend, "plan_segments", planned)


def equal(one, two):
    return all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("limit", [1, 4000, 2**40], indirect=True)
def test_segments_give_the_bits_of_the_whole_graph(model, feeds, values):
    sizes = {name: value.nbytes for name, value in values.items()}
    seen = nets.Seen()
    with open_session(model, DEVICE, OUTPUTS) as session:
        made = session.watch(feeds, sizes, seen.keep)
    assert set(seen) == set(values)
    assert equal(seen, values)
    assert list(made) == OUTPUTS
    assert equal(made, {name: values[name] for name in OUTPUTS})


def test_small_segments_have_their_weights_a_large_one_all(model, feeds, values):
    proto = onnx.load(model, load_external_data=False)
    sizes = {name: value.nbytes for name, value in values.items()}
    many = plan_segments(proto.graph, sizes, OUTPUTS, 4000)
    (one,) = plan_segments(proto.graph, sizes, OUTPUTS, 2**40)

    assert len(many) > 4
    assert [n.name for s in many for n in s.nodes] == [n.name for n in proto.graph.node]
    assert sorted(n for s in many for n in s.shows) == sorted(one.shows)
    for segment in many:
        held = [sizes[n] for node in segment.nodes for n in node.output if n in sizes]
        assert sum(held) <= 4000 or len([size for size in held if size]) == 1
    weights = [
        {t.name for t in segment_model(proto, s, values | feeds).graph.initializer}
        for s in many
    ]
    assert max(map(len, weights)) < len(proto.graph.initializer)
    assert set().union(*weights) == {t.name for t in proto.graph.initializer}


def test_a_graph_with_subgraphs_is_left_whole():
    graph = onnx.parser.parse_graph("""
        g (float[2] rows, bool truth) => (float[2] out) {
            hidden = Abs (rows)
            out = If (truth) <
                then_branch = one () => (float[2] a) { a = Neg (hidden) },
                else_branch = two () => (float[2] b) { b = Neg (hidden) }
            >
        }
    """)

    (segment,) = plan_segments(graph, {"hidden": 8, "out": 8}, ["out"], 1)

    assert segment.reads == ("rows", "truth")


def test_a_session_repeats_itself_after_watching_and_after_other_sizes(model, feeds):
    larger = nets.feeds(nets.BLOCKS, batch=3, height=9)
    with open_session(model, DEVICE, OUTPUTS) as session:
        first = session.run(feeds)
        watched = session.watch(feeds, {}, lambda *_: None)
        assert equal(session.run(feeds), first)
        session.run(larger)
        session.watch(larger, {}, lambda *_: None)
        assert equal(session.run(feeds), first)

    for name in OUTPUTS:
        np.testing.assert_allclose(watched[name], first[name], rtol=1e-4, atol=1e-5)


def test_what_ran_is_said(model):
    with open_session(model, Device(threads=1, tf32=True), OUTPUTS) as session:
        ran = session.ran
    assert (ran.backend, ran.version, ran.device) == (
        "onnxruntime",
        ort.__version__,
        "cpu",
    )
    assert dict(ran.detail)["provider"] == "CPUExecutionProvider"


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda", ["asked for CUDAExecutionProvider", "runs on CPUEx", "parity doctor"]),
        ("xnnpack", ["has no XnnpackExecutionProvider. It has ", "build of your own"]),
        ("openvino", ["has no OpenVINOExecutionProvider", "onnxruntime-openvino"]),
        ("VitisAIExecutionProvider", ["no VitisAIExecutionProvider", "of your own"]),
    ],
)
def test_another_provider_than_asked_is_a_failure(model, device, words):
    with pytest.raises(StageError) as caught:
        open_session(model, Device(device=device), OUTPUTS).__enter__()
    assert caught.value.outcome is Outcome.FELL_BACK
    for word in (*words, "CPUExecutionProvider"):
        assert word in str(caught.value)


@pytest.mark.skipif(
    "CUDAExecutionProvider" not in ort.get_available_providers(),
    reason="this build of onnxruntime has no CUDA",
)
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_provider_that_does_not_start_says_why(model, device, capfd):
    with pytest.raises(StageError) as caught:
        open_session(model, Device(device=device), OUTPUTS).__enter__()
    assert caught.value.outcome is Outcome.FELL_BACK
    said = str(caught.value).partition("It says: ")[2]
    assert said
    assert "\n" not in said
    assert "[E:onnx" not in said
    assert said.partition(".so with")[0] in capfd.readouterr().err


def test_only_nodes_of_floating_point_values_count_as_fallen_back(model):
    exact = exact_nodes(onnx.load(model, load_external_data=False))
    nodes = onnx.load(model, load_external_data=False).graph.node
    ops = {node.op_type for node in nodes if node.name in exact}
    assert "Shape" in ops
    assert ops.isdisjoint({"Conv", "MatMul", "Gemm", "Sigmoid"})


def test_more_nodes_on_the_cpu_than_allowed_are_counted_and_named():
    placed = Placement(exact={"size"}, known={"size", "last", "first", "next"})
    # A layout's own Gather exchanges the numbers of a shape.
    placed.add(4, [["size", "Shape"], ["last", "Softmax"], ["Gather_1", "Gather"]])
    placed.add(4, [["first", "Resize"], ["next", "Resize"]])
    device = Device(device="openvino", cpu_nodes=0.3)
    words = placed.too_many(device, "as deployed")
    assert "runs 3 of 8 nodes (2 Resize, 1 Softmax)" in words
    assert "`cpu_nodes = 0.38`" in words
    assert not placed.too_many(Device(device="openvino", cpu_nodes=0.38), "")


REFUSED = {
    "a missing input": (
        lambda feeds: feeds.pop("kind"),
        OUTPUTS,
        (Outcome.MISSING, r"missing \['kind'\]"),
    ),
    "an unknown input": (
        lambda feeds: feeds.update(extra=feeds["kind"]),
        OUTPUTS,
        (Outcome.MISSING, r"unknown \['extra'\]"),
    ),
    "an output that is not there": (
        lambda _: None,
        ["map", "other"],
        (Outcome.MISSING, "promises"),
    ),
    "an input of another type": (
        lambda feeds: feeds.update(image=feeds["image"].astype(np.float64)),
        OUTPUTS,
        (Outcome.RUN, r"cannot run model\.onnx"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_run_is_a_sentence(model, feeds, what):
    change, outputs, (outcome, words) = REFUSED[what]
    change(feeds)
    with open_session(model, DEVICE, outputs) as session:
        with pytest.raises(StageError, match=words) as caught:
            session.run(feeds)
        assert caught.value.outcome is outcome
        if "unknown" in what or "missing" in what:
            with pytest.raises(StageError, match=words):
                session.watch(feeds, {}, print)


def isolated(path, feeds, given):
    """What each operator makes of values that are given."""
    seen = nets.Seen()
    with open_session(path, DEVICE, OUTPUTS) as session:
        session.isolate(feeds, given, seen.keep)
    return seen


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("limit", [4000, 2**40], indirect=True)
def test_given_its_own_values_each_operator_makes_them_again(model, feeds, values):
    seen = isolated(model, feeds, values)
    assert set(seen) == set(values)
    assert equal(seen, values)


def test_of_right_inputs_only_a_wrong_operator_differs(blocks_files, feeds, tmp_path):
    sound = blocks_files["dynamo"] / MODEL
    right = nets.whole_graph(sound, feeds)
    proto = onnx.load(sound)
    conv = next(node for node in proto.graph.node if node.op_type == "Conv")
    weight = next(t for t in proto.graph.initializer if t.name == conv.input[1])
    wrong = onnx.numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(onnx.numpy_helper.from_array(wrong, weight.name))
    onnx.save(proto, tmp_path / MODEL)

    cumulative = nets.whole_graph(tmp_path / MODEL, feeds)
    own = isolated(tmp_path / MODEL, feeds, right)

    inherited = [n for n in right if not np.array_equal(cumulative[n], right[n])]
    introduced = [n for n in right if not np.array_equal(own[n], right[n])]
    assert introduced == list(conv.output)
    assert len(inherited) > 20


def test_an_output_may_be_an_initialiser(tmp_path):
    """As CLIP's logit scale is in an export by dynamo."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        net (float[2] x) => (float[2] y, float[1] scale)
        <float[1] scale = {3}>
        { y = Mul (x, scale) }
    """)
    onnx.save(model, tmp_path / "model.onnx")
    feeds = {"x": np.ones(2, np.float32)}

    with open_session(tmp_path / "model.onnx", Device(), ["y", "scale"]) as session:
        run = session.run(feeds)
        watched = session.watch(feeds, {"y": 8}, lambda _name, _value: None)

    assert equal(run, watched)
    assert watched["scale"].tolist() == [3.0]
