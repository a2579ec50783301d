"""Fuzz the readers of all formats, and print a table of calls and findings.

python -m tests.fuzz [--seconds N] [--seed N] [--keep FOLDER] [FORMAT ...]

Each format is fuzzed for N seconds, 60 when left out. FOLDER gets the files of each
finding. The same seed draws the same files.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.formats import NAMES
from tests.fuzz.healthy import make
from tests.fuzz.loop import Result, fuzz


def table(results: list[Result]) -> list[str]:
    """Return the lines of a table: calls, calls that found nothing wrong, findings."""
    lines = [f"{'format':<12} {'calls':>9} {'answered':>9} {'findings':>9}"]
    lines += [
        f"{one.format:<12} {one.calls:>9,} {one.sound:>9,} {len(one.findings):>9}"
        for one in results
    ]
    calls, sound, found = (
        sum(one.calls for one in results),
        sum(one.sound for one in results),
        sum(len(one.findings) for one in results),
    )
    return [*lines, f"{'all':<12} {calls:>9,} {sound:>9,} {found:>9}"]


def main() -> int:
    """Fuzz, print, and return 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--healthy", type=Path, help="where the healthy files are kept")
    asked = parser.parse_args()
    names = asked.formats or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no such format: {', '.join(sorted(unknown))}")
    print(f"seed {asked.seed}")
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(asked.jobs) as pool:
        healthy = make(asked.healthy or Path(scratch, "healthy")).home
        results = list(
            pool.map(
                lambda name: fuzz(name, healthy, asked.seconds, asked.seed, asked.keep),
                names,
            )
        )
    for result in results:
        for one in result.findings:
            print(f"\n── {one.format}, draw {one.draw}: {one.kind}\n   {one.where}")
            print("\n".join(f"   {line}" for line in one.words.splitlines()[-6:]))
            if one.files:
                print(f"   {one.files}")
    print()
    print("\n".join(table(results)))
    return int(any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
