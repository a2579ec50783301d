"""Ctrl-C ends every wait of the main thread, also when its signal wakes no one."""

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from harness.core.memory import MemoryBudget, Need
from harness.core.waiting import as_they_end, awaited
from harness.engine.host import Host

LATE_S = 60
MOST = MemoryBudget(1)
NEED = Need(stage="a stage", size_bytes=1 << 30, reason="its weights")


def awaits(future: Future[None]) -> None:
    awaited(future)


def awaits_the_first(future: Future[None]) -> None:
    next(as_they_end([future]))


def asks_a_host(_: Future[None]) -> None:
    with Host("test") as host:
        host.run(time.sleep, LATE_S, timeout_s=2 * LATE_S, label="unet/mnn")


def needs_memory(future: Future[None]) -> None:
    def hold() -> None:
        with MOST.reserve(NEED):
            held.set()
            future.result()

    held = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait()
        try:
            with MOST.reserve(NEED):
                pass
        finally:
            if not future.done():
                future.set_result(None)


@pytest.mark.parametrize("waits", [awaits, awaits_the_first, asks_a_host, needs_memory])
def test_a_signal_that_wakes_another_thread_ends_the_wait(waits):
    """The other thread stands for a signal that comes just before the wait begins."""
    future, ended, late = Future[None](), threading.Event(), threading.Event()

    def interrupt() -> None:
        ended.wait(2)  # by then the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not ended.wait(LATE_S / 2):
            late.set()
            future.set_result(None)

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            waits(future)
    finally:
        ended.set()
        other.join()
    assert not late.is_set()


def test_a_time_that_ran_out_elsewhere_is_the_futures_own_error():
    future = Future[None]()
    future.set_exception(TimeoutError("of a server"))
    with pytest.raises(TimeoutError, match="of a server"):
        awaited(future)


def test_futures_are_yielded_in_the_order_in_which_they_end():
    first, second = Future[str](), Future[str]()
    second.set_result("second")
    found = as_they_end([first, second])
    assert next(found).result() == "second"
    first.set_result("first")
    assert [one.result() for one in found] == ["first"]
