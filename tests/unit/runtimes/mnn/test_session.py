"""The unchanged deployed file in MNN, which runs in a child process."""

from pathlib import Path

import MNN
import numpy as np
import pytest

from harness.core.case import Device, Variant
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.export_files import MODEL
from harness.runtimes.mnn.convert import convert as convert_to_mnn
from harness.runtimes.mnn.session import refused
from tests.unit import nets

OUTPUTS = ["map", "pooled"]
DEVICE = Device(threads=1)


def open_session(path, device=DEVICE, outputs=OUTPUTS):
    from harness.runtimes.mnn import session as mnn

    return mnn.open_session(path, device, outputs)


def convert(source, folder):
    return convert_to_mnn(
        source,
        Variant(name="fp32", backend="mnn", kind="fp32"),
        folder,
        component=nets.BLOCKS,
        probes=(),
        native=None,
    )


def run(path, feeds, device=DEVICE, outputs=OUTPUTS):
    with open_session(path, device, outputs) as session:
        return session.run(feeds), session.ran


def watch(path, feeds):
    """The outputs unwatched, watched, and unwatched again; and what was seen."""
    seen = {}

    class All(dict[str, int]):
        def __contains__(self, name):
            return True

    with open_session(path) as session:
        before = session.run(feeds)
        watched = session.watch(
            feeds, All(), lambda name, value: seen.update({name: value.copy()})
        )
        return before, watched, session.run(feeds), seen


def there_and_back(path, feeds, other):
    with open_session(path) as session:
        return [session.run(each) for each in (feeds, other, feeds)]


def fresh_each(path, *each):
    made = []
    for feeds in each:
        with open_session(path) as session:
            made.append(session.run(feeds))
    return made


def fail_while_watching(path, feeds):
    def on_value(name, _value):
        raise OSError(name)

    with open_session(path) as session:
        session.watch(feeds, {"conv2d": 0, "pooled": 0}, on_value)


def clock(path, feeds):
    with open_session(path) as session:
        return session.clock(feeds, 3)


@pytest.fixture(scope="module")
def job(native):
    def call(function, *arguments, **keywords):
        done = native.run(function, *arguments, timeout_s=60, label="test", **keywords)
        return done.value

    return call


@pytest.fixture(scope="module")
def model(blocks_files, tmp_path_factory, job):
    folder = tmp_path_factory.mktemp("mnn")
    job(convert, blocks_files["dynamo"] / MODEL, folder)
    return folder / "model.mnn"


@pytest.fixture
def feeds():
    return nets.feeds(nets.BLOCKS)


def expected(feeds):
    import torch

    with torch.no_grad():
        made = nets.Blocks()(*(torch.tensor(value) for value in feeds.values()))
    return dict(zip(OUTPUTS, (value.numpy() for value in made), strict=True))


def equal(one, two):
    return all(np.array_equal(one[name], two[name]) for name in one)


def failed(job, function, *arguments) -> StageError:
    with pytest.raises(StageError) as caught:
        job(function, *arguments)
    assert caught.value.outcome is not Outcome.CRASHED
    return caught.value


def test_outputs_are_those_of_pytorch(model, feeds, job):
    made, ran = job(run, model, feeds)

    assert list(made) == OUTPUTS
    for name, value in expected(feeds).items():
        assert made[name].dtype == np.float32
        np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-4)
    assert (ran.backend, ran.device, ran.threads) == ("mnn", "cpu", 1)


def test_a_session_comes_back_from_another_size_bit_for_bit(model, feeds, job):
    larger = nets.feeds(nets.BLOCKS, batch=3, height=4, width=7)
    first, other, again = job(there_and_back, model, feeds, larger)

    assert equal(first, again)
    for name, value in expected(larger).items():
        np.testing.assert_allclose(other[name], value, rtol=1e-4, atol=1e-4)


def test_a_session_keeps_nothing_of_the_inputs_before(model, feeds, job):
    other = nets.feeds(nets.BLOCKS, 1)
    kept = job(there_and_back, model, feeds, other)
    fresh = job(fresh_each, model, feeds, other)

    assert not np.array_equal(kept[0]["map"], kept[1]["map"])
    assert equal(kept[0], fresh[0])
    assert equal(kept[1], fresh[1])


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


def test_integers_beyond_int32_are_refused(model, feeds, job):
    feeds["kind"] = np.array([1, 2**31])
    error = failed(job, run, model, feeds)

    assert error.outcome is Outcome.DTYPE
    assert "'kind' has integers beyond int32" in str(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda feeds: feeds.pop("kind"), "missing ['kind']"),
        (lambda feeds: feeds.update(extra=feeds["kind"]), "unknown ['extra']"),
    ],
    ids=["missing", "unknown"],
)
def test_inputs_are_exactly_the_files(model, feeds, job, change, words):
    change(feeds)
    error = failed(job, run, model, feeds)

    assert error.outcome is Outcome.MISSING
    assert words in str(error)


def test_another_number_of_axes_is_refused(model, feeds, job):
    feeds["image"] = feeds["image"][0]
    error = failed(job, run, model, feeds)

    assert error.outcome is Outcome.SHAPE
    assert "4 axes, the component gives 3" in str(error)


def test_another_number_of_channels_is_no_result(model, feeds, job):
    feeds["image"] = np.repeat(feeds["image"], 2, axis=1)

    with pytest.raises(StageError) as caught:
        job(run, model, feeds)
    assert caught.value.outcome in {Outcome.RUN, Outcome.CRASHED, Outcome.SHAPE}


def test_an_output_that_is_not_there_is_named(model, feeds, job):
    error = failed(job, run, model, feeds, DEVICE, ["map", "other"])

    assert error.outcome is Outcome.MISSING
    assert "['other'] are lost" in str(error)


def test_an_unknown_hint_is_named_with_those_there_are(model, feeds, job):
    error = failed(job, run, model, feeds, Device(hints=(("winograd", 1),)))

    assert error.outcome is Outcome.LOAD
    assert "no session hint 'winograd'" in str(error)
    assert "winograd_memory_level" in str(error)


@pytest.mark.parametrize("name", ["winograd_memory_level", "3"])
def test_a_hint_is_given_by_name_or_number(model, feeds, job, name):
    made, ran = job(run, model, feeds, Device(threads=1, hints=((name, 0),)))

    assert dict(ran.detail)[f"hint {name}"] == "0"
    np.testing.assert_allclose(made["map"], expected(feeds)["map"], atol=1e-4)


def test_a_device_that_this_build_lacks_is_a_failure(model, feeds, job):
    error = failed(job, run, model, feeds, Device(device="opencl"))

    assert error.outcome is Outcome.FELL_BACK
    assert "asked for opencl" in str(error)


@pytest.mark.parametrize("kept_bytes", [0, 100, 4000])
def test_a_truncated_file_is_refused(model, feeds, job, tmp_path, kept_bytes):
    short = tmp_path / "model.mnn"
    short.write_bytes(Path(model).read_bytes()[:kept_bytes])
    error = failed(job, run, short, feeds)

    assert error.outcome is Outcome.LOAD
    assert "refuses model.mnn: it is truncated" in str(error)


def test_a_version_that_is_too_old_for_a_file_names_the_one_that_made_it(model):
    error = refused(Path(model), RuntimeError("invalid"), "3.0.0")

    assert error.outcome is Outcome.LOAD
    assert "MNN 3.0.0 cannot read model.mnn, which the converter of MNN" in str(error)
    assert f"{MNN.version()} made" in str(error)
    assert 'convert it with `converter = "3.0.0"`' in str(error)


def isolated(path, feeds, shapes):
    """Watched values, and what their operators make of them again."""
    own, again = {}, {}

    class All(dict[str, int]):
        def __contains__(self, name):
            return True

    with open_session(path) as session:
        session.watch(feeds, All(), lambda n, value: own.update({n: value.copy()}))
        given = {
            name: value.reshape(shapes.get(name, value.shape))
            for name, value in own.items()
            if name in shapes or name.endswith("__matmul_converted")
        }
        session.isolate(feeds, given, lambda n, value: again.update({n: value}))
    return {name: own[name] for name in given}, again


def test_given_its_own_values_each_cut_makes_them_again(
    model, blocks_files, feeds, job
):
    from tests.unit.runtimes.onnxruntime.test_session import whole_graph

    # The exported graph's shapes: MNN keeps some values in another one inside.
    values = whole_graph(blocks_files["dynamo"] / MODEL, feeds)
    shapes = {name: value.shape for name, value in values.items()}

    own, again = job(isolated, model, feeds, shapes)

    assert len(again) >= 15
    for name, value in again.items():
        np.testing.assert_array_equal(value.reshape(own[name].shape), own[name])


def test_each_operator_takes_some_time(job, model, feeds):
    spent = job(clock, model, feeds)

    assert sum(one.took_s for one in spent) > 0
    assert {value for one in spent for value in one.values} >= set(OUTPUTS)
