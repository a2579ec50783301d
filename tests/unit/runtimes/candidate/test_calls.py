"""A dump of a wrong call of a right file: which input the call had wrong."""

import numpy as np
import pytest

from harness.runtimes.candidate.calls import wrong_call
from tests.unit.runtimes.candidate.test_contract import RIGHT, graph, run_of

EARLIER = {
    "x": np.linspace(0, 3, 8, dtype=np.float32).reshape(2, 4),
    "y": np.linspace(-2, 1, 8, dtype=np.float32).reshape(2, 4),
    "t": np.array([0.25], np.float32),
}
FEEDS = {name: value * 2 + 1 for name, value in EARLIER.items()}
LATE = "written before the session was resized"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """x + tanh(y) * t."""
    return run_of(graph(tmp_path_factory.mktemp("calls") / "two.onnx", RIGHT))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        pytest.param(
            {"x": np.zeros_like(EARLIER["x"])},
            f"with 'x' = 0: that input was not set, or was {LATE}",
            id="input not set",
        ),
        pytest.param(
            {"x": EARLIER["x"]},
            f"with 'x' of s-0: that input was not set again, or was {LATE}",
            id="set before the resize",
        ),
        pytest.param(
            {name: np.zeros_like(value) for name, value in FEEDS.items()},
            f"with every input 0: none was set, or each was {LATE}",
            id="no input set",
        ),
    ],
)
def test_a_call_with_a_wrong_input_is_told_from_its_outputs(run, changed, words):
    given = run(FEEDS | changed)
    # The device of a dump rounds in its own way.
    given = {name: value * np.float32(1 + 1e-6) for name, value in given.items()}

    said = wrong_call(run, FEEDS, given, "s-0", EARLIER)

    assert said == f"it is what the file gives {words}"


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda value: value, id="right"),
        pytest.param(lambda value: value + 1, id="wrong in another way"),
        pytest.param(lambda value: value.T, id="another layout"),
        pytest.param(lambda value: value * np.nan, id="no numbers"),
    ],
)
def test_nothing_is_said_of_a_call_with_the_right_inputs(run, spoilt):
    given = {name: spoilt(value) for name, value in run(FEEDS).items()}

    assert wrong_call(run, FEEDS, given, "s-0", EARLIER) == ""
