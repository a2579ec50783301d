"""A value in another layout is no fault of the harness's own export, if it is right."""

import pytest

from tests.faults.catalogue.export import FAULTS
from tests.faults.catalogue.fault import in_graph
from tests.faults.catalogue.graphs import shown_as
from tests.faults.catalogue.texts import TURNED
from tests.faults.clean import BACKENDS
from tests.faults.planting import plant

pytestmark = pytest.mark.slow

TWIN = in_graph(
    "export", "text_encoder", "value-in-another-layout", shown_as("linear_5", TURNED)
)
(FAULT,) = (fault for fault in FAULTS if fault.name == "value-in-a-wrong-layout")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_that_is_turned_and_turned_back_is_silent(trials, backend):
    trial = plant(trials.stand, TWIN, backend)
    layers, _ = trial.verdicts

    assert not trial.caught, trial.said
    # MNN's converter takes the two transposes out again.
    assert ("(of shape" in layers.reason) == (backend == "onnxruntime")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_that_is_turned_and_only_reshaped_back_fails(trials, backend):
    trial = plant(trials.stand, FAULT, backend)

    assert trial.caught
    assert trial.localised, trial.said
