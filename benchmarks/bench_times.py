"""How often `parity gate` would call one build slower than itself, timed again.

    python benchmarks/bench_times.py [CASE…] [--sessions 10] [--neighbours] [--write]

One build is timed in sessions, each a `parity bench` of its own; then every session is
compared with every later one. Whatever is called worse or better is a false alarm. Four
rules judge each pair: the middle halves of all runs apart (the gate's rule before, for
comparison), the times of the rounds alone, their shares of PyTorch's time alone, and
the gate's own rule, which takes both and judges no time that other work disturbed. With
`--neighbours` a busy process takes a core in every second session. To find out how
small a slow-down is seen, the rules judge the same times with the later ones
lengthened. The same is done with sessions of six rounds that are drawn at random from
the quiet rounds of all sessions: these are many more comparisons of one build, whose
runs are the medians of their rounds.
"""

from __future__ import annotations

import json
import random
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
from typing import Any

import figures

from harness.core.record import Benchmark, benchmarks_of
from harness.plugins.release.thresholds import Change, of_shares, of_times
from harness.plugins.release.times import compare_times, is_disturbed

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
CASES = ("text_encoder/*/fp32", "vae_decoder/*/fp32", "unet/*/fp32")
EAGER = "/pytorch/eager"
SLOWER = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)

ROUNDS = 6
DRAWS = 500

Session = dict[str, Benchmark]
Pair = tuple[Session, Session]
Rule = Callable[[Benchmark, Benchmark], Change]


def by_runs(before: Benchmark, after: Benchmark) -> Change:
    """Compare the middle halves of all runs, whatever process they are from."""
    return of_shares(before.runs, after.runs)


def by_time(before: Benchmark, after: Benchmark) -> Change:
    """Compare the times of the rounds alone."""
    return of_times(before.rounds, after.rounds)


def by_share(before: Benchmark, after: Benchmark) -> Change:
    """Compare their shares of PyTorch's time in the same round."""
    return of_shares(before.over_pytorch, after.over_pytorch)


def by_gate(before: Benchmark, after: Benchmark) -> Change:
    """Compare as `parity gate` does."""
    change, _ = compare_times(before, after, same_torch=True)
    return change


RULES: dict[str, Rule] = {
    "middle halves of all runs": by_runs,
    "times": by_time,
    "times over PyTorch's of the same round": by_share,
    "the gate": by_gate,
}


def timed(cases: Sequence[str], store: str) -> list[dict[str, Any]]:
    """Time every file once; return the entry of each."""
    options = ["--store", store] if store else []
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "harness", "bench", *cases]
        subprocess.run(
            [*command, "--suite", DIGITS, "--runs", runs, *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (path,) = Path(runs).glob("*/bench.json")
        timings: list[dict[str, Any]]
        timings = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    return timings


def session_of(timings: Sequence[dict[str, Any]]) -> Session:
    """Return the times of every file but PyTorch's."""
    entries = benchmarks_of(timings)
    return {one.case: one for one in entries if not one.case.endswith(EAGER)}


def drawn(every: Sequence[Sequence[dict[str, Any]]], draws: int) -> Iterator[Session]:
    """Yield sessions of six quiet rounds, drawn from all rounds, two and two apart."""
    rounds: dict[str, list[tuple[float, float]]] = {}
    for timings in every:
        eager = {}
        for one in timings:
            if one["case"].endswith(EAGER):
                eager[one["case"].partition("/")[0]] = one["withheld_rounds"]
                continue
            beside = eager[one["case"].partition("/")[0]]
            told = zip(
                one["rounds"],
                one["over_pytorch"],
                one["withheld_rounds"],
                beside,
                strict=True,
            )
            rounds.setdefault(one["case"], []).extend(
                (time, share)
                for time, share, *withheld in told
                if not any(map(is_disturbed, withheld))
            )
    enough = {name: own for name, own in rounds.items() if len(own) >= 2 * ROUNDS}
    pick = random.Random(0)  # no secret
    for _ in range(draws):
        both = {name: pick.sample(own, 2 * ROUNDS) for name, own in enough.items()}
        for part in (slice(ROUNDS), slice(ROUNDS, None)):
            yield {
                name: Benchmark(
                    case=name,
                    metric="latency_ms",
                    runs=tuple(time for time, _ in own[part]),
                    rounds=tuple(time for time, _ in own[part]),
                    over_pytorch=tuple(share for _, share in own[part]),
                )
                for name, own in both.items()
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
        rounds=tuple(factor * time for time in entry.rounds),
        over_pytorch=tuple(factor * share for share in entry.over_pytorch),
    )


def told(pairs: Sequence[Pair], rule: Rule, factor: float) -> Counter[Change]:
    """Judge every file of every pair, the later one slowed down."""
    return Counter(
        rule(before[name], slowed(after[name], factor))
        for before, after in pairs
        for name in before
    )


def report(pairs: Sequence[Pair]) -> None:
    """Print what each rule says of pairs of sessions of one build."""
    for words, rule in RULES.items():
        clean = told(pairs, rule, 1.0)
        alarms = clean[Change.WORSE] + clean[Change.BETTER]
        print(f"\n{words}")
        print(f"  false alarms: {alarms} of {clean.total()}")
        print(f"  no verdict: {clean[Change.INCOMPARABLE]} of {clean.total()}")
        for factor in SLOWER:
            slower = told(pairs, rule, factor)
            judged = slower.total() - slower[Change.INCOMPARABLE]
            seen = slower[Change.WORSE] / judged if judged else 0.0
            print(f"  {factor:g} times as slow: seen in {seen:.0%} of what is judged")


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--store", default="")
    given = parser.parse_args()
    every = []
    for number in range(given.sessions):
        disturbed = given.neighbours and number % 2
        with neighbour() if disturbed else nullcontext():
            every.append(timed(given.cases, given.store))
        print(f"session {number + 1} of {given.sessions}", file=sys.stderr)

    sessions = [session_of(timings) for timings in every]
    for name in sessions[0]:
        medians = [statistics.median(one[name].runs) for one in sessions]
        withheld = ", ".join(f"{one[name].withheld or 0:.1%}" for one in sessions)
        apart = max(medians) / min(medians)
        print(f"{name}: up to {apart:.2f} times apart; withheld {withheld}")
    report(list(combinations(sessions, 2)))
    made = drawn(every, DRAWS)
    pairs = [pair for pair in zip(made, made, strict=True) if pair[0]]
    print(f"\nsessions drawn from all quiet rounds: {len(pairs)} pairs of each file")
    if pairs:
        report(pairs)
        if given.write:
            keep(pairs)


def keep(pairs: Sequence[Pair]) -> None:
    """Keep what the gate's rule says of two builds, and of one build twice."""
    clean = told(pairs, by_gate, 1.0)
    alarms = clean[Change.WORSE] + clean[Change.BETTER]
    seen = {}
    for factor in SLOWER:
        slower = told(pairs, by_gate, factor)
        judged = slower.total() - slower[Change.INCOMPARABLE]
        seen[factor] = slower[Change.WORSE] / judged if judged else 0.0
    figures.keep(
        "times",
        script=__file__,
        what="`parity gate` on the times of one build, as they are and made longer",
        measured=f"of {clean.total():,} pairs of sessions of six quiet rounds of one "
        f"build, {alarms} were called a change; of longer times, seen were "
        + ", ".join(f"{share:.0%} at {factor:g} ×" for factor, share in seen.items()),
        values={"pairs": clean.total(), "alarms": alarms, "seen": seen},
        code=["plugins/bench", "plugins/release", "core"],
    )


if __name__ == "__main__":
    main()
