"""A runtime that dies, hangs, loses outputs or runs elsewhere is said to have done so.

The runtimes are real. They are given files that make them do it, with the digests that
the store would have noted had the converter left them.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.digest import digest_file

MAKE = """\
import sys
from pathlib import Path

import MNN, _tools
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
LATENT = [1, 4, 4, 6]


def save(name, nodes, output, shape, weights, channels=4):
    latent = [1, channels, 4, 6]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("latent_sample", FLOAT, latent)],
        [helper.make_tensor_value_info(output, FLOAT, shape)],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    onnx.save(model, f"{name}.onnx")


def convolution(name, channels, output="sample"):
    weight = np.ones((3, channels, 3, 3), np.float32)
    node = helper.make_node("Conv", ["latent_sample", "w"], [output], pads=[1] * 4)
    save(name, [node], output, [1, 3, 4, 6], {"w": weight}, channels)


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


convolution("renamed", 4, output="other")
convolution("wide", 64)
body = helper.make_graph(
    [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Add", ["value", "one"], ["more"]),
    ],
    "body",
    [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
     info("value", FLOAT)],
    [info("go_on", TensorProto.BOOL, []), info("more", FLOAT)],
)
loop = helper.make_node("Loop", ["trips", "", "latent_sample"], ["sample"], body=body)
forever = {"trips": np.array(2**62), "one": np.float32(1)}
save("endless", [loop], "sample", None, forever)
for name in ("renamed", "wide"):
    _tools.mnnconvert(
        ["", "-f", "ONNX", "--modelFile", f"{name}.onnx", "--MNNModel", f"{name}.mnn",
         "--bizCode", "parity", "--saveExternalData=1"]
    )
Path("rubbish.mnn").write_bytes(bytes(range(256)) * 16)
Path("rubbish.onnx").write_bytes(b"not a model")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that are no decoder, in both formats."""
    folder = tmp_path_factory.mktemp("files")
    command = [sys.executable, "-c", MAKE]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def pass_off(project, file: Path) -> None:
    """Put a file in the place of the decoder's, as if it had been made there."""
    kind = file.suffix[1:]
    entry = project.entry(kind)
    record = json.loads((entry / "entry.json").read_text(encoding="utf-8"))
    shutil.copy(file, entry / f"model.{kind}")
    weights = file.with_suffix(".mnn.weight")
    if weights.exists():
        shutil.copy(weights, entry / "model.mnn.weight")
    for name, note in record["files"].items():
        note["size_bytes"] = (entry / name).stat().st_size
        note["digest"] = digest_file(entry / name)
    (entry / "entry.json").write_text(json.dumps(record), encoding="utf-8")


FILES = {
    "renamed.onnx": ("missing", ("['other']", "['sample']")),
    "renamed.mnn": ("missing", ("['other']", "['sample'] are lost")),
    "rubbish.onnx": ("load", ("model.onnx is truncated or no ONNX file",)),
    "rubbish.mnn": ("load", ("MNN", "refuses model.mnn")),
    "wide.mnn": ("run", ("MNN", "cannot run model.mnn", "shapes")),
    "wide.onnx": ("run", ("onnxruntime", "cannot run model.onnx")),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_does_not_do_what_it_should_is_refused(project, files, name):
    outcome, facts = FILES[name]
    pass_off(project, files / name)
    ended = project.run("mnn" if name.endswith("mnn") else "onnxruntime")
    assert ended.code == 2
    assert set(project.outcomes().values()) == {outcome}
    assert ended.sentence(*facts)


def test_a_runtime_that_hangs_is_ended_at_its_limit(project, files):
    pass_off(project, files / "endless.onnx")
    project.write("vae_decoder", timeout_s=3)
    ended = project.run("onnxruntime")
    assert ended.code == 2
    assert set(project.outcomes().values()) == {"timed-out"}
    assert ended.sentence("vae_decoder/onnxruntime/fp32", "3 s", "timeout_s")


CRASH = """\
import ctypes
import sys

if "parity-host:mnn" in sys.orig_argv:
    import MNN

    def interpreter(path):
        print("out of luck", flush=True)
        ctypes.string_at(0)

    MNN.Interpreter = interpreter
"""


def test_a_runtime_that_segfaults_takes_nothing_with_it(project):
    path = project.folder / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(CRASH, encoding="utf-8")
    project.import_from(path)

    ended = project.run()

    outcomes = project.outcomes()
    assert ended.code == 2
    assert outcomes["vae_decoder/mnn/fp32/outputs"] == "crashed"
    assert outcomes["vae_decoder/onnxruntime/fp32/outputs"] == "within"
    assert ended.sentence("SIGSEGV", "last words: out of luck")


ELSEWHERE = {
    "cuda": (
        '[backend.onnxruntime]\ndevice = "cuda"',
        ("CUDAExecutionProvider", "CPUExecutionProvider"),
    ),
    "xnnpack": (
        '[backend.onnxruntime]\ndevice = "xnnpack"',
        ("has no XnnpackExecutionProvider", "[target.*]"),
    ),
    "tensorrt": (
        (
            '[backend.onnxruntime]\ndevice = "tensorrt"\n'
            "provider_options = { trt_fp16_enable = true }"
        ),
        ("TensorrtExecutionProvider", "trt_fp16_enable = true", "It says: Failed"),
    ),
    "opencl": ('[backend.mnn]\ndevice = "opencl"', ("asked for opencl", "lacks")),
    "vulkan": ('[backend.mnn]\ndevice = "vulkan"', ("asked for vulkan", "lacks")),
    "mnn_cuda": ('[backend.mnn]\ndevice = "cuda"', ("asked for cuda", "lacks")),
    "low": (
        '[backend.mnn]\nprecision = "low"',
        ("low precision", "fp16:0", "parity doctor"),
    ),
    "low_on_a_target": (
        (
            '[backend.mnn]\ntargets = ["venv"]\nprecision = ["low"]\n'
            f'[target.venv]\ncommand = ["{sys.executable}"]'
        ),
        ("vae_decoder/mnn/fp32@venv-low", "low precision", "fp16:0", "parity doctor"),
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_running_elsewhere_than_asked_is_a_failure(project, name):
    backends, facts = ELSEWHERE[name]
    project.write("vae_decoder", backends=backends)
    ended = project.run()
    assert ended.code == 2
    assert set(project.outcomes().values()) == {"fell-back"}
    assert ended.sentence(*facts)


RELAY = """\
import subprocess, sys, time
agent = subprocess.Popen(
    [sys.executable, *sys.argv[2:]], stdout=subprocess.PIPE, bufsize=0
)
passed = 0
while data := agent.stdout.read(min(4096, int(sys.argv[1]) - passed)):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    passed += len(data)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_connection_that_stalls_while_a_value_comes_ends_in_time(project):
    (project.folder / "relay.py").write_text(RELAY)
    command = [sys.executable, str(project.folder / "relay.py"), "3000"]
    project.write(
        "vae_decoder",
        backends='[backend.onnxruntime]\ntargets = ["here", "far"]\n'
        f"[target.far]\ncommand = {json.dumps(command)}",
        timeout_s=15,
    )

    ended = project.run()

    outcomes = project.outcomes()
    assert ended.code == 2
    assert outcomes["vae_decoder/onnxruntime/fp32@far/outputs"] == "timed-out"
    assert outcomes["vae_decoder/onnxruntime/fp32/outputs"] == "within"
    assert ended.sentence("onnxruntime/fp32@far", "15 s")
