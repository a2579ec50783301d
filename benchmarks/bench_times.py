"""How often `parity gate` would call one build slower than itself, timed again.

    python benchmarks/bench_times.py [CASE…] [--sessions 10] [--neighbours]

One build is timed in sessions, each a `parity bench` of its own; then every session is
held against every later one by the gate's rule. Whatever it calls worse or better is a
false alarm. The rule is asked about times, about what they are of PyTorch's in the same
round, and about both, which is what the gate goes by. With `--neighbours` a busy
process takes a core in every second session. How small a slow-down it sees is asked of
the same times, the later ones lengthened.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from harness.benching.record import benchmarks
from harness.benching.timing import Round, Timing
from harness.release.noise import Change, agreed, of_times

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
CASES = ("text_encoder/*/fp32", "vae_decoder/*/fp32", "unet/*/fp32")
SLOWER = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
TIMES, SHARES = "times", "times over PyTorch's of the same round"
RULES = {TIMES: (TIMES,), SHARES: (SHARES,), "both agree": (TIMES, SHARES)}

Session = dict[str, dict[str, list[float]]]


def timed(cases: Sequence[str], store: str) -> Session:
    """Time every file once; return its runs, and its rounds over PyTorch's."""
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
    return {
        entry["case"]: {TIMES: entry["runs"], SHARES: entry["over_pytorch"]}
        for timing, entry in zip(timings, benchmarks(timings), strict=True)
        if not timing.is_eager
    }


def busy() -> subprocess.Popen[bytes]:
    """Start a process that takes a core."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"])


def told(
    sessions: Sequence[Session], rules: Sequence[str], factor: float
) -> list[Change]:
    """Ask about every file of every pair, the later one's times lengthened."""
    found = []
    for before, after in combinations(sessions, 2):
        for name in before:
            changes = [
                of_times(before[name][of], [factor * time for time in after[name][of]])
                for of in rules
            ]
            found.append(agreed(changes))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    sessions = []
    for number in range(given.sessions):
        neighbour = busy() if given.neighbours and number % 2 else None
        sessions.append(timed(given.cases, given.store))
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
        print(f"session {number + 1} of {given.sessions}", file=sys.stderr)

    for which in (TIMES, SHARES):
        medians = {
            name: [statistics.median(one[name][which]) for one in sessions]
            for name in sessions[0]
        }
        apart = {name: max(of) / min(of) for name, of in medians.items()}
        most = max(apart, key=apart.__getitem__)
        print(f"{which}: sessions are up to {apart[most]:.2f} times apart ({most})")
    for words, rules in RULES.items():
        clean = told(sessions, rules, 1.0)
        alarms = sum(change is not Change.SAME for change in clean)
        print(f"\n{words}")
        print(f"  false alarms: {alarms} of {len(clean)} ({alarms / len(clean):.1%})")
        for factor in SLOWER:
            changes = told(sessions, rules, factor)
            seen = sum(change is Change.WORSE for change in changes) / len(changes)
            print(f"  {factor:g} times as slow: seen in {seen:.0%}")


if __name__ == "__main__":
    main()
