"""What the tests of the fuzzers share; `tox -e fuzz` prints a table of the same.

``PARITY_FUZZ_S`` says for how many seconds each format is fuzzed, and
``PARITY_FUZZ_SEED`` with which seed. A finding becomes a case of `test_findings`.
"""

import os
import secrets

from tests.fuzz.loop import fuzz

SECONDS = float(os.environ.get("PARITY_FUZZ_S") or 60)
SEED = int(os.environ.get("PARITY_FUZZ_SEED") or secrets.randbelow(10**6))


def check(name, healthy, kept):
    """Fuzz a format; each finding is told with the seed that shows it again."""
    result = fuzz(name, healthy, SECONDS, SEED, kept)
    print(f"{name}: {result.calls:,} calls, {result.sound:,} answered, seed {SEED}")
    told = [
        f"draw {one.draw}: {one.kind}: {one.where}\n{one.words}"
        for one in result.findings
    ]
    assert told == [], f"seed {SEED}"
    assert result.calls
