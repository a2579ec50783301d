"""How far the forecast of memory is from what stages really take.

Every stage of some components or pipelines is run from nothing, in a store of its own.
Its largest resident set is compared with `harness.suite.forecast` and
`harness.engine.needs`.
A forecast must not be below what is taken by more than a little, nor so far above that
it refuses what fits. Of a pipeline it is the one with every network loaded.

What is taken counts pages of files that are mapped, above all while exporting; a
forecast does not, as such pages make room where it is wanted.

    python benchmarks/bench_forecast.py --write                  # digits, minutes
    python benchmarks/bench_forecast.py fixtures/sd15 --only vae_decoder
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import figures

from harness.core.case import Case
from harness.core.groups import sample_groups
from harness.core.memory import GIB, Need
from harness.core.outcome import Outcome
from harness.engine import tasks
from harness.engine.artifacts import Artifacts
from harness.engine.deployed import Deployed
from harness.engine.engine import Engine
from harness.engine.export_files import PROBES
from harness.engine.store import Store
from harness.engine.worker import JobResult
from harness.engine.worker_pool import WorkerPool
from harness.plugins.pipelines.case import PipelineCase
from harness.plugins.pipelines.needs import pipeline_need
from harness.plugins.pipelines.stages import draw
from harness.suite.schema import Limits
from harness.suite.suite import Suite, load_suite

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
LIMIT_S = 3600.0


class Watched(WorkerPool):
    """A worker pool that keeps what each stage was forecast to take, and took."""

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self.seen: list[tuple[Need, int]] = []

    def job(self, *arguments: Any, need: Need | None = None, **words: Any) -> JobResult:
        """Run a stage, and keep its peak."""
        result = super().job(*arguments, need=need, **words)
        if need is not None:
            self.seen.append((need, result.peak_bytes))
        return result


def measured(suite: Suite, only: set[str]) -> Iterator[tuple[str, Need, int]]:
    """Take cases through every stage, and yield their id, forecast and peak.

    What cases share is made for the first of them.
    """
    cases = suite.tested
    for name in dict.fromkeys(case.subject for case in cases):
        if only and name not in only:
            continue
        with TemporaryDirectory() as folder:
            for case in (case for case in cases if case.subject == name):
                of = drawn if isinstance(case, PipelineCase) else taken
                for need, took in of(case, Path(folder)):
                    yield case.id, need, took


def taken(case: Case, root: Path) -> list[tuple[Need, int]]:
    """Take a case through the stages whose artifacts are not there yet."""
    worker_pool = Watched(LIMIT_S, memory_gib=0)
    artifacts = Artifacts(Store(root=root), worker_pool, None)
    prepared = artifacts.prepare(case, case.samples)
    deployed = []
    for group in sample_groups(case, case.samples):
        graph = artifacts.graph(case, group)
        artifact, model = artifacts.deploy(case, graph)
        file = Deployed(
            artifact=artifact,
            model=model,
            probes=graph.file(PROBES),
            readings=tuple(prepared[sample] for sample in group.samples),
        )
        deployed.append(file)
    worker_pool.job(
        case.backend,
        tasks.RUN_CANDIDATE,
        case.id,
        case.component,
        case.device,
        case.backend,
        tuple(deployed),
        subject=case.id,
        label=case.id,
        failure=Outcome.RUN,
        need=artifacts.need(case, case.backend),
    )
    worker_pool.close()
    return worker_pool.seen


def drawn(chain: PipelineCase, root: Path) -> list[tuple[Need, int]]:
    """Take an end-to-end case through the stages whose artifacts are not there yet.

    What takes its roles is made unwatched: components of their own show that.
    """
    worker_pool = Watched(LIMIT_S, memory_gib=0)
    artifacts = Artifacts(Store(root=root), worker_pool, None)
    draw(artifacts, chain.pipeline, chain.device)
    with Engine(artifacts.store, Limits(timeout_s=LIMIT_S, memory_gib=0)) as engine:
        record = engine.run(chain)
    need = pipeline_need(chain, artifacts.weights)
    worker_pool.close()
    return [*worker_pool.seen, (need, record.peak_bytes)] if need else worker_pool.seen


def main() -> None:
    """Print a line for each stage."""
    parser = figures.parser(__doc__)
    parser.add_argument("suite", nargs="?", type=Path, default=DIGITS)
    parser.add_argument("--only", nargs="*", default=(), help="components")
    given = parser.parse_args()
    ratios = []
    print(f"{'forecast':>9}{'took':>8}{'ratio':>7}   stage, GiB")
    for case, need, took in measured(load_suite(given.suite), set(given.only)):
        size_bytes = max(need.size_bytes, need.most_bytes)
        ratio = size_bytes / took
        sizes = f"{size_bytes / GIB:9.2f}{took / GIB:8.2f}{ratio:7.2f}"
        print(f"{sizes}   {case}: {need.stage}", flush=True)
        ratios.append(ratio)
    if given.write:
        figures.keep(
            "forecast",
            script=__file__,
            what=f"memory that stages of {given.suite.name} were forecast to take, "
            "against what they took",
            measured=f"{min(ratios):.2f} to {max(ratios):.2f} × in {len(ratios)} "
            "stages",
            values={"ratios": ratios},
            code=["core", "engine", "runtimes", "suite"],
        )


if __name__ == "__main__":
    main()
