"""Cases that wait for a cluster: how many tasks it has at once, and what they keep."""

import gc
import tracemalloc
from collections import deque
from concurrent.futures import Executor, Future, as_completed
from dataclasses import replace
from typing import Any

import pytest

from harness.core.case import Case
from harness.engine.engine import record_of
from harness.engine.needs import Takes, TaskStep, takes
from harness.plugins.fleet.cluster import (
    CaseResult,
    Elsewhere,
    NodeSettings,
    NodeTask,
    Task,
    node_name,
)
from harness.plugins.fleet.queue import graphs_of
from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")
PLACE = NodeSettings(store="", read_only=True, limits=DIGITS.limits, mnn_convert=None)
WIDTH = 2


class Nodes(Executor):
    """A cluster that does a task when it is told to."""

    width = WIDTH

    def __init__(self) -> None:
        self.waiting: deque[tuple[Task, Future[Any]]] = deque()
        self.done: list[Task] = []
        self.most = 0

    def submit(self, fn: Any, /, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((fn, future))
        self.most = max(self.most, len(self.waiting))
        return future

    def run(self) -> None:
        while self.waiting:
            task, future = self.waiting.popleft()
            self.done.append(task)
            if task.step is TaskStep.RUN:
                record = record_of(task.cases[0], took_s={"candidate": 1.0})
                future.set_result(CaseResult(record=record, pictures={}))
            else:
                future.set_result({"onnx": 3.0})


def copies(number: int) -> list[Case]:
    """Return the cases of one component, and as many others as are wanted."""
    some = [case for case in DIGITS.cases if case.subject == "vae_decoder"]
    return [
        replace(case, component=replace(case.component, name=f"copy{at}"))
        for at in range(number)
        for case in some
    ]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def elsewhere(nodes: Nodes) -> Elsewhere:
    return Elsewhere(executor=nodes, place=PLACE)


def test_what_takes_longest_begins_second_and_not_last(nodes, elsewhere):
    names = ("text_encoder", "vae_decoder", "unet")

    elsewhere.start(one for one in DIGITS.cases if one.subject in names)
    nodes.run()

    made = [one.cases[0].subject for one in nodes.done if one.step.makes]
    assert list(dict.fromkeys(made)) == ["text_encoder", "unet", "vae_decoder"]


def test_a_cluster_has_few_tasks_at_once_and_does_all(nodes, elsewhere):
    cases = copies(20)

    records = elsewhere.start(cases)
    nodes.run()

    assert nodes.most <= 2 * WIDTH
    assert [one.result().case for one in records] == [case.id for case in cases]


def test_a_record_is_waited_for_though_others_come_before_it(nodes, elsewhere):
    records = elsewhere.start(copies(2))
    last = records[-1]

    with pytest.raises(TimeoutError):
        last.result(timeout=0.01)
    nodes.run()

    assert last in list(as_completed(records))


def test_a_case_that_waits_keeps_less_than_a_kibibyte(nodes, elsewhere):
    elsewhere.start(copies(1))  # imports and caches
    cases = copies(100)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    records = elsewhere.start(cases)

    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / len(records) < 1024
    assert nodes.waiting


def pipelines(name="text2img-euler"):
    return [case for case in DIGITS.pipeline_cases if case.subject == name]


def exports(nodes):
    """The graphs that each task has made."""
    return [
        graph
        for task in nodes.done
        if task.step in {TaskStep.PREPARE, TaskStep.EXPORT}
        and isinstance(task.cases[0], Case)
        for graph in set().union(*(graphs_of(one, one.samples) for one in task.cases))
    ]


@pytest.mark.parametrize("components", [(), ("unet", "text_encoder", "vae_decoder")])
def test_what_pipelines_deploy_is_exported_by_one_task_before_they_run(
    nodes, elsewhere, components
):
    cases = [case for case in DIGITS.cases if case.subject in components]
    drawn = [*pipelines(), *pipelines("text2img-eta")]

    elsewhere.start([*cases, *drawn])
    nodes.run()

    made = exports(nodes)
    assert len(made) == len(set(made))
    for at, task in enumerate(nodes.done):
        if task.step is TaskStep.RUN and task.cases[0] in drawn:
            before = Nodes()
            before.done = nodes.done[:at]
            roles = [role for _, role in task.cases[0].roles if role is not None]
            assert {graphs_of(one, one.samples)[0] for one in roles} <= {
                *exports(before)
            }


def test_the_first_record_has_the_seconds_of_what_was_made_ahead(nodes, elsewhere):
    records = elsewhere.start([*copies(1), *pipelines()])
    nodes.run()

    took = [record.result().took_s for record in records]
    alone = {"candidate": 1.0}
    drawn = len(pipelines())
    assert took[0] == {"onnx": 3.0, "candidate": 1.0}
    assert took[1:-drawn] == [alone] * (len(took) - drawn - 1)
    # The drawing, and three exports that no component has.
    assert took[-drawn]["onnx"] == 12.0
    assert took[1 - drawn :] == [alone] * (drawn - 1)


def on(case, where, threads):
    """The case with PyTorch and the runtime on some devices."""
    return replace(
        case,
        device=replace(case.device, device=where[1], threads=threads[1]),
        reference=replace(case.reference, device=where[0], threads=threads[0]),
    )


@pytest.mark.parametrize(
    ("step", "threads", "gpus"),
    [
        (TaskStep.PREPARE, 3, 1),
        (TaskStep.EXPORT, 3, 1),
        (TaskStep.RUN, 1, 0),
        (TaskStep.ALL, 3, 1),
    ],
)
def test_a_step_takes_the_devices_that_it_uses(step, threads, gpus):
    (case, *_) = copies(1)

    found = takes([on(case, ("cuda", "cpu"), (3, 1))], step)

    assert (found.threads, found.gpus) == (threads, gpus)
    assert found.memory_bytes > 0


@pytest.mark.parametrize(("step", "gpus"), [(TaskStep.PREPARE, 0), (TaskStep.RUN, 1)])
def test_a_pipeline_takes_the_devices_of_its_files(step, gpus):
    (case, *_) = pipelines()
    roles = [
        (name, role and on(role, ("cpu", "cuda"), (2, 2))) for name, role in case.roles
    ]

    found = takes([replace(case, roles=tuple(roles))], step)

    assert found.gpus == gpus


def test_a_damaged_checkpoint_has_no_forecast_and_no_error(tmp_path):
    (case, *_) = copies(1)
    source = replace(case.component.source, path=tmp_path)
    (tmp_path / "vae").mkdir()
    (tmp_path / "vae" / "config.json").write_text("{")

    damaged = replace(case, component=replace(case.component, source=source))

    assert takes([damaged], TaskStep.RUN) == Takes(threads=case.device.threads)


def test_work_on_a_node_has_its_engine_and_name_and_no_task_beside_it(tmp_path):
    place = replace(PLACE, store=str(tmp_path), read_only=False)
    task = NodeTask(place=place, cases=(), work=lambda engine, node: (engine, node))

    engine, name = task()

    assert task.alone
    assert (engine.store.root, name) == (tmp_path, node_name())
