"""An executor that runs tasks on a Ray cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from harness.core.end_to_end import Tested
from harness.core.errors import ParityError, StageError, first_line
from harness.core.outcome import Outcome
from harness.core.settings import Settings
from harness.engine.executors import CaseExecutor, NodeWork, Tell
from harness.engine.needs import TaskStep, takes
from harness.engine.worker_pool import Progress
from harness.plugins.fleet.cluster import Elsewhere, NodeSettings, NodeTask, node_name
from harness.suite.schema import Limits

RAY: Final = "ray"
_POLL_S: Final = 0.3
_TELL_S: Final = 2.0
_CANCEL_S: Final = 2.0
_RETRIES: Final = 20
"""How often a task whose node is gone is tried again."""

_MISMATCH: Final = "Version mismatch"
"""Words of Ray's error about another Python or Ray, whose lines say which."""

_NOT_STARTED: Final = ("Starting Ray client server", "Proxy failed to Connect")
"""Words of Ray's errors about the process that it starts for each client. It ends at
once now and then, also on a quiet machine, and the next one stays."""


class RayExecutor(CaseExecutor):
    """Runs tasks as tasks of a Ray cluster.

    A task waits until a node has the memory, the threads and the GPU that it needs. A
    task that must be alone waits for all processors of a node, so nothing that Ray
    starts runs beside it. A task whose node is gone is tried again elsewhere.

    Args:
        address: ``ray://host:10001``, or ``ray``: the cluster of ``$RAY_ADDRESS`` or
            this machine, or else a new one on this machine.
        tell: Receives the progress of the tasks.

    Raises:
        ParityError: Ray is not installed, or there is no such cluster.

    """

    def __init__(self, address: str, tell: Tell | None = None) -> None:
        self._ray = _connected(address)
        self._tell = tell or (lambda _: None)
        self._futures: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ended: BaseException | None = None
        self._remote = self._ray.remote(max_retries=_RETRIES)(_called)
        # The board is on this process's own node, which does not end before it.
        here = _if_alive(self._ray.get_runtime_context().get_node_id())
        board = self._ray.remote(num_cpus=0, max_restarts=-1)(_Board)
        self._board = board.options(scheduling_strategy=here).remote()
        self.width = _width(self._nodes())
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  # its base says so
        """Start a task; return its result to come.

        Raises:
            ParityError: The cluster is gone.

        """
        del args, kwargs
        self._refuse()
        try:
            return self._submitted(fn)
        except Exception as error:  # Ray raises many kinds
            self._refuse()
            msg = f"the cluster takes no task: {_last_line(error)}"
            raise ParityError(msg) from error

    def engine(
        self, settings: Settings, limits: Limits, pictures: Path | None
    ) -> Elsewhere:
        """Return what runs cases on the cluster, and leaves it when it is closed."""
        place = NodeSettings.of(settings, limits)
        return Elsewhere(executor=self, place=place, pictures=pictures)

    def alone(
        self,
        settings: Settings,
        limits: Limits,
        work: NodeWork,
        cases: Sequence[Tested],
        node_number: int,
    ) -> Future[Any]:
        """Start work on cases on one node, with no task beside it; return its result.

        Raises:
            ParityError: The cluster is gone.

        """
        task = NodeTask(
            place=NodeSettings.of(settings, limits),
            cases=tuple(cases),
            takes=takes(cases, TaskStep.ALL),
            node_number=node_number,
            work=work,
        )
        return self.submit(task)

    def _submitted(self, fn: Any) -> Future[Any]:  # noqa: ANN401  # a task
        nodes = self._nodes()
        self.width = _width(nodes)  # nodes may have joined
        takes = fn.takes

        def fits(node: Mapping[str, Any]) -> tuple[bool, bool, float]:
            one = node["Resources"]
            memory_fits = one.get("memory", 0) >= takes.memory_bytes
            return one.get("GPU", 0) >= takes.gpus, memory_fits, one.get("CPU", 0)

        # What is larger than every node would wait for ever; the node itself refuses
        # what does not fit, and says why.
        most = max(map(fits, nodes), default=None)
        best = sorted((one for one in nodes if fits(one) == most), key=_name)
        node = best[fn.node_number % len(best)] if best else {"Resources": {}}
        has = node["Resources"]
        there = has.get("CPU", 0)
        options: dict[str, Any] = {
            "num_cpus": there if fn.alone else min(takes.threads, there)
        }
        if fn.alone and best:
            # It is there to be timed, and times are compared with the next time's.
            options["scheduling_strategy"] = _if_alive(node["NodeID"])
        if takes.memory_bytes:
            options["memory"] = int(min(takes.memory_bytes, has.get("memory", 0)))
        if gpus := min(takes.gpus, has.get("GPU", 0)):
            options["num_gpus"] = gpus
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._refuse()
            ref = self._remote.options(**options).remote(fn, self._board)
            self._futures[ref] = future
        return future

    def _refuse(self) -> None:
        """Raise the error that ended the cluster for this process, if one has."""
        if self._ended is not None:
            raise self._ended

    def _nodes(self) -> list[Mapping[str, Any]]:
        """Return what Ray tells of each node that is alive."""
        return [node for node in self._ray.nodes() if node["Alive"]]

    def shutdown(
        self,
        wait: bool = True,  # noqa: FBT001, FBT002  # its base says so
        *,
        cancel_futures: bool = True,
    ) -> None:
        """End the tasks that are left, and leave the cluster."""
        del wait, cancel_futures
        with self._lock:
            left = list(self._futures)
        for ref in left:
            with suppress(Exception):  # it has just ended, or its node has
                self._ray.cancel(ref, force=True)
        self._closed.set()
        self._thread.join(timeout=5.0)
        if left:
            # Ray ends this process if a task is tried again while it leaves.
            with suppress(Exception):  # the cluster may be gone
                self._ray.wait(left, num_returns=len(left), timeout=_CANCEL_S)
        self._ray.shutdown()

    def _watch(self) -> None:
        """Hand over results as they come, and tell of progress."""
        ended: BaseException = CancelledError()
        try:
            while not self._closed.wait(0.01):
                for progress in self._hand_over():
                    try:
                        self._tell(progress)
                    except Exception as error:  # noqa: BLE001  # the future raises it
                        ended = error
                        return
        except Exception as error:  # noqa: BLE001  # Ray raises many kinds
            ended = ParityError(f"the cluster is gone: {_last_line(error)}")
        finally:
            # Whoever waits for a task would otherwise wait for ever.
            self._fail(ended)

    def _hand_over(self) -> list[Progress]:
        """Hand over the results that are there; return what the tasks tell."""
        with self._lock:
            waiting = list(self._futures)
        if not waiting:
            self._closed.wait(_POLL_S / 3)
            return []
        ready, _ = self._ray.wait(waiting, timeout=_POLL_S)
        for ref in ready:
            with self._lock:
                future = self._futures.pop(ref)
            _settle(future, partial(self._ray.get, ref))
        # Progress may be lost with a node. Results may not, so they do not wait.
        with suppress(self._ray.exceptions.RayError):
            told: list[Progress] = self._ray.get(
                self._board.take.remote(), timeout=_TELL_S
            )
            return told
        return []

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._ended = error
            left = list(self._futures.values())
            if isinstance(error, ParityError):
                self._futures = {}  # no cluster is there to end them
        for future in left:
            future.set_exception(error)


def _settle(future: Future[Any], get: Callable[[], Any]) -> None:
    """Give a future its result or its error; Ray wraps errors in its own."""
    try:
        future.set_result(get())
    except Exception as error:  # noqa: BLE001  # the future raises it
        cause = getattr(error, "cause", None)
        if isinstance(cause, ParityError):
            future.set_exception(cause)
            return
        msg = f"a task on the cluster ended: {_last_line(error)}"
        future.set_exception(StageError(msg, outcome=Outcome.RUN))


def _last_line(error: BaseException) -> str:
    """Return the line of an error of Ray that says what happened."""
    return [repr(error), *str(error).strip().splitlines()][-1]


class _Board:
    """Keeps what tasks tell until it is taken; an actor of the cluster."""

    def __init__(self) -> None:
        self._told: list[Progress] = []

    def tell(self, progress: Progress) -> None:
        self._told.append(progress)

    def take(self) -> list[Progress]:
        told, self._told = self._told, []
        return told


def _width(nodes: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of processors that nodes have together."""
    return int(sum(node["Resources"].get("CPU", 0) for node in nodes)) or 1


def _name(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a node is ordered by; Ray gives it another id at each start."""
    return node["NodeManagerHostname"], node["NodeManagerAddress"], node["NodeID"]


def _if_alive(node_id: str) -> Any:  # noqa: ANN401  # Ray is not imported here
    """Return the strategy that waits for a node, and takes another if it is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=True)


def _called(task: Callable[[Tell], object], board: Any) -> object:  # noqa: ANN401  # an actor
    node = node_name()

    def tell(progress: Progress) -> None:
        # The detail of progress has the node, so that a line says who does what.
        detail = " · ".join(filter(None, (progress.detail, node)))
        worker = f"{node} {os.getpid()}"
        board.tell.remote(replace(progress, detail=detail, worker=worker))

    return task(tell)


def _connected(address: str) -> Any:  # noqa: ANN401  # a module without types
    """Return Ray, connected to a cluster.

    Raises:
        ParityError: It is not installed, there is no such cluster, or the cluster has
            another version of Python or Ray.

    """
    if find_spec("ray") is None:
        msg = '--on ray needs Ray, which is not installed; pip install "ray[client]"'
        raise ParityError(msg)
    # Ray asks for its usage report on the terminal, and this harness reports nothing.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    named = None if address == RAY else address
    init = partial(
        ray.init,
        address=named,
        log_to_driver=False,
        logging_level="ERROR",
        include_dashboard=None if named or "RAY_ADDRESS" in os.environ else False,
    )
    try:
        _once_more(init)
    except Exception as error:  # Ray raises many kinds
        where = named or os.environ.get("RAY_ADDRESS", "this machine")
        text = str(error)
        # With a server's traceback, its last line says what happened.
        why = _last_line(error) if "Traceback" in text else first_line(error)
        if _MISMATCH in text:
            why = " ".join(text.split())
        msg = f"no Ray cluster can be used at {where}: {why}"
        raise ParityError(msg) from error
    return ray


def _once_more(init: Callable[[], object]) -> None:
    """Connect to Ray, and once more where its server for this client did not start."""
    try:
        init()
    except Exception as error:
        if not any(words in str(error) for words in _NOT_STARTED):
            raise
        init()


def executor_on(where: str, tell: Tell | None) -> RayExecutor:
    """Return the cluster that a user names.

    Raises:
        ParityError: The name is no cluster's, or it cannot be reached.

    """
    if where != RAY and not where.startswith("ray://"):
        msg = f"--on takes ray, or ray://HOST:10001, and not {where!r}."
        raise ParityError(msg)
    return RayExecutor(where, tell)
