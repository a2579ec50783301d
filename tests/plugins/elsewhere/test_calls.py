"""A dump of a wrong call of a right file: which input the call had wrong."""

import numpy as np
import pytest

from harness.plugins.elsewhere.calls import wrong_call
from tests.unit.two_inputs import RIGHT, graph, run_of

EARLIER = {
    "x": np.linspace(0, 3, 8, dtype=np.float32).reshape(2, 4),
    "y": np.linspace(-2, 1, 8, dtype=np.float32).reshape(2, 4),
    "t": np.array([0.25], np.float32),
}
FEEDS = {name: value * 2 + 1 for name, value in EARLIER.items()}
SAMPLES = {"s-0": EARLIER, "s-1": FEEDS}
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
            "with 'x' of the sample before: that input was not set again, or was "
            + LATE,
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

    said = wrong_call(run, SAMPLES, {"s-1": given})

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

    assert wrong_call(run, SAMPLES, {"s-1": given}) == ""


def called(run, change):
    """A dump of three samples, each called with its inputs as `change` makes them."""
    numbers = np.random.default_rng(3)
    feeds = {
        f"s-{at}": {
            "x": numbers.standard_normal((2, 4)).astype(np.float32),
            "y": numbers.standard_normal((2, 4)).astype(np.float32),
            "t": np.array([float(at + 1)], np.float32),
        }
        for at in range(3)
    }
    order = list(feeds)
    given = {
        name: run({**one, **change(one, at, [feeds[other] for other in order])})
        for at, (name, one) in enumerate(feeds.items())
    }
    return feeds, given


SCALE = np.float32(0.18215)
WRONG = {
    "exchanged": (lambda one, *_: {"x": one["y"], "y": one["x"]}, "'x' and 'y' exch"),
    "items": (
        lambda one, *_: {"y": one["y"][::-1]},
        "'y' with the halves of its batch",
    ),
    "scaled": (lambda one, *_: {"y": one["y"] / SCALE}, "'y' times 5.4"),
    "inverse": (lambda one, *_: {"x": one["x"] * SCALE}, "'x' times 0.18215"),
    "negative": (lambda one, *_: {"y": one["y"] * -1}, "'y' times -1"),
    "next": (lambda _, at, all_: {"t": all_[(at + 1) % 3]["t"]}, "'t' of the sample a"),
    "step": (lambda one, at, _: {"x": one["x"] * (2.0 + at)}, "scale_model_input"),
    "one more": (lambda one, *_: {"t": one["t"] + 1}, "'t' 1 more"),
}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_call_is_told_where_it_explains_every_sample(run, how):
    change, words = WRONG[how]
    feeds, given = called(run, change)

    assert words in wrong_call(run, feeds, given)


def test_what_explains_one_sample_alone_is_not_said(run):
    def change(one, at, _):
        noise = np.random.default_rng(at).standard_normal((2, 4)).astype(np.float32)
        return {"y": np.zeros_like(one["y"])} if at == 0 else {"x": one["x"] + noise}

    feeds, given = called(run, change)

    assert wrong_call(run, feeds, {"s-0": given["s-0"]})
    assert not wrong_call(run, feeds, given)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 4, 8, 8), (2, 3, 7)])
def test_bytes_of_another_layout_are_told(shape):
    numbers = np.random.default_rng(1)
    feeds = {
        name: {"x": numbers.standard_normal(shape).astype(np.float32)}
        for name in ("s-0", "s-1")
    }

    def same(given):
        return {"out": np.tanh(given["x"])}

    def bytes_of(value):
        return np.ascontiguousarray(np.moveaxis(value, 1, -1)).reshape(value.shape)

    given = {name: {"out": bytes_of(same(one)["out"])} for name, one in feeds.items()}

    assert "the bytes are of NHWC, and read as NCHW" in wrong_call(same, feeds, given)
