"""The plan of digits' UNet beside uniform bits, a greedy search, and MNN's own.

    python benchmarks/bench_plan.py [--runtime mnn|onnxruntime] [--within DB]
        [--conversions N] [--store DIR] [--plans N] [--pairs N] [--write]

Every file is judged by the hundred prompts of the suite; PyTorch runs the other
networks. `greedy by size` gives few bits to as many of the largest layers as the bound
allows, and more bits to the others; it bisects that number. These are 4 and 8 bits in
MNN, and 8 bits and float32 in ONNX Runtime. `auto_quant`, for MNN alone, is the
procedure of its ``auto_quant.py``: symmetric integers in blocks of 64 weights, in 8
bits, for matrix products and convolutions of one pixel, and float32 for the others.
Each of the former, in the file's order, then gets 4 bits if the largest error of the
outputs stays below 5 % of the largest value. At last it tries larger blocks. That
script calls MNN's command-line tools, so the procedure runs here on the harness's own
conversions.

With `--plans` each of several plans, for bounds around that of the table, is held to
its bound on `--pairs` pairs of prompt and seed, which its search did not see. All plans
have the same pairs. Two files are made at once, but for the plan of the table.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import figures
import numpy as np

from harness.core.case import Variant
from harness.core.errors import ParityError
from harness.core.rounding import FLOAT
from harness.core.runtime import runtime
from harness.engine.engine import Engine
from harness.engine.run import open_store
from harness.judge.tolerance import Tolerance
from harness.measure.trace import OUTPUT, open_trace
from harness.plugins.plan.place import JudgedFile, PlanSubject, place_of
from harness.plugins.plan.run import (
    MOST_CONVERSIONS,
    Found,
    Planner,
    planned_variant,
)
from harness.plugins.plan.search import bits_of
from harness.recipes import recipe_module
from harness.runtimes.pytorch.program import own_path
from harness.suite.schema import Limits
from harness.suite.suite import Suite, load_suite

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
NETWORK, PIPELINE = "unet", "hundred"
UNIFORM = {
    "mnn": ("fp32", "int8-weights", "int4-weights"),
    "onnxruntime": ("fp32", "fp16", "int8-weights"),
}
WITHIN_DB = {"mnn": 36.5, "onnxruntime": 50.0}
MANY, FEW = 8, 4
BLOCK, LARGER, RATE = 64, (256, 128), 0.05
TIMEOUT_S = 3600.0
BELOW_DB, ABOVE_DB = 6.0, 3.0
"""Bounds of the plans begin so far below that of the table, and end so far above."""
NAMES = ("planned", "unet-planned.json")
UNSEEN, OTHER_DRAW = 8, 100
"""Unseen pictures of a search, and a draw of prompts and noise that no search makes."""

Bits = dict[str, int]


@dataclass
class Way:
    """One way to get a file, and what the file is like."""

    name: str
    variant: Variant
    conversions: int
    seconds: float
    size_bytes: int = 0
    mse: float = 0.0
    worst_db: float = 0.0
    right: int = 0


class Mixtures:
    """Makes variants of the network that a test of a bound can run.

    Args:
        place: The network in float32, and where it is judged.
        folder: An empty folder for the files of the converter.

    """

    def __init__(self, place: PlanSubject, folder: Path) -> None:
        self.place, self._mixed, self._folder = place, place.mixed, folder
        self._numbers = count(1)  # several threads take them

    def uniform(self, kind: str) -> Variant:
        """Return a built-in variant."""
        return replace(self.place.case.variant, name=kind, kind=kind)

    def mixture(self, bits: Bits) -> Variant:
        """Return a variant of bits by layer, 32 for float32."""
        return self._of(importlib.import_module(self._mixed.module).plan_text(bits))

    def in_blocks(self, bits: Bits, block: int) -> Variant:
        """Return a variant for MNN in which each block of weights has a scale."""
        form = {"blockSize": block, "asymmetric": False}
        layers = [
            {"opName": name, "weight": [{"name": name, "bits": number % 32, **form}]}
            for name, number in bits.items()
        ]
        params = {"type": "QUANTIZE", "quantParams": {"layer": layers}}
        text = {"version": "0.0.0", "forGuide": True, "algo": [params]}
        return self._of(json.dumps(text))

    def _of(self, text: str) -> Variant:
        name = f"mixture-{next(self._numbers)}"
        path = self._folder / f"{name}.json"
        return planned_variant(self._mixed, self.place.case.variant, name, text, path)


def greedy(
    files: Mixtures, sizes: Bits, few: int, many: int, most: int
) -> tuple[Variant, int]:
    """Return the file in which the most of the largest layers have few bits."""
    largest = sorted(sizes, key=lambda name: -sizes[name])

    def made(count: int) -> Variant:
        lower = dict.fromkeys(largest[:count], few)
        return files.mixture(dict.fromkeys(sizes, many) | lower)

    low, high, conversions = 0, len(largest) + 1, 0
    while high - low > 1 and conversions < most:
        middle = (low + high) // 2
        conversions += 1
        if files.place.run(made(middle)).passed:
            low = middle
        else:
            high = middle
    return made(low), conversions


def auto_quant(
    files: Mixtures,
    of_one_pixel: Sequence[str],
    every: Iterable[str],
    most: int,
    rate: Callable[[Variant], float],
) -> tuple[Variant, int]:
    """Return the file that MNN's procedure ends with after some conversions."""
    bits = dict.fromkeys(every, 32) | dict.fromkeys(of_one_pixel, MANY)
    # The first conversion only writes the list of layers; the second has the blocks.
    conversions, found = 2, files.in_blocks(bits, BLOCK)
    if rate(found) > RATE:
        return found, conversions
    for name in of_one_pixel:
        if conversions == most:
            return found, conversions
        conversions += 1
        trial = files.in_blocks(bits | {name: FEW}, BLOCK)
        if rate(trial) <= RATE:
            bits[name], found = FEW, trial
    for block in LARGER:
        conversions += 1
        trial = files.in_blocks(bits, block)
        if rate(trial) < RATE:
            return trial, conversions
    return found, conversions


def rates(place: PlanSubject) -> Callable[[Variant], float]:
    """Return what tells the largest error of a file's outputs, as MNN's tool does."""
    peaks = {
        reading.sample: {
            name: float(np.abs(trace[OUTPUT + name]).max()) for name in trace.outputs
        }
        for _, readings in place.engine.references(place.case)
        for reading in readings
        for trace in [open_trace(reading.reference.path)]
    }
    return lambda variant: max(
        one.row.comparison.max_abs / peaks[one.row.sample][one.row.probe]
        for one in place.run(variant).rows
    )


def one_pixel(found: Found) -> list[str]:
    """Return the layers that MNN's tool changes, in the file's order."""
    component = found.place.case.component
    module = recipe_module(component.recipe).build(component)
    shapes = {own_path(name): one.shape[2:] for name, one in module.named_parameters()}
    return [
        name
        for layer in found.layers
        for name in layer.names
        if layer.modules and set(shapes[f"{layer.modules[0]}.weight"]) <= {1}
    ]


def judged(row: Way, hundred: PlanSubject) -> Way:
    """Fill in what the pictures of all prompts say about a file."""
    drawn: JudgedFile = hundred.run(row.variant)
    comparisons = [one.row.comparison for one in drawn.rows]
    row.size_bytes = drawn.size_bytes
    row.mse = float(np.mean([one.rms**2 for one in comparisons]))
    pictures = [one.picture for one in comparisons]
    row.worst_db = min(one.psnr_db for one in pictures)
    row.right = sum(one.expected_read == one.actual_read for one in pictures)
    return row


def decibels(mse: float) -> float:
    """Return the PSNR of a mean squared error of levels from 0 to 255."""
    return 10 * np.log10(255**2 / mse)


def table(rows: Sequence[Way]) -> list[list[str]]:
    """Return the files as a table, the head first."""
    int8 = next(row for row in rows if row.name == "int8-weights")
    least = smallest(rows)
    heads = ["UNet", "size", f"of `{least.name}`", "PSNR"]
    heads += ["error over that of `int8-weights`", "worst picture", "read right"]
    heads += ["conversions"]
    lines = [
        [
            row.name,
            f"{row.size_bytes / 2**20:.2f} MB",
            f"{row.size_bytes / least.size_bytes:.2f}",
            f"{decibels(row.mse):.1f} dB",
            f"{(row.mse / int8.mse) ** 0.5:.2f}",
            f"{row.worst_db:.1f} dB",
            str(row.right),
            str(row.conversions),
        ]
        for row in rows
    ]
    return [heads, *lines]


def smallest(rows: Sequence[Way]) -> Way:
    """Return the smallest uniform file."""
    kinds = {kind for every in UNIFORM.values() for kind in every}
    return min(
        (row for row in rows if row.name in kinds), key=lambda row: row.size_bytes
    )


def mixture_of(files: Mixtures, found: Found) -> Variant:
    """Return a plan as a variant whose file of bits is there."""
    return files.mixture(dict(bits_of(found.layers, found.bits)))


def compared(suite: Suite, place: PlanSubject, most: int) -> list[Way]:
    """Return every way to get a file, judged by all prompts."""
    backend = place.case.backend
    whole = next(
        one
        for one in suite.pipeline_cases
        if (one.subject, one.backend) == (PIPELINE, backend)
    )
    assert place.drawing is not None
    pipeline = replace(place.drawing.pipeline, prompts=whole.pipeline.prompts)
    hundred = replace(place, drawing=replace(place.drawing, pipeline=pipeline))
    plans: list[Found] = []

    def timed(name: str, make: Callable[[], tuple[Variant, int]]) -> Way:
        start = time.monotonic()
        variant, conversions = make()
        seconds = time.monotonic() - start
        way = judged(Way(name, variant, conversions, seconds), hundred)
        print(way, f"{time.monotonic() - start - seconds:.0f} s", flush=True)
        return way

    def plan() -> tuple[Variant, int]:
        plans.append(Planner(place, print).plan(*NAMES, UNSEEN))
        return mixture_of(files, plans[0]), plans[0].conversions

    with tempfile.TemporaryDirectory() as scratch:
        files = Mixtures(place, Path(scratch))
        rows = [timed("planned", plan)]
        others: dict[str, Callable[[], tuple[Variant, int]]] = {
            kind: lambda kind=kind: (files.uniform(kind), 1)
            for kind in UNIFORM[backend]
        }
        few, many, *_ = sorted({FLOAT, *place.mixed.variants.values()})
        sizes = {
            name: layer.costs[many]
            for layer in plans[0].layers
            for name in layer.names
            if few in layer.costs
        }
        others["greedy by size"] = lambda: greedy(files, sizes, few, many, most)
        if backend == "mnn":
            outputs = place_of(suite, place.engine, NETWORK, backend, what="outputs")
            layers, rate = one_pixel(plans[0]), rates(outputs)
            others["auto_quant"] = lambda: auto_quant(files, layers, sizes, most, rate)
        with ThreadPoolExecutor(place.engine.jobs) as pool:
            rows += pool.map(timed, others, others.values())
    return rows


def held(place: PlanSubject, bound: float, pairs: int) -> dict[str, float]:
    """Return how often a plan exceeds its bound on pairs that it did not see."""
    place = replace(place, bound=Tolerance(psnr_db=bound))
    try:
        found = Planner(place, print).plan(*NAMES, UNSEEN)
    except ParityError as error:
        print(f"{bound:.1f} dB: {error}", flush=True)
        return {}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        variant = mixture_of(Mixtures(place, Path(scratch)), found)
        drawn = place.unseen(pairs, OTHER_DRAW).run(variant)
    return {
        "bound_db": round(bound, 1),
        "size_bytes": drawn.size_bytes,
        "pairs": len(drawn.rows),
        "exceeded": sum(not one.verdict.passed for one in drawn.rows),
        "worst_db": min(one.row.comparison.picture.psnr_db for one in drawn.rows),
        "conversions": found.conversions,
        "seconds": round(found.took_s),
        "pairs_s": round(time.monotonic() - start),
    }


def main() -> None:
    """Compare, and hold plans to their bounds."""
    parser = figures.parser(__doc__)
    parser.add_argument("--runtime", choices=[*UNIFORM], default="mnn")
    parser.add_argument("--within", type=float, default=0.0, help="PSNR in decibels")
    parser.add_argument("--conversions", type=int, default=MOST_CONVERSIONS)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--plans", type=int, default=0)
    parser.add_argument("--store", default="", help="where files are kept")
    given = parser.parse_args()
    suite = load_suite(DIGITS)
    within = given.within or WITHIN_DB[given.runtime]
    limits = Limits(timeout_s=TIMEOUT_S)
    with (
        Engine(open_store(given.store), limits) as engine,
        ThreadPoolExecutor(limits.jobs) as pool,
    ):
        place = place_of(
            suite,
            engine,
            NETWORK,
            given.runtime,
            pipeline=PIPELINE,
            what="image",
            bound=Tolerance(psnr_db=within),
        )
        rows = compared(suite, place, given.conversions)
        print(figures.markdown(table(rows)), flush=True)
        bounds = np.linspace(within - BELOW_DB, within + ABOVE_DB, given.plans)
        plans = list(
            filter(
                None,
                pool.map(
                    lambda db: held(place, float(db), given.pairs),
                    bounds,
                ),
            )
        )
    # Not earlier: while one plan solves its program, what others print is lost.
    for one in plans:
        print(json.dumps(one), flush=True)
    if given.write:
        keep(rows, plans, given.runtime, within)


def keep(
    rows: Sequence[Way],
    plans: Sequence[dict[str, float]],
    backend: str,
    within: float,
) -> None:
    """Keep the figures."""
    by_name, least = {row.name: row for row in rows}, smallest(rows)
    ours, int8 = by_name["planned"], by_name["int8-weights"]
    exceeded = sum(one["exceeded"] for one in plans)
    pairs = sum(one["pairs"] for one in plans)
    unseen = (
        f"; {exceeded} of {pairs} pictures that {len(plans)} plans did not see exceed "
        "the bound"
    )
    figures.keep(
        "plan" if backend == "mnn" else f"plan_{backend}",
        script=__file__,
        what=f"a plan of digits' UNet for {runtime(backend).title} within PSNR "
        f"{within:g} dB, on the suite's hundred prompts",
        measured=f"{ours.size_bytes / least.size_bytes:.2f} × the size of "
        f"{least.name}, "
        f"{(ours.mse / int8.mse) ** 0.5:.2f} × int8's error, {ours.right} of 100 read "
        f"right{unseen if plans else ''}",
        values={
            "rows": {
                row.name: {**vars(row), "variant": row.variant.kind} for row in rows
            },
            "plans": plans,
        },
        rows=table(rows),
        code=["plugins/plan", "engine", "runtimes"],
    )


if __name__ == "__main__":
    main()
