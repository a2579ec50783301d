"""Graphs whose branches or shapes depend on values: MNN runs them as modules."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from harness.core.case import Device, TensorSpec
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.received import DamagedError
from harness.core.runtime import runtime
from harness.plugins.elsewhere.form import bundle_of
from harness.runtimes.mnn import RUNTIME
from tests.unit import nets

WEIGHTS = ", ".join(f"{value:.3f}" for value in np.linspace(-0.6, 0.7, 16))

GRAPHS = {
    "a branch on an input": """(float[b, 4] x, int64[1] k) => (float[b, 4] y)
    <float[4, 4] w = {W}, int64[1] axis = {{0}}, int64 two = {{2}}>
    {{ p = MatMul (x, w)
       s = Squeeze (k, axis)
       c = Greater (s, two)
       q = If (c) <then_branch = t () => (float[b, 4] to) {{ to = MatMul (p, w) }},
                   else_branch = e () => (float[b, 4] eo) {{ eo = Neg (p) }}>
       y = Tanh (q) }}""",
    "a loop of an input's turns": """(float[b, 4] x, int64[1] k) => (float[b, 4] y)
    <float[4, 4] w = {W}, int64[1] axis = {{0}}>
    {{ s = Squeeze (k, axis)
       p = Sigmoid (x)
       q = Loop (s, , p) <body = b (int64 at, bool go, float[b, 4] h)
           => (bool gone, float[b, 4] made)
           {{ gone = Identity (go)
              m = MatMul (h, w)
              made = Tanh (m) }}>
       y = MatMul (q, w) }}""",
    "a size that an input says": """(float[b, 4] x, int64[1] k) => (float[b, n] y)
    <float[4, 4] w = {W}, int64[1] zero = {{0}}, int64[1] axis = {{1}}>
    {{ p = MatMul (x, w)
       q = Slice (p, zero, k, axis)
       y = Tanh (q) }}""",
    "a size that values say": """(float[b, 4] x) => (float[n] y)
    <float[4, 4] w = {W}, float zero = {{-0.4}}>
    {{ p = MatMul (x, w)
       m = Greater (p, zero)
       i = NonZero (m)
       j = Transpose <perm = [1, 0]> (i)
       q = GatherND (p, j)
       y = Tanh (q) }}""",
    "a branch on a bool input": """(float[b, 4] x, bool k) => (float[b, 4] y)
    <float[4, 4] w = {W}>
    {{ p = MatMul (x, w)
       q = If (k) <then_branch = t () => (float[b, 4] to) {{ to = MatMul (p, w) }},
                   else_branch = e () => (float[b, 4] eo) {{ eo = Neg (p) }}>
       y = Tanh (q) }}""",
}
BRANCH = "a branch on an input"


def model_of(name):
    text = GRAPHS[name].format(W="{" + WEIGHTS + "}")
    head = '<ir_version: 9, opset_import: ["" : 17]> graph '
    return onnx.parser.parse_model(head + text)


def part_of(name):
    """The graph as a component, whose converted file is checked to load."""
    k = TensorSpec(name="k", shape=(1,) if "bool" not in name else (), dtype="int64")
    part = nets.component("graph", {"x": ("b", 4)}, ("y",))
    has_k = len(model_of(name).graph.input) > 1
    return replace(part, inputs=(*part.inputs, k) if has_k else part.inputs)


def feeds_of(model, seed):
    x = np.random.default_rng(seed).standard_normal((2, 4)).astype(np.float32)
    if len(model.graph.input) == 1:
        return {"x": x}
    is_bool = model.graph.input[1].type.tensor_type.elem_type == onnx.TensorProto.BOOL
    return {"x": x, "k": np.array(seed > 2) if is_bool else np.array([seed])}


def in_onnxruntime(model, feeds, name="y"):
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    if name != "y":
        whole.graph.output.append(onnx.ValueInfoProto(name=name))
    return onnxruntime.InferenceSession(whole.SerializeToString()).run([name], feeds)[0]


def in_mnn(path, every, device, sizes):
    from harness.runtimes.mnn import session as mnn

    seen = nets.Seen()
    with mnn.open_session(path, device, ["y"]) as session:
        made = [session.run(feeds)["y"] for feeds in every]
        watched = session.watch(every[-1], sizes, seen.keep)["y"]
        return made, watched, seen, session.ran


@pytest.fixture(scope="module")
def files(tmp_path_factory, job):
    """Each graph as MNN's converter leaves it."""
    made = {}
    for number, name in enumerate(GRAPHS):
        folder = tmp_path_factory.mktemp(f"graph-{number}")
        onnx.save(model_of(name), folder / "model.onnx")
        made[name] = job(nets.to_mnn, folder / "model.onnx", folder, part_of(name))
    return made


@pytest.mark.parametrize("name", GRAPHS)
def test_a_module_runs_what_a_session_cannot_and_is_onnx_runtimes(files, job, name):
    model = model_of(name)
    every = [feeds_of(model, seed) for seed in (3, 1, 4, 3)]
    made, _, _, ran = job(in_mnn, files[name], every, Device(threads=1), {})
    for feeds, one in zip(every, made, strict=True):
        np.testing.assert_allclose(one, in_onnxruntime(model, feeds), atol=2e-6)
    assert dict(ran.detail)["api"] == "module"


@pytest.mark.parametrize("name", GRAPHS)
def test_values_of_a_module_are_those_of_their_names(files, job, name):
    model = model_of(name)
    feeds = feeds_of(model, 3)
    sizes = {value: 32 for node in model.graph.node for value in node.output}

    made, watched, seen, _ = job(in_mnn, files[name], [feeds], Device(), sizes)

    assert np.array_equal(made[0], watched)
    assert {"q", "y"} <= set(seen)
    for value, actual in seen.items():
        own = in_onnxruntime(model, feeds, value.removesuffix("__matmul_converted"))
        np.testing.assert_allclose(actual.reshape(own.shape), own, atol=2e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_an_app_with_a_session_cannot_run_it_and_the_way_out_is_named(files, job, name):
    feeds = feeds_of(model_of(name), 3)
    with pytest.raises(StageError, match='`api = "module"` under') as caught:
        job(in_mnn, files[name], [feeds], Device(api="session"), {})
    assert caught.value.outcome in {Outcome.RUN, Outcome.LOAD}


def bits(path, feeds, api, sizes):
    from harness.runtimes.mnn import session as mnn

    seen = nets.Seen()
    device = Device(threads=1, api=api)
    with mnn.open_session(path, device, ["map", "pooled"]) as session:
        made = session.run(feeds)
        session.watch(feeds, sizes, seen.keep)
        return made, seen, dict(session.ran.detail)


def test_a_module_gives_a_sessions_bits_and_its_layers(job, mnn_file, blocks_files):
    graph = onnx.load(blocks_files["dynamo"] / "model.onnx").graph
    sizes = {value: 4096 for node in graph.node for value in node.output}
    feeds = nets.feeds(nets.BLOCKS)

    one, layers, told = job(bits, mnn_file, feeds, "session", sizes)
    two, asked, also = job(bits, mnn_file, feeds, "module", sizes)

    assert (told["api"], also["api"]) == ("session", "module")
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert set(layers) <= set(asked)
    assert all(np.array_equal(layers[name], asked[name]) for name in layers)


def test_a_name_that_the_graph_lacks_takes_no_other_value_away(job, files):
    model = model_of(BRANCH)
    sizes = {"to": 32, "q": 32, "eo": 32}  # two of them are inside the branches
    _, _, seen, _ = job(in_mnn, files[BRANCH], [feeds_of(model, 3)], Device(), sizes)
    assert set(seen) == {"q"}


@pytest.mark.parametrize("api", ["", "session", "module"])
def test_a_float_for_an_input_of_integers_is_refused(job, files, api):
    feeds = {**feeds_of(model_of(BRANCH), 3), "k": np.array([3.0], np.float32)}
    with pytest.raises(StageError, match="input 'k' has integers") as caught:
        job(in_mnn, files[BRANCH], [feeds], Device(api=api), {})
    assert caught.value.outcome is Outcome.DTYPE


@pytest.mark.parametrize("api", ["", "module"])
def test_too_few_inputs_are_refused(job, files, api):
    feeds = feeds_of(model_of(BRANCH), 3)
    del feeds["k"]
    with pytest.raises(StageError, match="missing \\['k'\\]"):
        job(in_mnn, files[BRANCH], [feeds], Device(api=api), {})


def test_a_size_that_neither_api_takes_is_said_with_the_sessions_words(job, files):
    feeds = {"x": np.ones((2, 5), np.float32), "k": np.array([3])}
    with pytest.raises(StageError, match="its shapes could not be computed") as caught:
        job(in_mnn, files[BRANCH], [feeds], Device(), {})
    assert caught.value.outcome is Outcome.RUN


def bundle(api):
    config = {"backend": "CPU", "precision": "high", "numThread": 1}
    said = {"model": "bundle:model-0/model.mnn", "config": config, "hints": [], **api}
    call = {"do": "open", "said": said, "kind": "", "sample": "", "feeds": {}}
    whole = {"format": 1, "case": "a", "layers": "outputs", "outputs": ["y"]}
    return {**whole, "samples": {}, "files": {}, "entries": [], "calls": [call]}


def test_a_bundle_may_say_which_api_opens_a_file():
    found = bundle_of(bundle({"api": "module"}), runtime("mnn"))
    assert found.calls[0].said.api == "module"


def test_a_bundle_says_no_other_api():
    with pytest.raises(DamagedError, match="Invalid enum value"):
        bundle_of(bundle({"api": "interpreter"}), runtime("mnn"))


ROWS_OF_A_MASK = """
    <ir_version: 9, opset_import: ["" : 17]>
    g (float[b, 8] x) => (float[n, 1] y) {
        z = NonZero(x) t = Transpose<perm=[1,0]>(z) v = GatherND(x, t)
        s = Constant<value = int64[2] {-1, 1}>() y = Reshape(v, s)
    }
"""


def test_the_script_of_a_report_runs_what_a_session_cannot_by_the_other_api(tmp_path):
    onnx.save(onnx.parser.parse_model(ROWS_OF_A_MASK), tmp_path / "model.onnx")
    arguments = ["-f", "ONNX", "--modelFile", "model.onnx", "--MNNModel", "model.mnn"]
    program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
    command = [sys.executable, "-c", program, *arguments, "--bizCode", "x"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    x = np.array([[0, 1, 0, 2, 0, 3, 0, 4]], np.float32)
    np.savez(tmp_path / "inputs.npz", x)
    np.save(tmp_path / "expected.npy", x[x != 0].reshape(-1, 1))
    told = {"device": "cpu", "precision": "high", "threads": 1, "hints": []}
    told |= {"inputs": ["x"], "output": "y", "api": "module"}
    (tmp_path / "repro.json").write_text(json.dumps(told))
    script = (RUNTIME.home / "repro_module.txt").read_text()
    (tmp_path / "repro.py").write_text(f"{script}\nassert (actual == expected).all()")

    subprocess.run([sys.executable, "repro.py"], cwd=tmp_path, check=True)
