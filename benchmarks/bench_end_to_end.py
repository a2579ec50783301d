"""An end-to-end case: what comparing and recording cost beside drawing.

    python benchmarks/bench_end_to_end.py [--store DIR] [--rounds N] [--steps N]
                                          [--write]

*Harness* is one case from a cold start, PyTorch's drawing included, in child processes.
*Bare* draws the same pipelines in one process, with nobody looking: PyTorch in float32
and twice in float64, the candidate free-running and teacher-forced, and every exchange
of roles. The same sessions sit in the same roles; nothing is recorded, remembered or
compared. To reach: harness at most 1.15 times bare, interleaved in one run.

The third figure is what drawing only with PyTorch and with the candidate takes: what
somebody who looks at two pictures pays.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import figures
from bare import bare_drawings

from harness.core.runtime import runtime
from harness.engine.artifacts import Artifacts, native_converter
from harness.engine.engine import Engine
from harness.engine.host import Host
from harness.engine.preload import preload
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool, end_kept
from harness.plugins.pipelines.case import PipelineCase, PipelineRun
from harness.plugins.pipelines.stages import draw, role_file
from harness.suite.schema import Limits
from harness.suite.suite import load_suite

TIMEOUT_S = 3600.0
DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
BACKENDS = ("onnxruntime", "mnn")


def staged(store: Store, chain: PipelineCase) -> PipelineRun:
    """Return what a bare drawing needs, making what is missing."""
    worker_pool = WorkerPool(TIMEOUT_S)
    try:
        artifacts = Artifacts(store, worker_pool, native_converter(None))
        inputs, reference = draw(artifacts, chain.pipeline, chain.device)
        role_files = tuple(
            role_file(artifacts, case, role) for role, case in chain.roles if case
        )
    finally:
        worker_pool.close()
    return PipelineRun(
        case=chain.id,
        pipeline=chain.pipeline,
        role_files=role_files,
        inputs=inputs,
        reference=reference,
        device=chain.device,
        folder=store.root,
        store=store.root,
    )


def bare(given: PipelineRun, *, all_of_them: bool) -> float:
    """Return seconds of the drawings alone, a child process included."""
    start = time.perf_counter()
    with Host("bare", preload("torch")) as host:
        host.run(
            bare_drawings,
            given,
            all_of_them=all_of_them,
            timeout_s=TIMEOUT_S,
            label="bare",
        )
    return time.perf_counter() - start


def harness(
    store: Store, chain: PipelineCase, given: PipelineRun, folder: Path
) -> float:
    """Return seconds of the case, PyTorch's drawing not in the store."""
    store.remove(given.reference)
    end_kept()  # as a command of its own would run it
    start = time.perf_counter()
    with Engine(store, Limits(timeout_s=TIMEOUT_S, jobs=1), pictures=folder) as engine:
        record = engine.run(chain)
    took_s = time.perf_counter() - start
    if record.failure is not None:
        raise SystemExit(record.failure.message)
    return took_s


def main() -> None:
    """Measure and print."""
    parser = figures.parser(__doc__)
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=25)
    arguments = parser.parse_args()
    suite = load_suite(DIGITS)
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(root=arguments.store or Path(scratch))
        for backend in BACKENDS:
            (chain,) = suite.select([f"text2img/{backend}/fp32"])
            assert isinstance(chain, PipelineCase)
            pipeline = replace(chain.pipeline, steps=arguments.steps)
            chain = replace(chain, pipeline=pipeline)
            rounds = []
            for _ in range(arguments.rounds):
                given = staged(store, chain)
                alone = bare(given, all_of_them=True)
                two = bare(given, all_of_them=False)
                whole = harness(store, chain, given, Path(scratch))
                rounds.append((whole / alone, whole, alone, two))
            ratios = [ratio for ratio, *_ in rounds]
            over_two = statistics.median(each[1] / each[3] for each in rounds)
            found[backend] = {"ratios": ratios, "over_two_pictures": over_two}
            whole, alone, two = (
                statistics.median(each[n] for each in rounds) for n in (1, 2, 3)
            )
            print(
                f"{backend:<12} harness {whole:5.1f} s, bare {alone:5.1f} s: "
                f"{statistics.median(ratios):.2f} times "
                f"({min(ratios):.2f} to {max(ratios):.2f}); two pictures {two:5.1f} s"
            )
    if arguments.write:
        figures.keep(
            "end_to_end",
            script=__file__,
            what=f"one end-to-end case (digits, {arguments.steps} steps, PyTorch's "
            "drawing included), against the same drawings without comparison: three "
            "by PyTorch, two by the candidate, and those with roles exchanged",
            measured="; ".join(
                f"{runtime(name).title}: {statistics.median(one['ratios']):.2f} × the "
                f"time ({min(one['ratios']):.2f} to {max(one['ratios']):.2f}), "
                f"{one['over_two_pictures']:.1f} × the two pictures alone"
                for name, one in found.items()
            ),
            values=found,
            code=["core", "engine", "measure", "runtimes"],
        )


if __name__ == "__main__":
    main()
