"""`harness.core.program`: how a program of somebody else's ended, in one line."""

import sys
import time

import pytest

from harness.core.errors import SpecError
from harness.core.kept_log import KEPT_BYTES
from harness.core.program import ended, run_program
from tests.unit.engine.test_host import gone


@pytest.mark.parametrize(
    ("code", "limit_s", "words"),
    [
        ("print('one'); print('two ')", 60, "two"),
        ("print('x' * 999)", 60, "x" * 200),
        ("raise SystemExit(3)", 60, "ends with exit code 3"),
        ("import os; print('one', flush=True); os.abort()", 60, "crashes by SIGABRT"),
        ("import time; time.sleep(60)", 1, "no end within 1 s"),
    ],
    ids=["said", "long", "nothing-said", "crash", "hangs"],
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


FLOOD = "import os; [os.write(2, b'x' * 65536) for _ in range({})]; print('\\nthe end')"


def test_of_a_flood_the_beginning_and_the_end_are_kept():
    done = ended([sys.executable, "-c", FLOOD.format(1024)])
    assert done.words == "the end"
    assert "… 67,076,105 bytes are left out here …" in done.text
    assert len(done.text) < 3 * KEPT_BYTES


@pytest.mark.parametrize("kept", ["stdout", "stderr"])
def test_one_of_both_streams_can_be_left_out(kept):
    code = "import sys; print('stdout'); print('stderr', file=sys.stderr)"
    streams = {name: name == kept for name in ("stdout", "stderr")}
    assert ended([sys.executable, "-c", code], **streams).text == kept


LEAVE = "import subprocess; subprocess.Popen(['sleep', '60']); print('began')"


def test_what_a_program_leaves_running_is_not_waited_for():
    began_s = time.monotonic()
    assert ended([sys.executable, "-c", LEAVE]).text == "began"
    assert time.monotonic() - began_s < 20


def test_a_program_that_is_stopped_takes_along_what_it_started(tmp_path):
    command = ["sh", "-c", f'sleep 60 & echo $! > "{tmp_path}/pid"; wait']
    assert ended(command, limit_s=1).words == "no end within 1 s"
    assert gone(int((tmp_path / "pid").read_text()))
