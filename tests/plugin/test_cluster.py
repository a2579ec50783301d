"""Cases run by an executor elsewhere: the same rows, or one clear sentence."""

import sys
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import pytest

from harness.core.errors import ParityError, StageError
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.engine.run import open_store
from harness.engine.run_folder import PICTURES
from harness.plugins.fleet.cluster import (
    CaseResult,
    Elsewhere,
    NodeSettings,
    Task,
    node_name,
)
from harness.suite.suite import load_suite
from tests.plugin.drawing import ONNXRUNTIME
from tests.plugin.project import CASES


def place_of(suite, store, **changes):
    place = NodeSettings(
        store=str(store), read_only=False, limits=suite.limits, mnn_convert=None
    )
    return replace(place, **changes)


def test_any_executor_runs_the_cases_to_the_same_rows(passing, store):
    """Processes that are started anew, as on another machine."""
    project, _ = passing
    suite = load_suite(project.path)
    with Engine(open_store(str(store)), suite.limits) as engine:
        here = {record.case: record for record in map(engine.run, suite.cases)}
    executor = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    with Elsewhere(executor=executor, place=place_of(suite, store)) as engine:
        records = [future.result() for future in engine.start(suite.cases)]

    assert [record.case for record in records] == [case.id for case in suite.cases]
    for record in records:
        assert record.node
        assert record.rows == here[record.case].rows


class Lost(ThreadPoolExecutor):
    """A cluster that takes one task, and is gone."""

    width = 1

    def __init__(self) -> None:
        super().__init__(1)
        self._taken = 0

    def submit(self, *task: Any) -> Future[Any]:
        self._taken += 1
        if self._taken > 1:
            msg = "the cluster is gone"
            raise ConnectionError(msg)
        return super().submit(*task)


def test_a_cluster_that_is_lost_ends_every_case_with_its_error(passing, store):
    suite = load_suite(passing[0].path)

    with Elsewhere(executor=Lost(), place=place_of(suite, store)) as engine:
        records = engine.start(suite.cases)
        errors = [str(record.exception(timeout=120)) for record in records]

    assert errors == ["the cluster is gone"] * len(CASES)


def test_another_version_of_the_harness_is_refused(passing, store):
    suite = load_suite(passing[0].path)
    task = Task(place=place_of(suite, store, version="0.0.9"), cases=suite.cases[:1])

    with pytest.raises(ParityError, match=r"was started by 0\.0\.9; install the same"):
        task()


def test_a_node_that_cannot_open_the_store_is_named(passing):
    """It costs this case and no other, for the other nodes may open it."""
    suite = load_suite(passing[0].path)
    task = Task(place=place_of(suite, "nosuch://bucket"), cases=suite.cases[:1])

    with pytest.raises(StageError) as error:
        task()
    assert str(error.value).startswith(f"{node_name()} cannot run a task: the shared")


def test_paths_are_sent_as_absolute_ones(passing, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    limits = load_suite(passing[0].path).limits

    def place(**settings):
        return NodeSettings.of(Settings(**settings), limits)

    assert place(store="own").store == str(tmp_path / "own")
    assert place(store="s3://bucket/ours").store == "s3://bucket/ours"
    assert place(mnn_convert="bin/MNNConvert").mnn_convert == str(
        tmp_path / "bin" / "MNNConvert"
    )
    monkeypatch.setenv("PARITY_STORE", "theirs")
    assert place().store == str(tmp_path / "theirs")


def test_a_record_names_the_pictures_that_come_with_it(drawn, store):
    suite = load_suite(drawn[0].path)
    (case,) = (one for one in suite.pipeline_cases if one.id == ONNXRUNTIME)

    found = Task(place=place_of(suite, store), cases=(case,))()

    assert isinstance(found, CaseResult)
    assert found.record.pipeline is not None
    assert {f"{PICTURES}/{name}" for name in found.pictures} == {
        *found.record.pipeline["pictures"]
    }


@pytest.mark.parametrize(
    "command", ["run", "tune", "bench", "versions vae_decoder/mnn/fp32"]
)
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("ray", "--on ray needs Ray, which is not installed; pip install"),
        ("dask", "--on takes ray, or ray://HOST:10001, and not 'dask'"),
    ],
)
def test_a_cluster_that_cannot_be_is_one_sentence(
    project, monkeypatch, command, where, words
):
    monkeypatch.setitem(sys.modules, "ray", None)

    project.parity(*command.split(), "--on", where).check(2, words)

    assert not (project.path / "reports").exists()


@pytest.mark.fleet
def test_dask_runs_the_cases_too(passing, store):
    """Its executor needs no line of the engine."""
    from distributed import Client, LocalCluster

    suite = load_suite(passing[0].path)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as workers,
        Client(workers) as client,
        Elsewhere(
            executor=client.get_executor(), place=place_of(suite, store)
        ) as engine,
    ):
        records = [future.result() for future in engine.start(suite.cases)]

    assert [record.failure for record in records] == [None] * len(CASES)
