"""Digits' components as they are deployed, ready to be tampered with."""

import json

import pytest
import torch

from harness.core.case import Device
from harness.engine.artifacts import Artifacts
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool
from harness.plugins.pipelines.drawing.inputs import draw_inputs
from harness.plugins.pipelines.drawing.networks import Residents, SessionNetwork
from harness.plugins.pipelines.drawing.reference import (
    load_reference,
    record,
    torch_networks,
)
from harness.plugins.pipelines.stages import role_file
from harness.suite.suite import load_suite
from tests.faults.digits import watched_digits
from tests.faults.trials import Trials
from tests.places import ROOT

SCORE = ROOT / "reports" / "faults.json"
LIMIT_S = 600.0


@pytest.fixture(scope="session")
def digits():
    torch.set_num_threads(1)  # xdist's other worker has the other core
    return load_suite(watched_digits())


@pytest.fixture(scope="session")
def artifacts(shared_store):
    """What exports and converts."""
    worker_pool = WorkerPool(LIMIT_S)
    yield Artifacts(Store(root=shared_store), worker_pool, None)
    worker_pool.close()


@pytest.fixture(scope="session")
def trials(shared_store):
    """What plants the catalogue's faults."""
    with Trials(shared_store) as trials:
        yield trials


@pytest.fixture(scope="session")
def kept():
    """The score that is kept in the repository: fault and runtime to what was true."""
    rows = json.loads(SCORE.read_text(encoding="utf-8"))["faults"]
    return {(row["fault"], row["backend"]): row for row in rows}


@pytest.fixture
def holds(trials, kept):
    """Say whether a fault is caught, and the rest is no worse than the kept score."""

    def check(fault, backend):
        result = trials.of(fault, backend)
        before = kept.get((fault.name, backend), {"localised": True, "explained": True})
        assert result.caught, result.said
        assert result.localised or not result.places or not before["localised"], (
            f"blamed elsewhere than on {result.places}: {result.said}"
        )
        assert result.explained or not before["explained"], result.said
        assert not result.wrong

    return check


@pytest.fixture(scope="session")
def residents():
    held = Residents()
    yield held
    held.close()


@pytest.fixture(scope="session")
def network_of(artifacts, residents):
    """Return a case's deployed file as a network."""

    return lambda case: SessionNetwork(
        role_file(artifacts, case, case.component.name), residents
    )


class Staged:
    """A pipeline case, its inputs, PyTorch's drawing, and the networks of each role."""

    def __init__(self, case, network_of, residents, folder):
        self.case = case
        self.pipeline = case.pipeline
        self.inputs = draw_inputs(case.pipeline)
        meta = record(case.pipeline, self.inputs, folder, Device())
        self.reference = load_reference(folder, meta)
        self.candidates = {role: network_of(file) for role, file in case.roles}
        self.torch = torch_networks(case.pipeline, residents, Device())


@pytest.fixture(scope="session")
def staged(digits, network_of, residents, tmp_path_factory):
    """Return a pipeline case by id, staged once."""
    kept = {}

    def of(name):
        if name not in kept:
            case = next(case for case in digits.pipeline_cases if case.id == name)
            folder = tmp_path_factory.mktemp("reference")
            kept[name] = Staged(case, network_of, residents, folder)
        return kept[name]

    return of
