"""Pools of one process use each other's idle hosts."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from harness.core.memory import Need
from harness.core.outcome import Outcome
from harness.engine import worker_pool
from harness.engine.worker import FORKS
from harness.engine.worker_pool import WorkerPool

pytestmark = pytest.mark.skipif(not FORKS, reason="a host runs one job here")

HERE = f"{__name__}:place"


def place():
    """Return the processes that run a job, and where they are."""
    said = os.environ.get("PARITY_SAID") or os.environ.get("PARITY_STORE")
    return os.getppid(), str(Path.cwd()), sys.path, said


@pytest.fixture
def job(monkeypatch):
    """Run a job in a pool of its own, whose host imports nothing."""
    monkeypatch.setattr(worker_pool, "preload", lambda _: ())
    monkeypatch.setattr(worker_pool, "_kept", [])

    def run(name="here"):
        pool = WorkerPool(60.0)
        done = pool.job(name, HERE, subject="x", label="x", failure=Outcome.RUN)
        pool.close()
        return done.value

    yield run
    for host in worker_pool._kept:
        host.close()


def test_a_pool_takes_a_host_that_another_one_left(job):
    assert job()[0] == job()[0]


def test_a_job_is_where_its_caller_is(job, tmp_path, monkeypatch):
    first = job()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "own")
    host, folder, paths, _ = job()
    assert host == first[0]
    assert folder == str(tmp_path)
    assert paths[0] == str(tmp_path / "own")


def test_a_job_has_the_store_of_its_caller_in_the_same_host(job, monkeypatch):
    hosts = []
    for store in ("one", "another", None):
        if store is None:
            monkeypatch.delenv("PARITY_STORE")
        else:
            monkeypatch.setenv("PARITY_STORE", store)
        host, *_, said = job()
        hosts.append(host)
        assert said == store

    assert len({*hosts}) == 1


def test_another_environment_has_a_host_of_its_own(job, monkeypatch):
    first = job()
    monkeypatch.setenv("PARITY_SAID", "yes")
    host, *_, said = job()
    assert host != first[0]
    assert said == "yes"


def test_the_first_job_gets_the_host_that_began_before_it(job):
    pool = WorkerPool(60.0)
    pool.begin("here")
    (begun,) = pool._all
    pool.close()  # it is kept, whether it has imported or not
    assert begun._process is not None
    assert job()[0] == begun._process.popen.pid


def test_a_host_that_died_is_not_kept(job):
    host = psutil.Process(job()[0])
    host.send_signal(signal.SIGKILL)
    psutil.wait_procs([host], timeout=10)
    pool = WorkerPool(60.0)
    pool._idle["here"] = [worker_pool._kept.pop()]
    pool._all = [*pool._idle["here"]]
    pool.close()
    assert worker_pool._kept == []


def test_a_stage_that_needs_more_memory_than_is_left_ends_kept_hosts(job, monkeypatch):
    job()
    monkeypatch.setattr(worker_pool, "available_bytes", lambda: 1 << 20)
    worker_pool._make_room(Need(stage="x", size_bytes=1 << 21, reason="y"))
    assert worker_pool._kept == []


def test_of_too_many_hosts_the_oldest_of_the_most_frequent_is_ended(job, monkeypatch):
    monkeypatch.setattr(worker_pool, "_KEPT", 2)
    for name in ("a", "b"):
        job(name)
    monkeypatch.setenv("PARITY_SAID", "yes")
    job("b")
    assert [host.name for host in worker_pool._kept] == ["a", "b"]
    assert worker_pool._kept[1].kind[2]["PARITY_SAID"] == "yes"
