"""How well a run fills a cluster, and what its head process keeps, in simulated time.

Real cases go through the real `harness.engine.cluster.Elsewhere`. The executor under it
is a simulation: each node does one task at a time, and a clock jumps from one end of a
task to the next. A task takes as long as the same step took in a run of digits, which
is made now unless one is named. The components of that run are repeated under other
names until there are enough cases.

    python benchmarks/bench_fleet.py [--run reports/runs/RUN] [--write]

The makespan is compared with the larger of two times that no order of tasks can beat:
that of the longest task, and all work divided by the nodes.
"""

from __future__ import annotations

import gc
import heapq
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import figures

from harness.core.case import Case
from harness.engine.cluster import CaseResult, Elsewhere, Place, Task
from harness.engine.engine import record_of
from harness.engine.run_folder import load_report
from harness.suite.suite import load_suite

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
SHARED = ("export", "reference")
"""The steps that the cases of one export share."""

COPY = "-copy"
KIB = 1024


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
            future.set_result(None if task.prepares else result_of(task))

    def _took_s(self, task: Task) -> float:
        steps = [self._seconds[original(case.id)] for case in task.cases]
        if task.prepares:
            return max(sum(one.get(step, 0.0) for step in SHARED) for one in steps)
        return sum(s for step, s in steps[0].items() if step not in SHARED)


def run_digits(runs: Path) -> Path:
    """Run the components of digits with an empty store; return the run's folder."""
    words = ("run", "unet", "controlnet", "text_encoder", "vae_encoder", "vae_decoder")
    command = [sys.executable, "-m", "harness", *words, "--suite", str(DIGITS)]
    options = ["--runs", str(runs), "--store", str(runs / "store")]
    # A case that fails has times too, so its exit code says nothing here.
    subprocess.run([*command, *options], check=False, stdout=subprocess.DEVNULL)
    return next(runs.glob("*/report.json")).parent


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
    cases: Sequence[Case], nodes: Nodes, place: Place
) -> tuple[set[str], int, int]:
    """Run cases on nodes.

    Returns:
        Ids of the cases whose records came, and the bytes that the engine kept before
        the first task ended and after the last one.

    """
    done: set[str] = set()
    gc.collect()
    tracemalloc.start()
    with Elsewhere(executor=nodes, place=place) as engine:
        for record in engine.start(cases):
            # Taken at once, as a run does that writes it to its folder.
            record.add_done_callback(lambda came: done.add(came.result().case))
        del record
        started, _ = tracemalloc.get_traced_memory()
        nodes.run()
    gc.collect()
    ended, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return done, started, ended


def main() -> int:
    """Print the makespan and the state; return 1 where a case is lost."""
    parser = figures.parser(__doc__)
    parser.add_argument("--run", type=Path, help="a run of digits")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=100)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = given.run or run_digits(Path(folder))
        report = load_report(path.parent, path.name)
    took = {one.case: one.took_s for one in report.records.values()}
    suite = load_suite(DIGITS)
    known = [case for case in suite.cases if took.get(case.id)]
    if not known:
        sys.exit(f"{path} has no times of digits' components.")
    cases = list(islice(copies(known, given.cases), given.cases))
    place = Place(store="", read_only=True, limits=suite.limits, mnn_convert=None)
    nodes = Nodes(given.nodes, took)
    spread(cases[: len(known)], Nodes(given.nodes, took), place)  # imports and caches
    done, *kept = spread(cases, nodes, place)
    waiting, ended = (size_bytes / len(cases) for size_bytes in kept)
    least_s = max(nodes.longest_s, nodes.work_s / given.nodes)
    ratio = nodes.now_s / least_s
    measured = (
        f"makespan {ratio:.2f} × the least possible ({nodes.now_s:.0f} s of "
        f"{least_s:.0f} s); {waiting / KIB:.1f} KiB a case that waits, "
        f"{ended / KIB:.1f} KiB afterwards"
    )
    print(f"{len(cases):,} cases on {given.nodes} nodes: {measured}")
    if given.write:
        figures.keep(
            "fleet",
            script=__file__,
            what=f"{len(cases):,} cases on {given.nodes} simulated nodes: makespan, "
            "and what the engine keeps in the head process",
            measured=measured,
            values={"ratio": ratio, "waiting": waiting, "ended": ended},
            code=["engine"],
        )
    return int(done != {case.id for case in cases})


if __name__ == "__main__":
    sys.exit(main())
