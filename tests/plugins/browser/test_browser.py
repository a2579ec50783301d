"""ONNX Runtime's files in a real browser: what runs, and what is said of the rest."""

import os
import re
import shutil
import stat
import sys
from contextlib import closing
from copy import deepcopy
from http.client import HTTPConnection

import numpy as np
import onnx
import psutil
import pytest
from filelock import FileLock
from onnx import TensorProto, helper, numpy_helper

from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.browser import chromium, driving, serve
from harness.plugins.browser.chromium import browser_at
from harness.plugins.browser.package import package_of
from harness.plugins.browser.server import PageServer
from harness.plugins.browser.targets import KIND, TESTED
from harness.plugins.elsewhere import agent_calls
from harness.runtimes.session import open_session
from tests.plugin.project import Project, begun
from tests.plugin.test_screens import screens, unseen
from tests.unit import nets

FLOAT, HALF, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 64), dtype=np.float32)
WEIGHTS = RNG.standard_normal((64, 32), dtype=np.float32)
NIBBLES = RNG.integers(0, 255, (32, 2, 16)).astype(np.uint8)
SCALES = RNG.random(64).astype(np.float32)
MICROSOFT = "com.microsoft"


def node(kind, reads, makes, name, **words):
    return helper.make_node(kind, reads.split(), makes.split(), name=name, **words)


def graph(nodes, feeds, shape=(3, 32), **weights):
    """Write a model with the output ``y``; return its bytes."""
    kinds = helper.np_dtype_to_tensor_dtype
    takes = [
        helper.make_tensor_value_info(name, kinds(one.dtype), one.shape)
        for name, one in feeds.items()
    ]
    made = helper.make_graph(
        nodes,
        "graph",
        takes,
        [helper.make_tensor_value_info("y", FLOAT, shape)],
        [numpy_helper.from_array(one, name) for name, one in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9)


GATHER = graph([node("Gather", "w i", "y", "g")], {"i": np.arange(3)}, w=WEIGHTS)
IN_HALF = graph(
    [
        node("Cast", "x", "h", "narrow", to=HALF),
        node("MatMul", "h w", "m", "product"),
        node("Cast", "m", "y", "wide", to=FLOAT),
    ],
    {"x": X},
    w=WEIGHTS.astype(np.float16),
)
IN_NIBBLES = graph(
    [node("MatMulNBits", "x w s", "y", "q", domain=MICROSOFT, K=64, N=32, bits=4,
          block_size=32)],
    {"x": X},
    w=NIBBLES,
    s=SCALES,
)  # fmt: skip
IN_DOUBLE = graph(
    [
        # The letters OOM in a name say nothing of memory.
        node("Cast", "x", "d", "classroom", to=DOUBLE),
        node("Sin", "d", "s", "sine"),
        node("Cast", "s", "y", "narrowed", to=FLOAT),
    ],
    {"x": X},
    (3, 64),
)
DETERMINANT = graph(
    [node("Det", "x", "d", "det"), node("Neg", "d", "y", "minus")],
    {"x": np.eye(4, dtype=np.float32)[None]},
    (1,),
)
UNKNOWN = graph([node("NoSuch", "x", "y", "no", domain=MICROSOFT)], {"x": X}, (3, 64))
LARGE = graph(
    [
        node("ConstantOfShape", "n", "b", "large"),
        node("ReduceSum", "b", "s", "sum", keepdims=0),
        node("Add", "x s", "y", "add"),
    ],
    {"x": X, "n": np.array([1_500_000_000])},
    (3, 64),
)


@pytest.fixture
def target(package):
    """Return a target in a browser; its settings can be others."""

    def make(device, **settings):
        named = {"package": str(package.dist.parent), **settings}
        own = tuple(sorted(named.items()))
        return Target(name=f"b-{device}", kind=KIND, table="b", settings=own)

    return make


@pytest.fixture
def opened(tmp_path, target):
    """Return a function that opens a model in a browser."""

    def make(model, device, **settings):
        path = tmp_path / "model.onnx"
        if isinstance(model, onnx.ModelProto):
            onnx.save(model, path)
        there = Device(device=device, target=target(device, **settings))
        return open_session("onnxruntime", path, there, ["y"])

    return make


def script(folder, text):
    """Write a program that stands for a browser."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("device", ["wasm", "webgpu"])
@pytest.mark.parametrize("model", [GATHER, IN_NIBBLES], ids=["int64", "int4"])
def test_a_file_computes_what_onnx_runtime_computes(opened, device, model):
    feeds = {"i": np.array([1, 5, 63])} if model is GATHER else {"x": X}
    expected = nets.by_onnxruntime(model.SerializeToString(), feeds)["y"]
    with opened(model, device) as session:
        np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-4)
        detail = dict(session.ran.detail)
    assert detail["package"] == f"onnxruntime-web {TESTED}"
    assert ("in software" in detail.get("adapter", "")) == (device == "webgpu")


def test_weights_in_a_file_of_their_own_are_read(tmp_path, opened):
    # Saving with weights outside changes the model that is given.
    outside = deepcopy(IN_HALF)
    onnx.save_model(
        outside,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.pb",
        size_threshold=0,
    )
    expected = X @ WEIGHTS.astype(np.float16).astype(np.float32)
    with opened(tmp_path, "wasm") as session:
        made = session.run({"x": X})["y"]
    assert np.abs(made - expected).max() < 0.1


REFUSED = {
    "an operator that it does not know": (
        (UNKNOWN, "wasm"),
        (Outcome.LOAD, "it knows no operator com.microsoft:NoSuch"),
    ),
    "an operator that no provider takes": (
        (IN_DOUBLE, "webgpu"),
        (Outcome.LOAD, "WebGpuExecutionProvider has no kernel for Cast"),
    ),
    "an operator that falls back": (
        (DETERMINANT, "webgpu"),
        (Outcome.FELL_BACK, "runs 1 of 3 nodes (1 Det)"),
    ),
    "float16 without shader-f16": (
        (IN_HALF, "webgpu"),
        (Outcome.RUN, "without shader-f16, which Cast (narrow) needs"),
    ),
    "more memory than there is": (
        (LARGE, "wasm"),
        (Outcome.MEMORY, "WebAssembly has at most 4 GiB"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_browser_cannot_run_is_said_by_the_operators_name(opened, what):
    (model, device), (outcome, words) = REFUSED[what]
    feeds = {"x": X}
    if model is LARGE:
        feeds["n"] = np.array([1_500_000_000])
    with pytest.raises(StageError) as caught, opened(model, device) as session:
        session.run(feeds)
    assert (caught.value.outcome, words in str(caught.value)) == (outcome, True), (
        caught.value
    )


PROGRAMS = {
    "no program": ("", Outcome.UNAVAILABLE, "which is no program here"),
    "one that ends": (
        "echo nothing to see; exit 3",
        Outcome.UNAVAILABLE,
        "ended with exit code 3 before it showed a page",
    ),
    "one that hangs": ("sleep 60", Outcome.TIMED_OUT, "has shown no page for 1 s"),
    "one that crashes": (
        '(sleep 3; kill -9 $$) & exec {browser} "$@"',
        Outcome.CRASHED,
        "lost its page",
    ),
    "one without an adapter": (
        'exec {browser} "$@" --disable-software-rasterizer --disable-gpu',
        Outcome.FELL_BACK,
        "has no WebGPU adapter; install the driver",
    ),
}  # fmt: skip


def run_on(opening):
    """Run a session until its browser ends."""
    with opening as session:
        while True:
            session.run({"i": np.arange(3)})


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_browser_that_fails_is_said(tmp_path, opened, monkeypatch, what):
    text, outcome, words = PROGRAMS[what]
    at = str(tmp_path / "none")
    if text:
        at = script(tmp_path, text.format(browser=browser_at("")))
    if "hangs" in what:
        monkeypatch.setattr(driving, "STALL_S", 1.0)
        monkeypatch.setattr(
            agent_calls.AgentCalls._asked, "__kwdefaults__", {"limit_s": 1.0}
        )
    with pytest.raises(StageError) as caught:
        run_on(opened(GATHER, "webgpu", browser=at))
    assert (caught.value.outcome, words in str(caught.value)) == (outcome, True), (
        caught.value
    )


def test_no_browser_on_path_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StageError, match="No browser is on PATH"):
        browser_at("")


PACKAGES = {
    "no npm": (lambda _: package_of("", "1.0.0"), "npm is not on PATH"),
    "no version": (lambda _: package_of("", "../x"), "is no version of"),
    "a range": (lambda _: package_of("", "1.30"), "write a whole one"),
    "no folder": (lambda f: package_of(str(f), ""), "is no folder of"),
}


@pytest.mark.parametrize("what", PACKAGES)
def test_a_package_that_cannot_be_had_is_said(monkeypatch, tmp_path, what):
    call, words = PACKAGES[what]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PARITY_STORE", str(tmp_path))
    with pytest.raises(StageError, match=words):
        call(tmp_path)


def test_what_npm_says_is_in_the_sentence(package, monkeypatch, tmp_path):  # noqa: ARG001  # npm
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setenv("NPM_CONFIG_FETCH_RETRIES", "0")
    monkeypatch.setenv("PARITY_STORE", str(tmp_path))
    with pytest.raises(StageError, match="installed by npm: npm error"):
        package_of("", TESTED)


def test_a_server_answers_its_own_page_alone(tmp_path):
    (tmp_path / "weights.pb").write_bytes(b"secret")
    server = PageServer({"ort": tmp_path}, {"weights.pb": tmp_path / "weights.pb"})
    with closing(server):
        _, _, host, secret, *_ = server.url.split("/")
        name, _, port = host.partition(":")

        def asked(path, host=host):
            line = HTTPConnection(name, int(port))
            with closing(line):
                line.request("GET", path, headers={"Host": host})
                answer = line.getresponse()
                return answer.status, answer.read()

        own = f"/{secret}/model/weights.pb"
        assert asked(own) == (200, b"secret")
        assert asked(own, "evil.example")[0] == 404
        assert asked("/other/model/weights.pb")[0] == 404
        assert asked(f"/{secret}/ort/..%2f..%2fetc%2fpasswd")[0] == 404


def test_a_bundle_answers_pages_of_this_machine_alone(tmp_path):
    shutil.copy(serve.__file__, tmp_path)
    command = [sys.executable, "serve.py", "--port", "0"]
    with begun(command, tmp_path) as server, server.stdout:
        port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
        answers = {}
        for host in (f"localhost:{port}", "127.0.0.1", "[::1]:80", "evil.example", ""):
            with closing(HTTPConnection("127.0.0.1", port)) as line:
                line.request("GET", "/serve.py", headers={"Host": host})
                answers[host] = line.getresponse().status
    assert [*answers.values()] == [200, 200, 200, 421, 421]


def test_nothing_is_left_when_a_session_has_ended(opened, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old = [tmp_path / f"parity-browser-{name}" for name in ("killed", "running")]
    for folder in old:
        folder.mkdir()
    with FileLock(old[1] / chromium._LOCK):
        for folder in old:
            os.utime(folder, (0, 0))
        with opened(GATHER, "wasm") as session:
            session.run({"i": np.arange(3)})
            assert len(list(tmp_path.glob("parity-browser-*"))) == 2
    assert list(tmp_path.glob("parity-browser-*")) == old[1:]


def test_no_other_user_sees_the_address_of_a_page(opened):
    with opened(GATHER, "wasm"):
        commands = [
            " ".join(child.cmdline())
            for child in psutil.Process().children(recursive=True)
        ]
    assert any("parity-browser-" in command for command in commands)
    assert not any("127.0.0.1:" in command for command in commands)


ALONE = """
import time
from harness.plugins.browser.chromium import Chromium, browser_at
begun = Chromium(browser_at(""), "about:blank", software=False)
time.sleep(1)
print(begun._popen.pid, flush=True)
time.sleep(600)
"""


def test_a_browser_ends_with_a_harness_that_was_killed(tmp_path):
    command = [sys.executable, "-c", ALONE]
    with begun(command, tmp_path) as harness, harness.stdout:
        browser = psutil.Process(int(harness.stdout.readline()))
    gone, _ = psutil.wait_procs([browser], timeout=20)
    assert gone


def test_a_small_network_agrees_in_both_at_every_layer(project, store):
    ended = project.parity("run", "--store", str(store))
    ended.check(0, "✓ net/onnxruntime/fp32@browser-wasm")
    ended.check(0, "✓ net/onnxruntime/fp32@browser-webgpu", "3 of 3 cases agree")


def test_a_target_is_made_as_the_page_shows(package, tmp_path):  # noqa: ARG001  # npm
    (shown,) = screens("docs/browser.md")["target make browser"]
    ended = Project(tmp_path).parity("target", "make", "browser")
    ended.check(0)
    _, table = shown.split("next", 1)
    assert unseen(table, ended.text) == []
