"""The unchanged deployed file in MNN, which runs in a child process."""

from pathlib import Path

import MNN
import numpy as np
import pytest

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL
from harness.runtimes.mnn.file import stored
from harness.runtimes.mnn.session import refused
from tests.unit import nets

OUTPUTS = ["map", "pooled"]
DEVICE = Device(threads=1)


def open_session(path, device=DEVICE, outputs=OUTPUTS):
    from harness.runtimes.mnn import session as mnn

    return mnn.open_session(path, device, outputs)


class Every(dict[str, int]):
    """Sizes that hold every name: all values are wanted."""

    def __contains__(self, name):
        return True


def run(path, feeds, device=DEVICE, outputs=OUTPUTS):
    with open_session(path, device, outputs) as session:
        return session.run(feeds), session.ran


def watch(path, feeds):
    """The outputs unwatched, watched, and unwatched again; and what was seen."""
    seen = nets.Seen()
    with open_session(path) as session:
        before = session.run(feeds)
        watched = session.watch(feeds, Every(), seen.keep)
        return before, watched, session.run(feeds), seen


def there_and_back(path, feeds, other):
    with open_session(path) as session:
        return [session.run(each) for each in (feeds, other, feeds)]


def fail_while_watching(path, feeds):
    def on_value(name, _value):
        raise OSError(name)

    with open_session(path) as session:
        session.watch(feeds, {"conv2d": 0, "pooled": 0}, on_value)


def clock(path, feeds):
    with open_session(path) as session:
        return session.clock(feeds, 3), session.run(feeds)


@pytest.fixture
def model(mnn_file):
    return mnn_file


def expected(feeds):
    import torch

    with torch.no_grad():
        made = nets.Blocks()(*(torch.tensor(value) for value in feeds.values()))
    return dict(zip(OUTPUTS, (value.numpy() for value in made), strict=True))


def equal(one, two):
    return all(np.array_equal(one[name], two[name]) for name in one)


def test_outputs_are_those_of_pytorch(model, feeds, job):
    made, ran = job(run, model, feeds)
    assert list(made) == OUTPUTS
    for name, value in expected(feeds).items():
        assert made[name].dtype == np.float32
        np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-4)
    assert (ran.backend, ran.device, ran.threads) == ("mnn", "cpu", 1)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(nets.feeds(nets.BLOCKS, batch=3, height=4, width=7), id="size"),
        pytest.param(nets.feeds(nets.BLOCKS, 1), id="numbers"),
    ],
)
def test_a_session_keeps_nothing_of_the_inputs_before(model, feeds, job, other):
    first, between, again = job(there_and_back, model, feeds, other)
    assert not np.array_equal(first["map"], between["map"])
    assert equal(first, again)
    assert equal(first, job(run, model, feeds)[0])
    if other["image"].shape == feeds["image"].shape:  # a resize may round otherwise
        assert equal(between, job(run, model, other)[0])
    for name, value in expected(other).items():
        np.testing.assert_allclose(between[name], value, rtol=1e-4, atol=1e-4)


def test_watching_changes_nothing(model, feeds, job):
    before, watched, after, seen = job(watch, model, feeds)
    assert equal(before, watched)
    assert equal(before, after)
    assert len(seen) > 20


def test_what_is_watched_is_in_the_order_of_the_axes(model, feeds, job):
    """MNN keeps four channels together; what is handed over does not."""
    _, _, _, seen = job(watch, model, feeds)
    import torch

    with torch.no_grad():
        image = torch.tensor(feeds["image"])
        conv = nets.Blocks().conv_in(image).numpy()

    np.testing.assert_allclose(seen["conv2d"], conv, rtol=1e-4, atol=1e-5)


def test_what_watching_raises_is_raised(model, feeds, job):
    with pytest.raises(StageError, match="OSError"):
        job(fail_while_watching, model, feeds)


REFUSED = {
    "integers beyond int32": (
        (lambda feeds: feeds.update(kind=np.array([1, 2**31])), DEVICE, OUTPUTS),
        (Outcome.DTYPE, "'kind' has integers beyond int32"),
    ),
    "a missing input": (
        (lambda feeds: feeds.pop("kind"), DEVICE, OUTPUTS),
        (Outcome.MISSING, "missing ['kind']"),
    ),
    "an unknown input": (
        (lambda feeds: feeds.update(extra=feeds["kind"]), DEVICE, OUTPUTS),
        (Outcome.MISSING, "unknown ['extra']"),
    ),
    "another number of axes": (
        (lambda feeds: feeds.update(image=feeds["image"][0]), DEVICE, OUTPUTS),
        (Outcome.SHAPE, "4 axes, the component gives 3"),
    ),
    "an output that is not there": (
        (lambda _: None, DEVICE, ["map", "other"]),
        (Outcome.MISSING, "['other'] are lost"),
    ),
    "an unknown hint": (
        (lambda _: None, Device(hints=(("winograd", 1),)), OUTPUTS),
        (Outcome.LOAD, "no session hint 'winograd'; it has max_tuning_number, "),
    ),
    "a hint that is no number to Python": (
        (lambda _: None, Device(hints=(("²", 1),)), OUTPUTS),
        (Outcome.LOAD, "no session hint '²'; it has max_tuning_number, "),
    ),
    "a device that this build lacks": (
        (lambda _: None, Device(device="opencl"), OUTPUTS),
        (Outcome.FELL_BACK, "asked for opencl"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_mnn_cannot_run_is_a_sentence(model, feeds, job, what):
    (change, device, outputs), (outcome, words) = REFUSED[what]
    change(feeds)
    with pytest.raises(StageError) as caught:
        job(run, model, feeds, device, outputs)
    assert caught.value.outcome is outcome
    assert words in str(caught.value)


def test_another_number_of_channels_is_no_result(model, feeds, job):
    feeds["image"] = np.repeat(feeds["image"], 2, axis=1)
    with pytest.raises(StageError) as caught:
        job(run, model, feeds)
    assert caught.value.outcome in {Outcome.RUN, Outcome.CRASHED, Outcome.SHAPE}


@pytest.mark.parametrize("name", ["winograd_memory_level", "3"])
def test_a_hint_is_given_by_name_or_number(model, feeds, job, name):
    made, ran = job(run, model, feeds, Device(threads=1, hints=((name, 0),)))
    assert dict(ran.detail)[f"hint {name}"] == "0"
    np.testing.assert_allclose(made["map"], expected(feeds)["map"], atol=1e-4)


@pytest.mark.parametrize("kept_bytes", [0, 100, 4000])
def test_a_truncated_file_is_refused(model, feeds, job, tmp_path, kept_bytes):
    short = tmp_path / "model.mnn"
    short.write_bytes(Path(model).read_bytes()[:kept_bytes])
    with pytest.raises(StageError, match=r"refuses model\.mnn: it is trunc") as caught:
        job(run, short, feeds)
    assert caught.value.outcome is Outcome.LOAD


def test_a_version_that_is_too_old_for_a_file_names_the_one_that_made_it(model):
    error = refused(Path(model), RuntimeError("invalid"), "3.0.0")
    assert error.outcome is Outcome.LOAD
    assert "MNN 3.0.0 cannot read model.mnn, which the converter of MNN" in str(error)
    assert f"{MNN.version()} made" in str(error)
    assert 'convert it with `converter = "3.0.0"`' in str(error)


def isolated(path, feeds, shapes):
    """Watched values, and what their operators make of them again."""
    own, again = nets.Seen(), nets.Seen()
    with open_session(path) as session:
        session.watch(feeds, Every(), own.keep)
        given = {
            name: value.reshape(shapes.get(name, value.shape))
            for name, value in own.items()
            if name in shapes or name.endswith("__matmul_converted")
        }
        session.isolate(feeds, given, again.keep)
    return {name: own[name] for name in given}, again


def test_each_cut_makes_its_own_values_again(model, blocks_files, feeds, job):
    # The exported graph's shapes: MNN keeps some values in another one inside.
    values = nets.whole_graph(blocks_files["dynamo"] / MODEL, feeds)
    shapes = {name: value.shape for name, value in values.items()}
    own, again = job(isolated, model, feeds, shapes)
    assert len(again) >= 15
    for name, value in again.items():
        np.testing.assert_array_equal(value.reshape(own[name].shape), own[name])


def test_each_layer_takes_some_time_and_the_run_is_as_deployed(job, model, feeds):
    spent, clocked = job(clock, model, feeds)
    expected, _ = job(run, model, feeds)
    took = {one.name: one.took_s for one in spent}
    assert all(took[layer.name] > 0 for layer in stored(model))
    for name, value in expected.items():
        np.testing.assert_array_equal(clocked[name], value)
