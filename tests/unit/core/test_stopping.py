"""SIGTERM and SIGHUP stop a process once, as Ctrl-C does."""

import os
import signal

import pytest

from harness.core.stopping import stopped_by_signals

ASKING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def default():
    """Both have their default, as in a terminal; `nohup` would ignore one of them."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ASKING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", ASKING)
@pytest.mark.parametrize("second", ASKING)
def test_the_first_signal_interrupts_and_a_second_is_ignored(first, second):
    with stopped_by_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        signal.raise_signal(second)

    assert [signal.getsignal(number) for number in ASKING] == [signal.SIG_DFL] * 2


def test_a_signal_that_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does

    with stopped_by_signals():
        signal.raise_signal(signal.SIGHUP)


def test_a_fork_ends_by_the_signal():
    with stopped_by_signals():
        pid = os.fork()
        if not pid:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
