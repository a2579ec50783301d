"""What the tests of the fuzzers share; `tox -e fuzz` prints a table of the same.

``PARITY_FUZZ_S`` says for how many seconds each format is fuzzed, and
``PARITY_FUZZ_SEED`` with which seed. The seed is fixed otherwise, so that a change is
tested and not its luck; a faster machine only draws more. `tox -e fuzz` draws a seed.
A finding becomes a case of `test_findings`.
"""

import os

from tests.fuzz.loop import fuzz

SECONDS = float(os.environ.get("PARITY_FUZZ_S") or 60)
SEED = int(os.environ.get("PARITY_FUZZ_SEED") or 1)


def check(name, healthy, kept):
    """Fuzz a format; each finding is told with the seed that shows it again."""
    result = fuzz(name, healthy, SECONDS, SEED, kept)
    print(f"{name}: {result.calls:,} calls, {result.sound:,} answered, seed {SEED}")
    told = [
        f"draw {one.draw}: {one.kind}: {one.where}\n{one.words}"
        for one in result.findings
    ]
    assert not told, "\n\n".join([f"seed {SEED}", *told])
    # A reader that refuses all files hides what comes behind it.
    assert result.sound, f"none of {result.calls:,} files was answered"
