"""Layer-by-layer parity of the digits UNet, against PyTorch's own verification.

    python benchmarks/bench_layers.py [--store DIR] [--write]

Both compare the same program on the same inputs in ONNX Runtime, value by value:
the harness with a warm store, and ``torch.onnx.verification.verify_onnx_program`` with
``compare_intermediates=True``. Ours is timed from a cold start of its child processes.
To reach: at least 100 times faster, comparing at least as many values.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import figures
from bare import verify

from harness.core.case import Case
from harness.engine.engine import Engine
from harness.engine.host import Host
from harness.engine.store import Store
from harness.engine.worker_pool import end_kept
from harness.suite.schema import Limits
from harness.suite.suite import load_suite

ROUNDS = 3
TIMEOUT_S = 3600.0
DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"


def ours(store: Store, case: Case) -> tuple[float, int]:
    """Return seconds and values of one warm run, child processes started for it."""
    end_kept()  # as a command of its own would run it
    start = time.perf_counter()
    with Engine(store, Limits(timeout_s=TIMEOUT_S, jobs=1)) as engine:
        record = engine.run(case)
    took_s = time.perf_counter() - start
    if record.failure is not None:
        raise SystemExit(record.failure.message)
    return took_s, len(record.rows)


def main() -> None:
    """Measure and print."""
    parser = figures.parser(__doc__)
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    arguments = parser.parse_args()
    (case,) = load_suite(DIGITS).select(["unet/onnxruntime/fp32"])
    two = next(sample for sample in case.samples if dict(sample.shapes)["batch"] == 2)
    case = replace(case, samples=(replace(two, layers=True),))
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(root=arguments.store or Path(scratch))
        ours(store, case)  # makes the store warm
        timed = [ours(store, case) for _ in range(ROUNDS)]
    with Host("torch", ("diffusers", "transformers", "onnxscript")) as host:
        result = host.run(
            verify,
            case.component,
            case.export,
            two,
            timeout_s=TIMEOUT_S,
            label="verify_onnx_program",
        )
    theirs_s, theirs_values = result.value  # type: ignore[misc]  # what `verify` returns
    seconds = sorted(took_s for took_s, _ in timed)
    values = timed[0][1]
    if values < theirs_values:
        sys.exit(f"{values} values are too few: theirs are {theirs_values}.")
    ratios = [theirs_s / took_s for took_s in seconds]
    print(f"verify_onnx_program  {theirs_s:8.1f} s  {theirs_values:5} values")
    print(
        f"parity, warm store   {statistics.median(seconds):8.2f} s  {values:5} values"
        f"   ({seconds[0]:.2f} to {seconds[-1]:.2f} s in {ROUNDS} runs)"
    )
    print(
        f"faster by            {statistics.median(ratios):8.0f} x  "
        f"({min(ratios):.0f} to {max(ratios):.0f})"
    )
    if arguments.write:
        figures.keep(
            "layers",
            script=__file__,
            what="layer-by-layer parity of the digits UNet with a warm store, against "
            "`torch.onnx.verification` with intermediates on the same program",
            measured=f"{statistics.median(ratios):.0f} × faster "
            f"({statistics.median(seconds):.2f} s for {values} values, child processes "
            f"included, against {theirs_s:.0f} s for {theirs_values})",
            values={"ratios": ratios, "seconds": seconds, "theirs_s": theirs_s},
            code=["core", "engine", "measure", "runtimes"],
        )


if __name__ == "__main__":
    main()
