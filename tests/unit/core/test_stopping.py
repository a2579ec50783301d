"""SIGTERM and SIGHUP stop a process once, as Ctrl-C does.

Each test has a process of its own: Python handles a signal on the stack that it has for
signals, and OpenVINO, which other tests import, leaves a smaller one behind.
"""

import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys
from harness.core.stopping import stopped_by_signals

both = signal.SIGTERM, signal.SIGHUP
for number in both:  # nohup ignores one of them
    signal.signal(number, signal.SIG_DFL)
"""
TWICE = """
with stopped_by_signals():
    try:
        signal.raise_signal(int(sys.argv[1]))
    except KeyboardInterrupt:
        signal.raise_signal(int(sys.argv[2]))
        print("stopped once", end="")
assert [signal.getsignal(number) for number in both] == [signal.SIG_DFL] * 2
"""
IGNORED = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
with stopped_by_signals():
    signal.raise_signal(signal.SIGHUP)
print("not stopped", end="")
"""
FORKED = """
with stopped_by_signals():
    pid = os.fork()
    if not pid:
        signal.raise_signal(signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), end="")
"""


def said(text, *arguments):
    command = [sys.executable, "-c", BEGIN + text, *map(str, map(int, arguments))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_a_second_is_ignored(first, second):
    assert said(TWICE, first, second) == "stopped once"


def test_a_signal_that_is_ignored_stays_so():
    assert said(IGNORED) == "not stopped"


def test_a_fork_ends_by_the_signal():
    assert said(FORKED) == str(-signal.SIGTERM.value)
