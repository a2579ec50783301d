"""How often `parity gate` would call one build slower than itself, timed again.

    python benchmarks/bench_times.py [CASE…] [--sessions 10] [--neighbours]

One build is timed in sessions, each a `parity bench` of its own; then every session is
held against every later one. Whatever is called worse or better is a false alarm. Times
alone are asked, what they are of PyTorch's in the same round, and the gate's own rule,
which takes both and judges no time that other work disturbed. With `--neighbours` a
busy process takes a core in every second session. How small a slow-down is seen is
asked of the same times, the later ones lengthened.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from harness.commands.bench.record import benchmarks
from harness.commands.bench.timing import Round, Timing
from harness.report.runs.snapshot import Benchmark, benchmarks_of
from harness.report.runs.thresholds import Change, of_times
from harness.report.runs.times import compare_times

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
CASES = ("text_encoder/*/fp32", "vae_decoder/*/fp32", "unet/*/fp32")
SLOWER = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)

Session = dict[str, Benchmark]
Rule = Callable[[Benchmark, Benchmark], Change]


def by_time(before: Benchmark, after: Benchmark) -> Change:
    """Ask the times alone."""
    return of_times(before.runs, after.runs)


def by_share(before: Benchmark, after: Benchmark) -> Change:
    """Ask what they are of PyTorch's in the same round."""
    return of_times(before.over_pytorch, after.over_pytorch)


def by_gate(before: Benchmark, after: Benchmark) -> Change:
    """Ask as `parity gate` does."""
    change, _ = compare_times(before, after, same_torch=True)
    return change


RULES: dict[str, Rule] = {
    "times": by_time,
    "times over PyTorch's of the same round": by_share,
    "the gate": by_gate,
}


def timed(cases: Sequence[str], store: str) -> Session:
    """Time every file once."""
    options = ["--store", store] if store else []
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "harness", "bench", *cases, "--no-compile"]
        subprocess.run(
            [*command, "--suite", DIGITS, "--runs", runs, *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (path,) = Path(runs).glob("*/bench.json")
        timings = [
            Timing(**one | {"rounds": [Round(**turn) for turn in one["rounds"]]})
            for one in json.loads(path.read_text())["timings"]
        ]
    entries = benchmarks(timings)
    return {
        entry.case: entry
        for timing, entry in zip(timings, benchmarks_of(entries), strict=True)
        if not timing.is_eager
    }


@contextmanager
def neighbour() -> Iterator[None]:
    """Have a process take a core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()


def slowed(entry: Benchmark, factor: float) -> Benchmark:
    """Return what a slower build would have taken."""
    return replace(
        entry,
        runs=tuple(factor * time for time in entry.runs),
        over_pytorch=tuple(factor * share for share in entry.over_pytorch),
    )


def told(sessions: Sequence[Session], rule: Rule, factor: float) -> Counter[Change]:
    """Ask about every file of every pair, the later one slowed down."""
    return Counter(
        rule(before[name], slowed(after[name], factor))
        for before, after in combinations(sessions, 2)
        for name in before
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    sessions = []
    for number in range(given.sessions):
        disturbed = given.neighbours and number % 2
        with neighbour() if disturbed else nullcontext():
            sessions.append(timed(given.cases, given.store))
        print(f"session {number + 1} of {given.sessions}", file=sys.stderr)

    for name in sessions[0]:
        medians = [statistics.median(one[name].runs) for one in sessions]
        withheld = ", ".join(f"{one[name].withheld or 0:.1%}" for one in sessions)
        apart = max(medians) / min(medians)
        print(f"{name}: up to {apart:.2f} times apart; withheld {withheld}")
    for words, rule in RULES.items():
        clean = told(sessions, rule, 1.0)
        alarms = clean[Change.WORSE] + clean[Change.BETTER]
        print(f"\n{words}")
        print(f"  false alarms: {alarms} of {clean.total()}")
        print(f"  no verdict: {clean[Change.INCOMPARABLE]} of {clean.total()}")
        for factor in SLOWER:
            slower = told(sessions, rule, factor)
            judged = slower.total() - slower[Change.INCOMPARABLE]
            seen = slower[Change.WORSE] / judged if judged else 0.0
            print(f"  {factor:g} times as slow: seen in {seen:.0%} of what is judged")


if __name__ == "__main__":
    main()
