"""`harness.core.program`: how a program of somebody else's ended, in one line."""

import sys

import pytest

from harness.core.errors import SpecError
from harness.core.program import ended, run_program


@pytest.mark.parametrize(
    ("code", "limit_s", "words"),
    [
        ("print('one'); print('two ')", 60, "two"),
        ("raise SystemExit(3)", 60, "ends with exit code 3"),
        ("import os; print('one', flush=True); os.abort()", 60, "crashes by SIGABRT"),
        ("import time; time.sleep(60)", 1, "no end within 1 s"),
    ],
    ids=["said", "nothing-said", "crash", "hangs"],
)
def test_the_end_of_a_program_is_one_line(code, limit_s, words):
    assert ended([sys.executable, "-c", code], limit_s=limit_s).words == words


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (sys.executable, "it fails: not this"),
        ("no-such-program", "it fails: .*No such"),
    ],
)
def test_a_program_that_fails_is_one_sentence(program, words):
    with pytest.raises(SpecError, match=words):
        run_program([program, "-c", "raise SystemExit('not this')"], "it fails")
