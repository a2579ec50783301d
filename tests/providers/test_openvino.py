"""ONNX Runtime's OpenVINO provider, which has a wheel and an environment of its own."""

import os

import numpy as np
import onnx
import pytest
from onnx import helper

from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.start.doctor.examine import Status
from harness.plugins.start.doctor.targets import check_targets
from harness.runtimes.onnxruntime.session import open_session
from tests.plugin.project import SUITE, TOLERANCES, write_project

pytestmark = pytest.mark.providers
FEEDS = {"x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 4, 4)}


@pytest.fixture
def run(tmp_path):
    """Run a graph of three operators on the provider."""

    def runner(operator="Sin", **settings):
        nodes = [
            helper.make_node("Exp", ["x"], ["a"], "first"),
            helper.make_node(operator, ["a"], ["b"], "middle"),
            helper.make_node("Exp", ["b"], ["y"], "last"),
        ]
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 4])
        graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")])
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        onnx.save(model, tmp_path / "model.onnx")
        target = Target(name="openvino", command=(os.environ["PARITY_OPENVINO"],))
        device = Device(device="openvino", target=target, threads=1, **settings)
        with open_session(tmp_path / "model.onnx", device, ["y"]) as session:
            made = session.run(FEEDS)
            seen = {}
            session.watch(FEEDS, {"a": 64, "b": 64, "y": 64}, seen.__setitem__)
        return made["y"], seen, dict(session.ran.detail)

    return runner


def test_outputs_and_layers_come_from_the_provider(run):
    made, seen, detail = run(provider_options={"device_type": "CPU"}.items())
    assert detail["provider"] == "OpenVINOExecutionProvider"
    assert detail["on the CPU provider"] == "0 of 3 nodes"
    assert detail["device_type"] == "CPU"
    np.testing.assert_allclose(made, np.exp(np.sin(np.exp(FEEDS["x"]))), rtol=1e-5)
    np.testing.assert_allclose(seen["b"], np.sin(np.exp(FEEDS["x"])), rtol=1e-5)


def test_nodes_that_fall_back_fail_the_case_and_are_named(run):
    with pytest.raises(StageError) as caught:
        run("Det")
    assert caught.value.outcome is Outcome.FELL_BACK
    assert "runs 2 of 3 nodes (" in str(caught.value)
    assert "1 Det" in str(caught.value)


def test_nodes_may_fall_back_where_the_suite_allows_them(run):
    _, _, detail = run("Det", cpu_nodes=0.67)
    assert "1 Det" in detail["on the CPU provider"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"colour": "red"}, "Invalid OpenVINO EP option: colour. Correct"),
        ({"device_type": "GPU"}, "Device GPU is not available. Correct"),
        ({"precision": "FP17"}, "CPU only supports FP32, ACCURACY. Correct"),
    ],
)
def test_an_option_that_the_provider_refuses_is_a_sentence(run, options, says):
    ((name, value),) = options.items()
    with pytest.raises(StageError) as caught:
        run(provider_options=((name, value),))
    assert caught.value.outcome is Outcome.FELL_BACK
    assert f'OpenVINOExecutionProvider with {name} = "{value}"' in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ('device_type = "CPU"', 0, "; OpenVINOExecutionProvider"),
        ('colour = "red"', 2, 'OpenVINOExecutionProvider with colour = "red"'),
    ],
    ids=["taken", "refused"],
)
def test_a_run_and_doctor_tell_a_refused_option(run_in, options, code, words):
    project = run_in(f"provider_options = {{ {options} }}")
    ended = project.parity("run")
    (finding,) = check_targets(project.path / "parity.toml")
    assert ended.code == code, ended.text
    assert ended.has("fell-back") == (code == 2), ended.text
    assert finding.status is (Status.WARN if code else Status.OK), finding
    assert words in finding.says


@pytest.fixture
def run_in(tmp_path, monkeypatch):
    """Write a project that runs on the provider, with lines of its own."""
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))

    def written(lines):
        project = write_project(tmp_path / "project")
        backend = '[backend.onnxruntime]\ntargets = ["ov"]\ndevice = "openvino"\n'
        target = f'[target.ov]\ncommand = ["{os.environ["PARITY_OPENVINO"]}"]\n'
        (project.path / "parity.toml").write_text(
            SUITE.partition("[backend.")[0]
            + f"{backend}{lines}\n{target}[limits]\ncoverage = 0.5\n"
        )
        tolerances = TOLERANCES.partition("[mnn.fp32]")[0]
        (project.path / "tolerances.toml").write_text(tolerances)
        return project

    return written
