"""Full-size Stable Diffusion 1.5 UNet: what watching every value costs.

    python benchmarks/bench_full_size.py [--store DIR] [--rounds N] [--write]

*Bare* is the work nobody can avoid: load and run once in PyTorch, in ONNX Runtime and
in MNN, each in a process of its own. *Parity* is both runtimes held against the
reference, all values, with a warm store. They are interleaved in one run.
To reach: parity at most 0.9 times bare, and no process above the bare peak memory of
its runtime plus 0.5 GiB. The first run makes the store: about 5 minutes and 14 GB.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import figures
from bare import bare_mnn, bare_onnxruntime, bare_pytorch

from harness.core.case import Case
from harness.core.groups import sample_groups
from harness.core.record import LAYERS
from harness.core.runtime import runtime
from harness.engine import export_files, keys, tasks
from harness.engine.engine import Engine
from harness.engine.host import Host
from harness.engine.preload import preload
from harness.engine.store import Store
from harness.engine.worker_pool import end_kept
from harness.suite.schema import Limits
from harness.suite.suite import load_suite

TIMEOUT_S = 3600.0
SD15 = Path(__file__).parents[1] / "fixtures" / "sd15"
BACKENDS = ("onnxruntime", "mnn")


def bare(store: Store, case: Case) -> dict[str, tuple[float, int]]:
    """Return seconds and peak bytes of each runtime's bare work."""
    component = case.component
    (group,) = sample_groups(case, case.samples)
    onnx = tasks.find_graph(store, case, group)
    inputs = tasks.INPUTS.find(store, keys.whole(component), case.samples[0])
    assert onnx is not None
    deployed = tasks.DEPLOYED.of(kind="mnn")
    mnn = deployed.find(store, case.variant, onnx, keys.Native(None), ())
    assert mnn is not None
    jobs = {
        "pytorch": ("torch", bare_pytorch, (component, inputs)),
        "onnxruntime": (
            "onnxruntime",
            bare_onnxruntime,
            (onnx.file(export_files.MODEL), component, inputs),
        ),
        "mnn": ("mnn", bare_mnn, (mnn.file(runtime("mnn").model), component, inputs)),
    }
    measured = {}
    for name, (host_name, function, arguments) in jobs.items():
        start = time.perf_counter()
        with Host(host_name, preload(host_name)) as host:
            result = host.run(function, *arguments, timeout_s=TIMEOUT_S, label=name)
        measured[name] = (time.perf_counter() - start, result.peak_bytes)
    return measured


def parity(store: Store, cases: dict[str, Case]) -> dict[str, tuple[float, int, int]]:
    """Return seconds, peak bytes and compared values of each runtime's case."""
    measured = {}
    for name, case in cases.items():
        end_kept()  # as a command of its own would run it
        start = time.perf_counter()
        with Engine(store, Limits(timeout_s=TIMEOUT_S, jobs=1)) as engine:
            record = engine.run(case)
        took_s = time.perf_counter() - start
        if record.failure is not None:
            raise SystemExit(record.failure.message)
        values = sum(row.what == LAYERS for row in record.rows)
        measured[name] = (took_s, record.peak_bytes, values)
    return measured


def main() -> None:
    """Measure and print."""
    parser = figures.parser(__doc__)
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    suite = load_suite(SD15)
    cases = {}
    for backend in BACKENDS:
        (case,) = suite.select([f"unet/{backend}/fp32"])
        watched = tuple(sample for sample in case.samples if sample.layers)
        cases[backend] = replace(case, samples=watched[:1])
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(root=arguments.store or Path(scratch))
        with Engine(store, Limits(timeout_s=TIMEOUT_S, jobs=1)) as engine:
            for record in engine.start(cases.values()):
                record.result()  # what the rounds need is in the store then
        rounds = [
            (bare(store, cases["mnn"]), parity(store, cases))
            for _ in range(arguments.rounds)
        ]
    show(rounds)
    if arguments.write:
        keep(rounds)


def ratios_of(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[float]:
    """Return parity over bare of each round, in ascending order."""
    return sorted(
        sum(row[0] for row in seen.values()) / sum(row[0] for row in alone.values())
        for alone, seen in rounds
    )


def keep(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Keep the ratio and how much more memory each runtime needs."""
    ratios = ratios_of(rounds)
    more = []
    for name in BACKENDS:
        alone, seen = (
            max(side[name][1] for side in sides) for sides in zip(*rounds, strict=True)
        )
        values = rounds[0][1][name][2]
        gib = (seen - alone) / 2**30
        more.append(f"{gib:+.2f} GiB in {runtime(name).title} ({values} values)")
    figures.keep(
        "full_size",
        script=__file__,
        what="full-size SD 1.5 UNet, every value in both runtimes with a warm store, "
        "against loading and running it once in each of PyTorch, ONNX Runtime and MNN",
        measured=f"{statistics.median(ratios):.2f} × the time ({ratios[0]:.2f} to "
        f"{ratios[-1]:.2f} in {len(ratios)} rounds); {', '.join(more)}",
        values={"ratios": ratios, "rounds": rounds},
        code=["core", "engine", "measure", "runtimes"],
    )


def show(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Print each runtime's median, and the ratio of the sums round by round."""
    gib = 2**30
    for name in ("pytorch", *BACKENDS):
        seconds = statistics.median(alone[name][0] for alone, _ in rounds)
        peak = max(alone[name][1] for alone, _ in rounds) / gib
        line = f"{name:<12} bare {seconds:6.1f} s {peak:5.2f} GiB"
        if name in BACKENDS:
            watched = statistics.median(seen[name][0] for _, seen in rounds)
            top = max(seen[name][1] for _, seen in rounds) / gib
            values = rounds[0][1][name][2]
            line += (
                f"   parity {watched:6.1f} s {top:5.2f} GiB "
                f"({top - peak:+.2f})  {values} values"
            )
        print(line)
    ratios = ratios_of(rounds)
    print(
        f"parity / bare {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)"
    )


if __name__ == "__main__":
    main()
