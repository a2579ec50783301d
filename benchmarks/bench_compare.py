"""How fast `compare` is beside ``numpy.allclose`` alone.

    python benchmarks/bench_compare.py [--rounds N] [--write]

Each shape has a process of its own, because what a process had and gave back changes
how fast it gets memory. Both take turns in it, so that a busy machine slows both; the
ratio is taken round by round. Each shape is timed twice: in a process as Python starts
it, and in one that keeps the memory that it frees, as the harness's workers do.
"""

import json
import math
import os
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

SHAPES = [
    *((1,), (64,), (4, 64), (512,), (2, 4, 8, 8), (2, 320, 2, 2), (1, 4, 32, 32)),
    *((8192,), (128, 64), (2, 320, 4, 4), (4, 4096), (256, 64), (2, 1280, 4, 4)),
    *((1 << 15,), (512, 128), (1 << 17,), (2, 320, 16, 16), (1 << 18,), (4096, 64)),
    *((2, 320, 32, 32), (1, 640, 32, 32), (77 * 8, 768), (1 << 24,), (4096, 4096)),
    *((2, 320, 256, 102), (2, 8192, 1024), (1 << 18, 64)),
]
SIZES = (
    ("below 2 KB", 0, 1 << 11),
    ("2 to 64 KB", 1 << 11, (1 << 16) + 1),
    ("64 KB to 1 MB", (1 << 16) + 1, 1 << 20),
    ("from 1 MB on", 1 << 20, math.inf),
)
KEEPS = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": "268435456"}
"""What `harness.engine.host` sets for its workers."""

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
    """How many times as fast `compare` is at one shape, of `size` bytes."""

    shape: tuple[int, ...]
    size: int
    ratio: float


def make_pair(shape):
    """Draw a reference and a candidate with relative noise of a few roundoffs."""
    draw = np.random.default_rng(0)
    expected = draw.standard_normal(shape, dtype=np.float32)
    noise = draw.standard_normal(shape, dtype=np.float32)
    return expected, expected + np.float32(1e-6) * noise


def seconds(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def race(shape, rounds):
    """Return seconds a call, ``[rounds]`` each, of allclose and of compare."""
    expected, actual = make_pair(shape)
    repeats = max(1, min(200, (1 << 21) // expected.nbytes))
    plain, ours = [], []
    for _ in range(rounds + 1):
        plain.append(seconds(lambda: np.allclose(actual, expected), repeats))
        ours.append(seconds(lambda: compare(expected=expected, actual=actual), repeats))
    return plain[1:], ours[1:]  # the first round compiles and faults pages in


def race_alone(shape, rounds, environment):
    """Call `race` in a new process."""
    asked = json.dumps([shape, rounds])
    done = subprocess.run(
        [sys.executable, __file__, "--one", asked],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def report(rounds, environment, words):
    found = []
    print(f"\n{words}")
    print(f"{'shape':>22} {'KB':>8} {'allclose':>12} {'compare':>12}   ratio (spread)")
    for shape in SHAPES:
        sides = race_alone(shape, rounds, environment)
        ratios = sorted(a / b for a, b in zip(*sides, strict=True))
        size = 4 * math.prod(shape)
        found.append(Ratio(shape, size, statistics.median(ratios)))
        plain, ours = (statistics.median(side) * 1e6 for side in sides)
        print(
            f"{shape!s:>22} {size / 2**10:8.1f} {plain:9.1f} us {ours:9.1f} us"
            f"   {found[-1].ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
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
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--one", help="time one shape, and print the seconds as JSON")
    given = parser.parse_args()
    if given.one:
        shape, rounds = json.loads(given.one)
        print(json.dumps(race(tuple(shape), rounds)))
        return
    plain = report(given.rounds, {}, "a process as Python starts it")
    keeping = report(given.rounds, KEEPS, "a process that keeps the memory it frees")
    report_first_call()
    if given.write:
        keep(plain, keeping)


def by_size(found):
    """Say the least and the greatest ratio of each range of sizes."""
    parts = []
    for words, least, most in SIZES:
        among = [one for one in found if least <= one.size < most]
        low, high = (pick(among, key=lambda one: one.ratio) for pick in (min, max))
        shape = "[" + ", ".join(map(str, low.shape)) + "]"
        parts.append(f"{words}: {low.ratio:.2g} × ({shape}) to {high.ratio:.2g} ×")
    return "; ".join(parts)


def keep(plain, keeping):
    """Keep the ratios by the size of an array."""
    figures.keep(
        "compare",
        script=__file__,
        what="one comparison with every metric, against `numpy.allclose` alone, "
        "float32, in throughput",
        measured=f"{by_size(plain)}. Where a process keeps the memory that it frees, "
        f"as the harness's workers do: {by_size(keeping)}",
        values={
            name + "x".join(map(str, one.shape)): round(one.ratio, 3)
            for name, found in (("", plain), ("keeping ", keeping))
            for one in found
        },
        code=["core", "measure"],
    )


if __name__ == "__main__":
    main()
