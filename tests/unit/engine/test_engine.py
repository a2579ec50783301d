"""A case from its source to its record."""

import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.core.case import Case, Device, ExportSettings, Sample, Variant
from harness.core.entry import Entry
from harness.core.kinds import PROGRAM
from harness.core.outcome import Outcome
from harness.core.plugins import declared
from harness.core.record import LAYERS, OUTPUTS, Row, load_record, save_record
from harness.engine import worker_pool
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.engine.worker_pool import Progress
from harness.recipes import describe
from harness.runtimes.mnn.file import stored
from harness.suite.schema import Limits

SHAPES = (("batch", 2), ("height", 8), ("width", 12))
LIMITS = Limits(timeout_s=200, jobs=2)
SAMPLES = (
    Sample(profile="realistic", index=1, shapes=SHAPES),
    Sample(profile="unit-normal", index=0, shapes=SHAPES, layers=False),
)
DYNAMO = ExportSettings()
TORCHSCRIPT = ExportSettings(exporter="torchscript", opset=17)


def case(component, backend, settings=DYNAMO, kind="fp32", **changes):
    fields = {"device": Device(threads=1), "samples": SAMPLES, **changes}
    variant = Variant(name=kind, backend=backend, kind=kind)
    return Case(component=component, export=settings, variant=variant, **fields)


@pytest.fixture(scope="module")
def unet(source):
    return describe("unet", "unet", source)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    store = Store(root=tmp_path_factory.mktemp("store"))
    with Engine(store, LIMITS) as made:
        yield made


@pytest.fixture(scope="module")
def records(engine, unet):
    """Record of each case, by exporter and backend."""
    cases = {
        (settings.exporter, backend): case(unet, backend, settings)
        for settings in (DYNAMO, TORCHSCRIPT)
        for backend in ("onnxruntime", "mnn")
    }
    started = engine.start(cases.values())
    return {name: one.result() for name, one in zip(cases, started, strict=True)}


def failure_of(record):
    assert record.failure is not None
    return record.failure


def contents(store):
    """Every file of the store, with its time; an entry's own tells of its last use."""
    return {
        str(path): path.name == "entry.json" or path.stat().st_mtime_ns
        for path in Path(store.root).rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


BOTH = pytest.mark.parametrize("backend", ["onnxruntime", "mnn"])
EACH = pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])


@BOTH
@EACH
def test_a_record_has_rows_of_both_checks(records, exporter, backend):
    record = records[exporter, backend]
    layers = [row for row in record.rows if row.what == LAYERS]
    outputs = [row for row in record.rows if row.what == OUTPUTS]

    assert record.failure is None, record.failure
    # Merged operators are covered by their twin, and have no row of their own; views
    # have one in ONNX Runtime, which runs the graph as it was exported.
    assert len(layers) > 0.9 * record.coverage["aligned"]
    assert len({row.probe for row in layers}) == len(layers)
    assert [(row.sample, row.probe) for row in outputs] == [
        ("realistic-1", "out_sample"),
        ("unit-normal-0", "out_sample"),
    ]
    assert {row.sample for row in layers} == {"realistic-1"}
    assert [row.position for row in layers] == sorted(row.position for row in layers)


@BOTH
@EACH
def test_what_computes_is_covered_and_shapes_agree(records, exporter, backend):
    coverage, rows = (
        records[exporter, backend].coverage,
        records[exporter, backend].rows,
    )
    floors = {row.probe: row.comparison.floor_multiple or 0 for row in rows}

    assert coverage["computing"] > 100
    assert coverage["aligned"] / coverage["computing"] >= 0.95, coverage["missing"]
    for row in rows:
        assert row.comparison.expected_shape == row.comparison.actual_shape, row.probe
    assert max(floors.values()) < 16, max(floors.items(), key=lambda pair: pair[1])


@BOTH
def test_watching_is_held_against_the_deployed_run(records, backend):
    seen = records["dynamo", backend].observer_max_abs
    assert list(seen) == ["realistic-1"]
    assert 0 <= seen["realistic-1"] < 1e-5
    if backend == "mnn":
        assert seen["realistic-1"] == 0


def test_a_record_says_what_ran_and_from_what(records):
    record = records["dynamo", "mnn"]

    assert record.failure is None
    assert record.ran is not None
    assert record.artifacts is not None
    assert record.took_s is not None
    assert record.ran["backend"] == "mnn"
    assert record.rewrite_max_abs == 0
    assert set(record.artifacts) == {"onnx", "mnn"}
    assert record.artifacts["mnn"]["digest"]
    assert record.peak_bytes > 2**20
    assert record.took_s["candidate"] > 0


def as_floats(record):
    return json.dumps(json.loads(json.dumps(record.to_json()), parse_int=float))


def test_a_record_survives_a_file(records, tmp_path):
    for record in records.values():
        save_record(record, tmp_path / "record.json")
        loaded = load_record(tmp_path / "record.json")
        assert loaded.rows == record.rows
        # A value of an integer tensor is read back as a float, which equals it.
        assert as_floats(loaded) == as_floats(record)


def test_a_second_run_makes_nothing_and_measures_the_same(engine, records, unet):
    before = contents(engine.store)
    known = records["dynamo", "mnn"]
    said: list[Progress] = []
    other = Store(root=engine.store.root)
    with Engine(other, LIMITS, on_progress=said.append) as another:
        for again in (engine.run(case(unet, "mnn")), another.run(case(unet, "mnn"))):
            assert again.rows == known.rows
            assert again.contract == known.contract
            assert again.took_s is not None
            assert list(again.took_s) == ["candidate"]

    assert known.contract or not declared("questions")
    assert not [one for one in said if "each input" in one.detail]
    assert contents(engine.store) == before


@pytest.mark.slow
@pytest.mark.parametrize("settings", [DYNAMO, TORCHSCRIPT], ids=["dynamo", "script"])
def test_further_inputs_are_measured_as_the_first_ones(source, tmp_path, settings):
    component = describe("text", "text_encoder", source)
    settings = replace(settings, attention="eager")
    samples = [
        Sample(profile="realistic", index=index, shapes=(("batch", 2),))
        for index in range(3)
    ]
    asked = partial(case, component, "onnxruntime", settings)
    with Engine(Store(root=tmp_path / "together"), LIMITS) as engine:
        together = engine.run(asked(samples=tuple(samples)))
    store, kept = Store(root=tmp_path / "one"), []
    said: list[Progress] = []
    rows: list[Row] = []
    with Engine(store, LIMITS, on_progress=said.append) as one:
        for sample in samples:
            record = one.run(asked(samples=(sample,)))
            assert record.failure is None, record.failure
            rows += record.rows
            programs = [e.path for e in store.entries() if e.kind == PROGRAM]
            kept.append({file: file.stat().st_mtime_ns for file in programs})

    def by_value(rows):
        return sorted(rows, key=lambda row: (row.what, row.probe, row.sample))

    assert by_value(rows) == by_value(together.rows)
    assert [one.stage for one in said].count("exporting") == 1
    by_dynamo = settings.exporter == "dynamo"
    assert [len(each) for each in kept] == [by_dynamo] * 3
    assert kept[0] == kept[1] == kept[2]


def test_a_program_that_cannot_be_read_is_exported_again(source, tmp_path):
    component = describe("text", "text_encoder", source)
    asked = partial(case, component, "onnxruntime", replace(DYNAMO, attention="eager"))
    store, damaged = Store(root=tmp_path), []
    with Engine(store, LIMITS) as engine:
        for index in range(3):
            sample = Sample(profile="realistic", index=index, shapes=(("batch", 2),))
            record = engine.run(asked(samples=(sample,)))
            assert record.failure is None, record.failure
            for entry in store.entries():
                if entry.kind == PROGRAM:
                    entry.check()  # the further export is kept in its place
                    (file,) = entry.path.glob("*.pt2")
                    file.write_bytes(file.read_bytes()[::-1])
                    damaged.append(index)

    assert damaged == [0, 1, 2]


def test_effects_of_rounded_weights_are_measured_once(engine, unet):
    here = case(unet, "mnn", samples=(SAMPLES[1], replace(SAMPLES[1], index=1)))
    file, model = engine.file(here)
    first, second, *_ = (layer.name for layer in stored(file.file(model)))
    trials = [((first, 4),), ((second, 4),)]
    said: list[Progress] = []

    def rounded(trials):
        said.clear()
        found = another.output_effects(here, trials)
        return found, any(one.stage == "rounding" for one in said)

    with Engine(engine.store, LIMITS, on_progress=said.append) as another:
        known, made = rounded(trials)
        again, made_again = rounded(trials)
        others, made_others = rounded(trials[::-1])
        some = another.output_effects(here, trials, only=[1])

    assert (made, made_again, made_others) == (True, False, True)
    assert again == known
    assert others.errors == known.errors[::-1] != known.errors
    assert some.rows == known.rows[len(some.rows) :]
    assert some.errors == tuple(each[len(some.rows) :] for each in known.errors)


def test_two_engines_at_once_share_one_graph_and_measure_the_same(source, tmp_path):
    component = describe("text", "text_encoder", source)
    settings = ExportSettings(attention="eager")
    asked = partial(case, component, "onnxruntime", settings)
    made = {}

    def work(name):
        with Engine(Store(root=tmp_path), LIMITS) as engine:
            made[name] = engine.run(asked())

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert made["a"].failure is None, made["a"].failure
    assert made["a"].rows == made["b"].rows
    assert len({(r.artifacts or {})["onnx"]["digest"] for r in made.values()}) == 1
    assert len(list((tmp_path).glob("**/model.onnx"))) == 1


def test_a_case_ends_before_other_components_are_exported(source, tmp_path):
    store = Store(root=tmp_path)
    settings = ExportSettings(attention="eager")
    names = ("text_encoder", "unet")
    exported: list[Entry] = []
    with Engine(store, Limits(timeout_s=200, jobs=1)) as engine:
        components = [describe(name, name, source) for name in names]
        records = engine.start(case(c, "onnxruntime", settings) for c in components)
        records[0].add_done_callback(
            lambda _: exported.extend(e for e in store.entries() if e.kind == "onnx")
        )
        assert [record.result().failure for record in records] == [None, None]

    assert len(exported) == 1


def test_an_engine_at_rest_keeps_little_and_works_again(engine, unet, monkeypatch):
    monkeypatch.setattr(worker_pool, "_KEPT", 0)
    monkeypatch.setattr(worker_pool, "_kept", [])
    assert engine.run(case(unet, "onnxruntime")).failure is None
    at_work = psutil.Process().children(recursive=True)
    engine.rest()
    left = {process.pid for process in psutil.Process().children(recursive=True)}
    assert left < {process.pid for process in at_work}
    assert engine.run(case(unet, "onnxruntime")).failure is None


FAILING: dict[str, tuple[dict[str, Any], Limits, Outcome, str]] = {
    "a stage that fails": (
        {"settings": ExportSettings(exporter="dynamo", opset=26)},
        *(LIMITS, Outcome.EXPORT, "takes 18 to 25"),
    ),
    "a time limit": ({}, Limits(timeout_s=1e-3), Outcome.TIMED_OUT, "limit of 0.001 s"),
    "a device that is not there": (
        {"device": Device(device="vulkan")},
        *(LIMITS, Outcome.FELL_BACK, "asked for vulkan"),
    ),
}


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("what", FAILING)
def test_a_failure_becomes_a_record(engine, unet, what):
    changes, limits, outcome, words = FAILING[what]
    with Engine(Store(root=engine.store.root), limits) as other:
        record = other.run(case(unet, "mnn", **changes))
    assert record.rows == ()
    assert record.case == "unet/mnn/fp32"
    assert failure_of(record).outcome == outcome
    assert words in failure_of(record).message


def test_a_damaged_artifact_is_not_run(source, tmp_path):
    component = describe("text", "text_encoder", source)
    asked = case(component, "mnn", ExportSettings(attention="eager"))
    with Engine(Store(root=tmp_path), LIMITS) as engine:
        sound = engine.run(asked)
        (weights,) = tmp_path.glob("v1/**/model.mnn.weight")
        data = weights.read_bytes()
        weights.chmod(0o644)
        weights.write_bytes(data[:-64])
        made_again = engine.run(asked)
        (weights,) = tmp_path.glob("v1/**/model.mnn.weight")
        restored = weights.read_bytes()
        weights.chmod(0o644)
        weights.write_bytes(bytes(byte ^ 1 for byte in data))
        changed = engine.run(asked)

    assert sound.failure is None, sound.failure
    assert made_again.rows == sound.rows
    assert restored == data
    assert failure_of(changed).outcome == Outcome.LOAD
    assert "model.mnn.weight" in failure_of(changed).message


def test_a_variant_of_onnxruntime_is_made_and_compared(engine, records, unet):
    record = engine.run(case(unet, "onnxruntime", kind="int8-weights"))
    errors = [row.comparison.max_abs for row in record.rows if row.what == OUTPUTS]
    exact = [
        row.comparison.max_abs
        for row in records["dynamo", "onnxruntime"].rows
        if row.what == OUTPUTS
    ]

    assert record.failure is None, record.failure
    assert min(errors) > 10 * max(exact)


def test_samples_that_one_graph_cannot_serve_get_graphs_of_their_own(engine, unet):
    other = replace(SAMPLES[0], shapes=(("batch", 1), ("height", 16), ("width", 8)))
    record = engine.run(
        case(unet, "onnxruntime", TORCHSCRIPT, samples=(SAMPLES[0], other))
    )

    assert record.failure is None, record.failure
    outputs = [row for row in record.rows if row.what == OUTPUTS]
    assert [row.comparison.expected_shape for row in outputs] == [
        (2, 4, 8, 12),
        (1, 4, 16, 8),
    ]
