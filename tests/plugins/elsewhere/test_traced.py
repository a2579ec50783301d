"""Traces and dumps: whose values a sample gets, and files that are damaged."""

import json
import tracemalloc

import numpy as np
import pytest

from harness.core.case import Case, Device, ExportSettings, Sample, Target, Variant
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.command import traced_case
from harness.plugins.elsewhere.dump import as_trace
from harness.plugins.elsewhere.form import LAYERS
from harness.plugins.elsewhere.remote import sha256
from harness.plugins.elsewhere.traced import Traced, digest_of
from harness.runtimes.session import SAMPLE
from harness.suite.suite import load_suite
from tests.unit import nets
from tests.unit.suite.pipelines import UNET
from tests.unit.suite.test_targets import PHONE

OUTPUTS = ["map", "pooled"]
FEEDS = {"image": np.ones(2, np.float32)}


def facts(**about):
    return {
        "name": "phone",
        "case": "blocks/mnn/fp32",
        "files": {},
        "entries": [],
        "samples": {},
        "layers": "all",
        "version": "1",
        "machine": "arm64",
        "log": "",
        **about,
    }


@pytest.fixture
def traced(tmp_path):
    """Open a trace as the session of a deployed file."""
    (tmp_path / "model.mnn").touch()

    def opened(trace):
        place = Device(target=Target(name="phone", trace=str(trace)))
        return Traced(tmp_path / "model.mnn", "mnn", place, OUTPUTS)

    return opened


def test_a_dump_gives_each_sample_its_own_values(traced, tmp_path):
    """The second sample alone has layers, and is watched after both were run."""
    case = Case(
        component=nets.BLOCKS,
        export=ExportSettings(),
        variant=Variant(name="fp32", backend="mnn", kind="fp32"),
        device=Device(),
        samples=tuple(
            Sample(profile="realistic", index=at, shapes=tuple(nets.SIZES.items()))
            for at in range(2)
        ),
    )
    for at in range(2):
        (tmp_path / f"realistic-{at}").mkdir()
        for name in OUTPUTS:
            np.save(tmp_path / f"realistic-{at}" / f"{name}.npy", np.full(2, at))
    as_trace(tmp_path, case, None, tmp_path / "trace.npz")

    with traced(tmp_path / "trace.npz") as session:
        SAMPLE.set("realistic-1")
        watched = session.watch({}, {}, lambda _name, _value: None)

    assert [watched[name].tolist() for name in OUTPUTS] == [[1, 1], [1, 1]]


def test_a_trace_gives_samples_with_equal_inputs_their_own_values(traced, tmp_path):
    trace = bundle_run.BundleTrace(OUTPUTS, whole=True)
    digests = dict.fromkeys(("realistic-0", "boundary-0"), digest_of(FEEDS))
    for at, sample in enumerate(digests):
        trace.add(bundle_run.OUTPUTS, sample, "map", np.full(2, at))
    trace.add(LAYERS, "realistic-0", "value", np.zeros(2))
    trace.save(tmp_path / "trace.npz", facts(samples=digests))

    seen: dict[str, np.ndarray] = {}
    with traced(tmp_path / "trace.npz") as session:
        SAMPLE.set("realistic-0")
        made = session.watch(FEEDS, {"value": 16}, seen.__setitem__)

    assert made["map"].tolist() == [0, 0]
    assert list(seen) == ["value"]


def test_a_value_that_is_far_larger_than_the_reference_is_not_read(traced, tmp_path):
    trace = bundle_run.BundleTrace(OUTPUTS, whole=False)
    sample = "realistic-0"
    trace.add(bundle_run.OUTPUTS, sample, "map", np.zeros(2))
    trace.add(LAYERS, sample, "value", np.zeros(1 << 22))
    trace.save(tmp_path / "trace.npz", facts(samples={sample: digest_of(FEEDS)}))

    with traced(tmp_path / "trace.npz") as session:
        SAMPLE.set(sample)
        with pytest.raises(StageError, match=r"'value' in the shape \[4194304\]"):
            session.watch(FEEDS, {"value": 16}, lambda _name, _value: None)


def test_a_value_that_nobody_asked_for_is_not_read(traced, tmp_path):
    trace = bundle_run.BundleTrace(OUTPUTS, whole=False)
    sample = "realistic-0"
    trace.add(bundle_run.OUTPUTS, sample, "map", np.zeros(2))
    trace.add(LAYERS, sample, "value", np.zeros(1 << 22))
    trace.save(tmp_path / "trace.npz", facts(samples={sample: digest_of(FEEDS)}))
    seen: list[str] = []

    with traced(tmp_path / "trace.npz") as session:
        SAMPLE.set(sample)
        session.watch(FEEDS, {}, lambda name, _value: seen.append(name))

    assert not seen


@pytest.mark.parametrize("whole", [True, False], ids=["stored", "compressed"])
def test_a_trace_that_is_damaged_in_the_middle_is_a_sentence(traced, tmp_path, whole):
    trace = bundle_run.BundleTrace(OUTPUTS, whole=whole)
    noise = np.random.default_rng(0).standard_normal(4096)
    trace.add(bundle_run.OUTPUTS, "realistic-0", "map", noise)
    trace.save(tmp_path / "trace.npz", facts(samples={"realistic-0": digest_of(FEEDS)}))
    data = bytearray((tmp_path / "trace.npz").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    (tmp_path / "trace.npz").write_bytes(data)

    with (
        traced(tmp_path / "trace.npz") as session,
        pytest.raises(StageError, match=r"trace\.npz is no trace, or is damaged") as it,
    ):
        session.run(FEEDS)

    assert it.value.outcome is Outcome.LOAD


@pytest.mark.parametrize(
    ("of", "where"),
    [
        ("fp32", "@pixel"),
        ("fp32@low", "@pixel-low"),
        ("fp32@phone", "@pixel"),
        ("fp32@phone-low", "@pixel-low"),
    ],
)
def test_a_trace_keeps_the_precision_of_its_case_in_the_id(tmp_path, of, where):
    backend = '[backend.mnn]\ntargets = ["here", "phone"]\nprecision = ["high", "low"]'
    (tmp_path / "parity.toml").write_text(f"{UNET}{backend}\n{PHONE}")
    suite = load_suite(tmp_path)
    (case,) = (case for case in suite.cases if case.how == of)
    trace = bundle_run.BundleTrace(["sample"], whole=True)
    trace.add(bundle_run.OUTPUTS, case.samples[0].id, "sample", np.zeros(2))
    trace.save(tmp_path / "trace.npz", facts(case=case.id))

    judged = traced_case(
        suite,
        tmp_path / "trace.npz",
        name="pixel",
        of="",
        names=None,
        scratch=tmp_path / "scratch.npz",
    )

    assert judged.id == f"unet/mnn/fp32{where}"
    assert judged.device.precision == case.device.precision


def test_a_bundle_never_holds_a_whole_file_in_memory(tmp_path):
    size = 64 << 20
    with (tmp_path / "model.mnn").open("wb") as file:
        file.truncate(size)
    np.savez(tmp_path / bundle_run.FEEDS, x=np.zeros(1))
    said = {
        "format": bundle_run.FORMAT,
        "files": {"model.mnn": sha256(tmp_path / "model.mnn")},
        "outputs": [],
        "layers": "all",
        "calls": [],
    }
    (tmp_path / bundle_run.CALLS).write_text(json.dumps(said))

    tracemalloc.start()
    bundle_run.run(tmp_path, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < size // 8
