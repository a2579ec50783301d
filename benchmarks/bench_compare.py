"""How fast `compare` is beside ``numpy.allclose`` alone.

    python benchmarks/bench_compare.py [--rounds N] [--write]

Both take turns in one process, so that a
busy machine slows both; the ratio is taken round by round.
"""

import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import figures
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # whether installed or not

from harness.measure.compare import compare

LARGE = [
    (1 << 24,),
    (4096, 4096),
    (2, 320, 256, 102),
    (2, 8192, 1024),
    (1 << 18, 64),
]
SMALL = [
    *((1,), (64,), (4, 64), (512,), (2, 4, 8, 8), (2, 320, 2, 2), (1, 4, 32, 32)),
    *((8192,), (128, 64), (2, 320, 4, 4), (4, 4096), (256, 64), (2, 1280, 4, 4)),
    *((1 << 15,), (512, 128), (1 << 17,), (2, 320, 16, 16), (1 << 18,), (4096, 64)),
    *((2, 320, 32, 32), (1, 640, 32, 32), (77 * 8, 768)),
]
SIZES = (
    ("below 2 KB", 0, 1 << 11),
    ("2 to 64 KB", 1 << 11, (1 << 16) + 1),
    ("64 KB to 1 MB", (1 << 16) + 1, 1 << 20),
    ("from 1 MB on", 1 << 20, math.inf),
)
FIRST_CALL = """
import time
t0 = time.perf_counter()
from harness.measure.compare import compare
import numpy as np
t1 = time.perf_counter()
compare(expected=np.zeros(8, np.float32), actual=np.ones(8, np.float32))
t2 = time.perf_counter()
compare(expected=np.zeros(8), actual=np.ones(8))
t3 = time.perf_counter()
print(f"import {t1 - t0:.2f} s, float32 {t2 - t1:.2f} s, float64 {t3 - t2:.2f} s")
"""


class Ratio(NamedTuple):
    """How many times as fast `compare` is at one shape."""

    shape: tuple[int, ...]
    size: int
    ratio: float


def make_pair(shape):
    """Draw a reference and a candidate with relative noise of a few roundoffs."""
    draw = np.random.default_rng(0)
    expected = draw.standard_normal(shape, dtype=np.float32)
    noise = draw.standard_normal(shape, dtype=np.float32)
    return expected, expected + np.float32(1e-6) * noise


def seconds(call, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def race(expected, actual, rounds, repeats=1):
    """Return seconds a call, ``[rounds]`` each, of allclose and of compare."""
    plain, ours = [], []
    for _ in range(rounds + 1):
        plain.append(seconds(lambda: np.allclose(actual, expected), repeats))
        ours.append(seconds(lambda: compare(expected=expected, actual=actual), repeats))
    return plain[1:], ours[1:]  # the first round compiles and faults pages in


def report_large(rounds):
    found = []
    print(f"{'shape':>22} {'MB':>4} {'allclose':>19} {'compare':>19}   ratio (spread)")
    for shape in LARGE:
        pair = make_pair(shape)
        plain, ours = race(*pair, rounds)
        size = 2 * pair[0].nbytes
        ratios = sorted(a / b for a, b in zip(plain, ours, strict=True))
        found.append(Ratio(shape, pair[0].nbytes, statistics.median(ratios)))
        cells = [
            f"{statistics.median(side) * 1e3:6.1f} ms "
            f"{size / statistics.median(side) / 1e9:4.1f} GB/s"
            for side in (plain, ours)
        ]
        print(
            f"{shape!s:>22} {pair[0].nbytes / 2**20:4.0f} {cells[0]:>19} {cells[1]:>19}"
            f"   {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        )
    return found


def report_small(rounds):
    found = []
    print(f"\n{'shape':>22} {'KB':>6} {'allclose':>12} {'compare':>12}   ratio")
    for shape in SMALL:
        pair = make_pair(shape)
        repeats = max(4, min(200, (1 << 21) // pair[0].nbytes))
        sides = race(*pair, 3 * rounds, repeats=repeats)
        ratio = statistics.median(a / b for a, b in zip(*sides, strict=True))
        found.append(Ratio(shape, pair[0].nbytes, ratio))
        plain, ours = (statistics.median(side) * 1e6 for side in sides)
        size = pair[0].nbytes / 2**10
        print(f"{shape!s:>22} {size:6.1f} {plain:9.1f} us {ours:9.1f} us   {ratio:.2f}")
    return found


def report_first_call():
    """Time a fresh process with an empty and with a filled compilation cache."""
    print()
    with tempfile.TemporaryDirectory() as cache:
        for state in ("cold", "warm"):
            done = subprocess.run(
                [sys.executable, "-c", FIRST_CALL],
                env={"NUMBA_CACHE_DIR": cache, "PYTHONPATH": ":".join(sys.path)},
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"first call, {state} cache: {done.stdout.strip()}")


def main():
    parser = figures.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    found = [*report_large(given.rounds), *report_small(given.rounds)]
    report_first_call()
    if given.write:
        keep(found)


def keep(found):
    """Keep the ratios by the size of an array."""
    parts = []
    for words, least, most in SIZES:
        among = [one for one in found if least <= one.size < most]
        low, high = (pick(among, key=lambda one: one.ratio) for pick in (min, max))
        shape = "[" + ", ".join(map(str, low.shape)) + "]"
        parts.append(f"{words}: {low.ratio:.2g} × ({shape}) to {high.ratio:.2g} ×")
    figures.keep(
        "compare",
        script=__file__,
        what="one comparison with every metric, against `numpy.allclose` alone, "
        "float32, in throughput",
        measured="; ".join(parts),
        values={"x".join(map(str, one.shape)): round(one.ratio, 3) for one in found},
        code=["core", "measure"],
    )


if __name__ == "__main__":
    main()
