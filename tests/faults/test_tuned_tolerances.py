"""Tuned tolerances: fresh inputs stay within, planted faults are caught."""

import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from harness.core.groups import sample_groups
from harness.core.outcome import Outcome
from harness.core.record import OUTPUTS
from harness.core.settings import Settings
from harness.engine.engine import record_of
from harness.engine.export_files import MODEL
from harness.measure.trace import load_inputs, open_trace
from harness.runtimes.candidate.candidate import output_rows
from harness.runtimes.session import open_session
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import FIXTURES

pytestmark = pytest.mark.slow

CASES = ("text_encoder/onnxruntime/fp32", "vae_decoder/onnxruntime/fp32")
FRESH_SEED = 2026
"""Of inputs that no tuning has seen."""

SAMPLES = 3

EVERY_CASE = [
    f"{component}/{backend}/fp32"
    for component in (
        *("text_encoder", "unet", "controlnet", "controlled_unet"),
        *("vae_encoder", "vae_decoder"),
    )
    for backend in ("onnxruntime", "mnn")
]
FULL_SIZE = [case for case in EVERY_CASE if not case.startswith("controlled_unet")]
NORMALISATIONS = ("LayerNormalization", "InstanceNormalization", "GroupNormalization")


@pytest.fixture(scope="session")
def judged(artifacts, tmp_path_factory):
    """Return the verdict on a case's outputs; of a tampered ONNX file, if asked."""

    def of(suite, name, change=None, seed=0):
        (case,) = suite.select([name])
        samples = [
            replace(one, seed=seed, layers=False) for one in case.samples[:SAMPLES]
        ]
        case = replace(case, samples=tuple(samples))
        prepared = artifacts.prepare(case, case.samples)
        (group,) = sample_groups(case, case.samples)
        artifact, model = artifacts.deploy(case, artifacts.graph(case, group))
        path = artifact.file(model)
        if change is not None:
            folder = tmp_path_factory.mktemp("tampered") / "artifact"
            shutil.copytree(artifact.path, folder)
            path = folder / MODEL
            graph = onnx.load(path)
            assert change(graph), "the fault found nothing to change"
            onnx.save(graph, path)
        names = [spec.name for spec in case.component.outputs]
        rows = []
        with open_session(case.backend, path, case.device, names) as session:
            for reading in prepared.values():
                made = session.run(load_inputs(reading.inputs, case.component))
                trace = open_trace(reading.reference.path)
                rows += output_rows(reading.sample, made, trace)
        record = record_of(case, rows=tuple(rows))
        return Judge.of(suite, Settings()).check(record, OUTPUTS)

    return of


def one_weight_larger(model):
    """A thousandth, of the largest matrix."""
    return scale(model, lambda weight: weight.ndim > 1, 1.001)


def one_bias_missing(model):
    return scale(model, lambda weight: weight.ndim == 1 and weight.any(), 0.0)


def scale(model, wanted, factor):
    weights = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and wanted(numpy_helper.to_array(tensor))
    ]
    largest = max(weights, key=lambda tensor: numpy_helper.to_array(tensor).size)
    scaled = np.float32(factor) * numpy_helper.to_array(largest)
    largest.CopyFrom(numpy_helper.from_array(scaled, largest.name))
    return True


def another_epsilon(model):
    """1e-4 for 1e-5 or 1e-6, in every normalisation."""
    found = [
        attribute
        for node in model.graph.node
        if node.op_type in NORMALISATIONS
        for attribute in node.attribute
        if attribute.name == "epsilon"
    ]
    for attribute in found:
        attribute.f = 1e-4
    return found


@pytest.fixture(scope="session")
def sd15():
    return load_suite(FIXTURES / "sd15")


@pytest.mark.parametrize("case", EVERY_CASE)
def test_a_healthy_file_is_within_on_inputs_that_no_tuning_has_seen(
    judged, digits, case
):
    verdict = judged(digits, case, seed=FRESH_SEED)

    assert verdict.outcome is Outcome.WITHIN, verdict.reason


@pytest.mark.parametrize(
    "fault", [one_weight_larger, one_bias_missing, another_epsilon]
)
@pytest.mark.parametrize("case", CASES)
def test_a_planted_fault_is_caught(judged, digits, case, fault):
    assert judged(digits, case, fault).outcome is Outcome.EXCEEDS


@pytest.mark.full_size
@pytest.mark.parametrize("case", FULL_SIZE)
def test_full_size_is_within_on_inputs_that_no_tuning_has_seen(judged, sd15, case):
    verdict = judged(sd15, case, seed=FRESH_SEED)

    assert verdict.outcome is Outcome.WITHIN, verdict.reason


@pytest.mark.full_size
@pytest.mark.parametrize(
    "fault", [one_weight_larger, one_bias_missing, another_epsilon]
)
@pytest.mark.parametrize("case", CASES)
def test_a_fault_planted_at_full_size_is_caught(judged, sd15, case, fault):
    assert not judged(sd15, case, fault).outcome.passed
