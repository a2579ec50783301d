"""What the connection to a target costs, with every value watched.

    python benchmarks/bench_target.py [--suite DIR] [--store DIR] [--rounds N] [--write]

A Python of this machine is the target, so both sides do the same arithmetic: what is
measured is the agent's start, the connection, and a second process. The sides take
turns in one run. Memory is the largest sum over all processes of a side, sampled.
To reach: at most 1.3 times the time and 0.5 GiB more. `--suite fixtures/digits` takes a
minute; fixtures/sd15 is the suite for which the figure is kept.

A target is asked each time how its file keeps the component's contract, since what
stands behind a command may change. Here the store keeps the answers. So this side is
asked too, and is run once more with the store's answers for a second ratio.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import figures
import psutil

from harness.core.case import Case, Target
from harness.core.entry import Entry
from harness.core.record import LAYERS
from harness.core.runtime import runtime
from harness.engine.engine import Engine
from harness.engine.store import Store
from harness.engine.worker_pool import end_kept
from harness.suite.schema import Limits
from harness.suite.suite import load_suite

FIXTURES = Path(__file__).parents[1] / "fixtures"
BACKENDS = ("onnxruntime", "mnn")
TIMEOUT_S = 3600.0
SAMPLED_S = 0.02


class Asking(Store):
    """A store without answers about contracts, so that each run asks for them."""

    def find(self, kind: str, key: Mapping[str, object]) -> Entry | None:
        """Return the entry, unless it is an answer."""
        return None if kind == "contract" else super().find(kind, key)


class PeakMemory(threading.Thread):
    """Samples the memory of this process's descendants; a context manager."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._done = threading.Event()

    def run(self) -> None:
        """Sample until the block ends."""
        me = psutil.Process()
        while not self._done.wait(SAMPLED_S):
            total = 0
            for child in me.children(recursive=True):
                with suppress(psutil.Error):
                    total += child.memory_info().rss - child.memory_info().shared
            self.peak_bytes = max(self.peak_bytes, total)

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        self.join()


def measured(store: Store, case: Case) -> tuple[float, int, int]:
    """Return seconds, peak bytes and compared values of one case."""
    with PeakMemory() as memory:
        end_kept()  # as a command of its own would run it
        start = time.perf_counter()
        with Engine(store, Limits(timeout_s=TIMEOUT_S, jobs=1)) as engine:
            record = engine.run(case)
        took_s = time.perf_counter() - start
    if record.failure is not None:
        raise SystemExit(record.failure.message)
    return took_s, memory.peak_bytes, sum(row.what == LAYERS for row in record.rows)


def main() -> None:
    """Measure and print."""
    parser = figures.parser(__doc__)
    parser.add_argument("--suite", type=Path, default=FIXTURES / "sd15")
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    suite = load_suite(arguments.suite)
    target = Target(name="python", command=(sys.executable,))
    told = []
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(root=arguments.store or Path(scratch))
        asking = Asking(root=store.root)
        for backend in BACKENDS:
            (case,) = suite.select([f"unet/{backend}/fp32"])
            watched = tuple(sample for sample in case.samples if sample.layers)[:1]
            here = replace(case, samples=watched)
            there = replace(
                here, device=replace(here.device, target=target), where="@python"
            )
            measured(store, here)  # what the rounds need is in the store then
            rounds = [
                (
                    measured(asking, here),
                    measured(asking, there),
                    measured(store, here),
                )
                for _ in range(arguments.rounds)
            ]
            ratios = sorted(far[0] / near[0] for near, far, _ in rounds)
            known = statistics.median(far[0] / kept[0] for _, far, kept in rounds)
            near_bytes, far_bytes, _ = (
                max(side[1] for side in sides) for sides in zip(*rounds, strict=True)
            )
            told.append(
                f"{runtime(backend).title}: {statistics.median(ratios):.2f} × the time "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds; "
                f"{known:.2f} × where the store has the answers of this side), "
                f"{(far_bytes - near_bytes) / 2**30:+.2f} GiB "
                f"({rounds[0][1][2]} values)"
            )
            print(told[-1])
    if arguments.write:
        figures.keep(
            "target",
            script=__file__,
            what=f"the UNet of fixtures/{suite.name}, every value watched, on a local "
            "Python as a target, against the same in the harness's own process",
            measured="; ".join(told),
            values={"told": told},
            code=["core", "engine", "measure", "runtimes"],
        )


if __name__ == "__main__":
    main()
