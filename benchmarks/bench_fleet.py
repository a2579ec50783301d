"""How well a run fills a cluster, and what its head process keeps, in simulated time.

With `--ray`, what a real cluster on this machine costs and gains instead.

Real cases go through the real `harness.plugins.fleet.cluster.Elsewhere`. The executor
under it is a simulation: each node does one task at a time, and a clock jumps from one
end of a task to the next. A task takes as long as the same step took in a run of
digits, which is made now unless one is named. The components of that run are repeated
under other names until there are enough cases.

    python benchmarks/bench_fleet.py [--run reports/runs/RUN] [--write]
    python benchmarks/bench_fleet.py --ray [--only COMPONENT …] [--turns N] [--write]

The makespan is compared with the larger of two times that no order of tasks can beat:
that of the longest task, and all work divided by the nodes. The memory is what Python
keeps beside the cases themselves, on average while all wait and at its most.

`--ray` runs digits with real Ray clusters on this machine, which wants two quiet cores.
Each turn has six runs: here, on one node that has all cores, and both again with the
store that the first run filled; then with an empty store on one node of one core, and
on two. A node is held to its cores.
"""

from __future__ import annotations

import gc
import heapq
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import figures

from harness.core.case import Case
from harness.core.record import CaseRecord
from harness.engine.engine import record_of
from harness.engine.finished_run import load_report
from harness.engine.groups import together
from harness.engine.needs import TaskStep
from harness.plugins.fleet.cluster import CaseResult, Elsewhere, NodeSettings, Task
from harness.suite.suite import load_suite

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
SHARED = ("inputs", "onnx", "checked", "asked", "reference")
"""The kinds that the cases of one export share."""

COMPONENTS = ("unet", "controlnet", "text_encoder", "vae_encoder", "vae_decoder")
COPY = "-copy"
KIB = 1024
ON_RAY = ("--on", "ray")
MOST_KIB = 1.0
MOST_RATIO = 1.15


class Nodes(Executor):
    """Nodes of a simulated cluster.

    Args:
        width: Number of nodes.
        seconds: Seconds of each step of a case, by the case's id without its copy.

    """

    def __init__(self, width: int, seconds: Mapping[str, Mapping[str, float]]) -> None:
        self.width = width
        self.now_s = self.work_s = self.longest_s = 0.0
        self._seconds = seconds
        self._waiting: deque[tuple[Task, Future[Any]]] = deque()
        self._running: list[tuple[float, int, Task, Future[Any]]] = []
        self._numbers = count()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a task wait for a node."""
        del args, kwargs
        future: Future[Any] = Future()
        self._waiting.append((fn, future))
        return future

    def run(self) -> None:
        """Run tasks until none is left."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.width:
                task, future = self._waiting.popleft()
                took_s = self._took_s(task)
                self.work_s += took_s
                self.longest_s = max(self.longest_s, took_s)
                entry = (self.now_s + took_s, next(self._numbers), task, future)
                heapq.heappush(self._running, entry)
            self.now_s, _, task, future = heapq.heappop(self._running)
            future.set_result(result_of(task) if task.step is TaskStep.RUN else {})

    def _took_s(self, task: Task) -> float:
        steps = [self._seconds[original(case.id)] for case in task.cases]
        if task.step is not TaskStep.RUN:
            return max(sum(one.get(step, 0.0) for step in SHARED) for one in steps)
        return sum(s for step, s in steps[0].items() if step not in SHARED)


def run_digits(runs: Path) -> Path:
    """Run the components of digits with an empty store; return the run's folder."""
    parity_run(COMPONENTS, runs, str(runs / "store"))
    return next(runs.glob("*/report.json")).parent


def parity_run(
    names: Sequence[str], runs: Path, store: str, *options: str, **env: str
) -> float:
    """Run components of digits; return the seconds that it took."""
    command = [sys.executable, "-m", "harness", "run", *names, "--suite", str(DIGITS)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, "--runs", str(runs), "--store", store, *options],
        check=False,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # A case that fails has times too.
    if done.returncode not in {0, 1}:
        sys.exit(done.stdout)
    return time.perf_counter() - begin


def original(case: str) -> str:
    """Return the id of the case that a case is a copy of.

    >>> original("unet-copy7/mnn/fp32")
    'unet/mnn/fp32'
    """
    component, _, rest = case.partition("/")
    return f"{component.partition(COPY)[0]}/{rest}"


def result_of(task: Task) -> CaseResult:
    """Return a record as a node would send it, without measurements."""
    return CaseResult(record=record_of(task.cases[0]), pictures={})


def copies(cases: Sequence[Case], number: int) -> Iterator[Case]:
    """Yield cases under other names, one component after another."""
    for at in islice(count(), -(-number // len(cases))):
        for case in cases:
            name = f"{case.component.name}{COPY}{at}"
            yield replace(case, component=replace(case.component, name=name))


def spread(
    cases: Sequence[Case], nodes: Nodes, place: NodeSettings
) -> tuple[set[str], int, int, int]:
    """Run cases on nodes.

    Returns:
        Ids of the cases whose records came; and the bytes that the engine kept before
        the first task ended, at their most, and after the last task.

    """
    done: set[str] = set()
    most = 0
    gc.collect()
    tracemalloc.start()

    def take(came: Future[CaseRecord]) -> None:
        # Taken at once, as a run does that writes it to its folder.
        nonlocal most
        done.add(came.result().case)
        waiting.pop(came.result().case)
        most = max(most, tracemalloc.get_traced_memory()[0])

    with Elsewhere(executor=nodes, place=place) as engine:
        records = engine.start(cases)
        waiting = dict(zip((case.id for case in cases), records, strict=True))
        for record in records:
            record.add_done_callback(take)
        del record, records
        started, _ = tracemalloc.get_traced_memory()
        nodes.run()
    gc.collect()
    ended, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return done, started, max(most, started), ended


@contextmanager
def clusters(folder: Path, *cores: set[int]) -> Iterator[dict[str, str]]:
    """Start a cluster whose nodes have some cores each; give a run's environment."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made, ours = Cluster(), os.sched_getaffinity(0)
    try:
        for at, own in enumerate(cores):
            os.sched_setaffinity(0, own)  # which the node's processes inherit
            made.add_node(
                num_cpus=len(own),
                include_dashboard=False,
                env_vars={"XDG_CACHE_HOME": str(folder / f"node-{at}")},
            )
            os.sched_setaffinity(0, ours)
        yield {
            "RAY_ADDRESS": made.address,
            "XDG_CACHE_HOME": str(folder / "desk"),
        }
    finally:
        os.sched_setaffinity(0, ours)
        made.shutdown()


def seconds(took_s: Sequence[float]) -> str:
    """Return times as words."""
    return ", ".join(f"{one_s:.0f} s" for one_s in took_s)


def spread_of(ratios: Sequence[float]) -> str:
    """Return the median of ratios with the least and the largest."""
    middle = statistics.median(ratios)
    return f"{middle:.2f} × ({min(ratios):.2f} to {max(ratios):.2f})"


def real(names: Sequence[str], turns: int, *, write: bool) -> int:
    """Print what a cluster on this machine costs and gains; keep it if `write`."""
    cores = os.sched_getaffinity(0)
    one, two, *_ = ({core} for core in sorted(cores))
    cold, warm, gains = [], [], []
    with TemporaryDirectory() as name:
        folder = Path(name)
        # The first run of all compiles the comparison, which every later one reads.
        parity_run(names[-1:], folder / "first", str(folder / "first" / "store"))
        for turn in range(turns):
            here, there = folder / f"here-{turn}", folder / f"there-{turn}"
            here_s = [parity_run(names, here, str(here / "store")) for _ in range(2)]
            with clusters(there, cores) as env:
                there_s = [
                    parity_run(names, there, str(there / "store"), *ON_RAY, **env)
                    for _ in range(2)
                ]
            cold.append(there_s[0] / here_s[0])
            warm.append(there_s[1] / here_s[1])
            print(f"empty store, then warm: {seconds(here_s)} here", flush=True)
            print(f"empty store, then warm: {seconds(there_s)} on a node", flush=True)
            took_s = []
            for nodes in ([one], [one, two]):
                fleet = folder / f"fleet-{turn}-{len(nodes)}"
                with clusters(fleet, *nodes) as env:
                    store = f"file://{fleet}/store"
                    took_s.append(parity_run(names, fleet, store, *ON_RAY, **env))
            gains.append(took_s[0] / took_s[1])
            print(f"empty store, on one core, then two: {seconds(took_s)}", flush=True)
    measured = (
        f"one node: {spread_of(cold)} the time with an empty store, {spread_of(warm)} "
        f"with a warm one; two nodes of one core: {spread_of(gains)} as fast as one, "
        f"with an empty store ({turns} turns)"
    )
    print(measured)
    if write:
        figures.keep(
            "fleet_ray",
            script=__file__,
            what=f"`parity run --on ray` of digits ({', '.join(names)}) on a cluster "
            "of this machine, against `parity run`",
            measured=measured,
            values={"cold": cold, "warm": warm, "gains": gains},
            code=["engine"],
        )
    return 0


def main() -> int:
    """Print the figures; return 1 where a case is lost or a figure is too large."""
    parser = figures.parser(__doc__)
    parser.add_argument("--run", type=Path, help="a run of digits")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--ray", action="store_true", help="measure real clusters")
    parser.add_argument("--only", nargs="+", default=COMPONENTS, help="with --ray")
    parser.add_argument("--turns", type=int, default=3, help="with --ray")
    given = parser.parse_args()
    if given.ray:
        return real(given.only, given.turns, write=given.write)
    with TemporaryDirectory() as folder:
        path = given.run or run_digits(Path(folder))
        report = load_report(path.parent, path.name)
    took = {one.case: one.took_s for one in report.records.values()}
    suite = load_suite(DIGITS)
    known = [case for case in suite.cases if took.get(case.id)]
    if not known:
        sys.exit(f"{path} has no times of digits' components.")
    for group in together((case, Future()) for case in known):
        if not any(kind in took[case.id] for case, _ in group for kind in SHARED):
            sys.exit(
                f"{path} has no time of the export of {group[0][0].id}; give a run "
                "with an empty store, or none."
            )
    cases = list(islice(copies(known, given.cases), given.cases))
    place = NodeSettings(
        store="", read_only=True, limits=suite.limits, mnn_convert=None
    )
    nodes = Nodes(given.nodes, took)
    spread(cases[: len(known)], Nodes(given.nodes, took), place)  # imports and caches
    done, *kept = spread(cases, nodes, place)
    waiting, most, ended = (size_bytes / len(cases) / KIB for size_bytes in kept)
    least_s = max(nodes.longest_s, nodes.work_s / given.nodes)
    ratio = nodes.now_s / least_s
    measured = (
        f"makespan {ratio:.2f} × the least possible ({nodes.now_s:.0f} s of "
        f"{least_s:.0f} s); {waiting:.1f} KiB a case while all wait, "
        f"{most:.1f} KiB at its most, {ended:.1f} KiB afterwards"
    )
    print(f"{len(cases):,} cases on {given.nodes} nodes: {measured}")
    if given.write:
        figures.keep(
            "fleet",
            script=__file__,
            what=f"{len(cases):,} cases on {given.nodes} simulated nodes: makespan, "
            "and what the engine keeps in the head process",
            measured=measured,
            values={
                "ratio": ratio,
                "waiting_kib": waiting,
                "most_kib": most,
                "ended_kib": ended,
            },
            code=["engine"],
        )
    kept_well = most <= MOST_KIB and ratio <= MOST_RATIO
    return int(done != {case.id for case in cases} or not kept_well)


if __name__ == "__main__":
    sys.exit(main())
