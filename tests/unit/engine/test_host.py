"""A parent process learns how each job ended, and no process is left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from harness.core.errors import SpecError, StageError, StoreError
from harness.core.kept_log import KEPT_BYTES
from harness.core.outcome import Outcome
from harness.engine.host import Host, report_progress
from tests.places import ROOT

LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module")
def forking():
    with Host("test", [__name__]) as host:
        yield host


@pytest.fixture(params=["forked", "spawned"])
def host(request, forking):
    """Both ways to give a job its process; elsewhere than on Linux there is one."""
    if request.param == "forked":
        yield forking
    else:
        with Host("test", [__name__], fork=False) as spawning:
            yield spawning


def run(host, function, *args, timeout_s=30.0, **kwargs):
    return host.run(function, *args, timeout_s=timeout_s, label="unet/mnn", **kwargs)


def failed(host, function, *args, **kwargs) -> StageError:
    with pytest.raises(StageError) as caught:
        run(host, function, *args, **kwargs)
    return caught.value


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True  # whoever adopted it has not looked yet
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def add(a, b=0):
    return a + b


def pids():
    return os.getpid(), os.getppid(), os.getpgid(0)


def talk():
    print("from python")
    os.write(2, b"from a descriptor\n")
    LIBC.puts(b"from native code")


def flood(size_bytes):
    os.write(1, b"the beginning\n")
    for _ in range(size_bytes >> 16):
        os.write(2, b"x" * (1 << 16))
    os.write(1, b"\nthe end")


def crash(how):
    LIBC.printf(b"Can't Find type=3 backend")  # no newline, so still in a buffer
    if how == "segmentation fault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code):
    os._exit(code)


def hang(path, *, stubborn=False):
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(f"{os.getppid()} {os.getpid()} {child.pid}")
    print("loading the weights", flush=True)
    if stubborn:
        ctypes.PyDLL(None).sleep(600)  # as native code does that keeps the GIL
    time.sleep(600)


def leave_a_child(path):
    Path(path).write_text(str(subprocess.Popen(["sleep", "600"]).pid))


def fail(error):
    print("converting")
    raise error


class UnreadableError(StoreError):
    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


def fail_unreadably():
    raise UnreadableError(1, 2)


def unpicklable():
    return threading.Lock()


class OnlyThere:
    def __reduce__(self):
        return (os.stat, ("/only/there",))


def unreadable():
    return OnlyThere()


def too_large():
    return bytes(65 << 20)


def allocate(size_bytes):
    return len(bytearray(os.urandom(1 << 20) * (size_bytes >> 20)))


def count(to):
    for number in range(to):
        report_progress("counting", "numbers", f"{number + 1} of {to}")


def test_a_job_returns_its_value_and_what_it_took(host):
    result = run(host, add, 2, b=3)
    assert result.value == 5
    assert result.log == ""
    assert 0 < result.wall_ns < 10**9


def test_every_job_has_a_process_and_a_group_of_its_own(forking):
    first, host_pid, first_group = run(forking, pids).value
    second, same_host, _ = run(forking, pids).value
    assert len({os.getpid(), host_pid, first, second}) == 4
    assert host_pid == same_host
    assert first_group == first


def test_the_log_has_what_python_and_native_code_print_and_only_of_this_job(host):
    run(host, talk)
    assert sorted(run(host, talk).log.splitlines()) == [
        "from a descriptor",
        "from native code",
        "from python",
    ]


def test_of_a_flood_the_log_has_the_beginning_and_the_end(host):
    log = run(host, flood, 64 << 20).log
    assert log.startswith("the beginning\n")
    assert log.endswith("\nthe end")
    assert "… 67,076,118 bytes are left out here …" in log
    assert len(log) < 3 * KEPT_BYTES


def test_a_job_that_floods_is_ended_at_its_limit(host):
    error = failed(host, flood, 1 << 50, timeout_s=1)
    assert error.outcome is Outcome.TIMED_OUT
    assert len(error.log) < 3 * KEPT_BYTES


def test_peak_memory_is_the_jobs_own(forking):
    small = run(forking, allocate, 1 << 20).peak_bytes
    large = run(forking, allocate, 300 << 20).peak_bytes
    assert 300e6 < large - small < 700e6
    assert run(forking, allocate, 1 << 20).peak_bytes < small + 50e6


def test_progress_reaches_the_parent_in_order(host):
    heard: list[tuple[str, ...]] = []
    run(host, count, 3, on_progress=lambda *said: heard.append(said))
    assert heard == [
        ("counting", "numbers", "1 of 3"),
        ("counting", "numbers", "2 of 3"),
        ("counting", "numbers", "3 of 3"),
    ]
    report_progress("outside a job", "it", "is heard by no one")


def test_threads_take_turns_in_one_host(forking):
    values: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: values.append(run(forking, add, n).value))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(values) == {0, 1, 2, 3}


SEGFAULT = (
    "the process died with SIGSEGV (signal 11); last words: Can't Find type=3 backend."
)
ENDINGS = {
    "segmentation fault": (crash, "segmentation fault", SEGFAULT),
    "exit code": (leave, 3, "the process left with exit code 3 and without an answer."),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_crash_is_an_outcome_and_the_host_serves_on(host, how):
    function, argument, words = ENDINGS[how]
    error = failed(host, function, argument)
    assert error.outcome is Outcome.CRASHED
    assert str(error) == f"unet/mnn: {words}"
    assert how == "exit code" or "test_host.py" in error.log  # the Python stack
    assert run(host, add, 1).value == 1


def test_a_killed_job_is_perhaps_out_of_memory(forking):
    error = failed(forking, crash, "killed")
    assert error.outcome is Outcome.CRASHED
    words = "SIGKILL (signal 9), perhaps because memory ran out, it held 0."
    assert words in str(error)


WAYS = {"sleeping": (True, False), "holding-the-gil": (True, True)}
WAYS["without-a-fork"] = (False, False)


@pytest.mark.parametrize("way", WAYS)
def test_a_hanging_job_is_ended_at_its_limit_with_all_it_started(tmp_path, way):
    fork, stubborn = WAYS[way]
    with Host("test", [__name__], fork=fork) as host:
        error = failed(host, hang, tmp_path / "pids", timeout_s=1, stubborn=stubborn)

        assert error.outcome is Outcome.TIMED_OUT
        assert "still running at its limit of 1 s" in str(error)
        assert "last words: loading the weights. If it needs longer, raise" in str(
            error
        )
        assert "timeout_s under [limits] in parity.toml" in str(error)
        # Without a fork the parent of the job is this process.
        started = (tmp_path / "pids").read_text().split()[0 if fork else 1 :]
        assert all(gone(int(pid)) for pid in started)
        assert run(host, add, 1).value == 1


def test_what_a_job_started_does_not_outlive_it(forking, tmp_path):
    run(forking, leave_a_child, tmp_path / "pid")
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_deliberate_error_crosses_as_it_is(host):
    with pytest.raises(StoreError, match=r"^disk full$"):
        run(host, fail, StoreError("disk full"))


def test_a_stage_error_crosses_with_its_outcome_and_gets_the_log(host):
    error = failed(host, fail, StageError("no such op", outcome=Outcome.CONVERT))
    assert (str(error), error.outcome) == ("no such op", Outcome.CONVERT)
    assert error.log.startswith("converting\n")


def test_another_error_is_one_sentence_with_the_traceback_in_the_log(host):
    error = failed(host, fail, ValueError("two\nlines"), failure=Outcome.EXPORT)
    assert str(error) == "unet/mnn: ValueError: two"
    assert error.outcome is Outcome.EXPORT
    assert "Traceback (most recent call last)" in error.log
    assert "lines" in error.log


def test_an_error_that_cannot_be_read_again_is_still_a_sentence(forking):
    assert str(failed(forking, fail_unreadably)) == "unet/mnn: UnreadableError: 12"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        pytest.param(unpicklable, "its result cannot be sent back", id="unpicklable"),
        pytest.param(unreadable, "its result cannot be read", id="unreadable"),
        pytest.param(too_large, "its result takes 68,1", id="too-large"),
        pytest.param(sys.exit, "SystemExit", id="exit"),
    ],
)
def test_a_result_that_cannot_cross_is_a_sentence(forking, function, message):
    error = failed(forking, function)
    assert error.outcome is Outcome.RUN
    assert message in str(error)
    assert run(forking, add, 1).value == 1


@pytest.mark.parametrize(
    ("function", "args"),
    [
        pytest.param(lambda: 1, (), id="lambda"),
        pytest.param(add, (threading.Lock(),), id="argument"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_starts(function, args):
    with pytest.raises(SpecError, match="cannot be sent to a job"):
        run(Host("test"), function, *args)


@pytest.mark.parametrize(
    ("text", "outcome", "message"),
    [
        pytest.param(
            "import no_such_runtime",
            Outcome.UNAVAILABLE,
            "importing broken_runtime failed: ModuleNotFoundError",
            id="is-not-installed",
        ),
        pytest.param("1/0", Outcome.LOAD, "ZeroDivisionError: division", id="raises"),
        pytest.param(
            "import ctypes; ctypes.string_at(0)",
            Outcome.CRASHED,
            "while importing, the process died with SIGSEGV",
            id="crashes",
        ),
    ],
)
def test_a_runtime_that_breaks_is_said(tmp_path, monkeypatch, text, outcome, message):
    (tmp_path / "broken_runtime.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with Host("broken", ["broken_runtime"]) as host:
        error = failed(host, add, 1, failure=Outcome.LOAD)
    assert error.outcome is outcome
    assert message in str(error)


def test_a_host_that_died_between_jobs_is_replaced():
    with Host("test", [__name__]) as host:
        first = run(host, pids).value[1]
        os.kill(first, signal.SIGKILL)
        assert gone(first)
        assert run(host, pids).value[1] != first


def test_a_host_that_dies_under_its_job_takes_it_along(tmp_path):
    path = tmp_path / "pids"
    with Host("test", [__name__]) as host:
        killer = threading.Thread(target=kill_host, args=[path])
        killer.start()
        error = failed(host, hang, path)
        killer.join()

    assert error.outcome is Outcome.CRASHED
    assert "SIGKILL" in str(error)
    assert all(gone(int(pid)) for pid in path.read_text().split())


def kill_host(path):
    os.kill(int(wait_for(path)[0]), signal.SIGKILL)


def wait_for(path: Path) -> list[str]:
    end = time.monotonic() + 20
    while not path.exists() or len(path.read_text().split()) < 3:
        assert time.monotonic() < end, "the job did not start"
        time.sleep(0.01)
    return path.read_text().split()


def test_no_runtime_phones_home_from_a_host(forking):
    assert run(forking, os.getenv, "ORT_DISABLE_TELEMETRY").value == "1"


def test_closing_is_quick_and_the_host_may_be_used_again():
    host = Host("test", [__name__])
    pid = run(host, pids).value[1]
    start = time.monotonic()
    host.close()
    host.close()

    assert time.monotonic() - start < 4  # a host that does not end is killed after 5 s
    assert gone(pid)
    assert run(host, add, 1).value == 1
    host.close()


def test_a_host_that_is_dropped_is_ended():
    host = Host("test", [__name__])
    pid = run(host, pids).value[1]
    del host
    assert gone(pid)


SCRIPT = """
    import sys
    sys.path.insert(0, {root!r})
    open({path!r} + ".ran", "a").write("x")
    from harness.engine.host import Host
    from tests.unit.engine.test_host import hang, pids
    host = Host("test", ["tests.unit.engine.test_host"])
    {body}
"""


def start(path: Path, body: str, *, as_file: bool = False) -> subprocess.Popen[str]:
    text = textwrap.dedent(SCRIPT.format(root=str(ROOT), path=str(path), body=body))
    script = path.with_suffix(".py")
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, *([str(script)] if as_file else ["-c", text])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_parent_that_is_ended_leaves_no_orphan(tmp_path, end):
    path = tmp_path / "pids"
    parent = start(path, f"host.run(hang, {str(path)!r}, timeout_s=600, label='x')")
    left = wait_for(path)
    # The whole foreground group, as a terminal's Ctrl-C does.
    os.killpg(parent.pid, end)
    _, err = parent.communicate(timeout=20)

    assert parent.returncode == -end
    assert all(gone(int(pid)) for pid in left)
    assert err.count("Traceback") == (1 if end == signal.SIGINT else 0)


@pytest.mark.parametrize("as_file", [False, True], ids=["text", "file"])
def test_the_users_script_is_not_run_again_and_its_end_ends_the_host(tmp_path, as_file):
    path = tmp_path / "script"
    body = "print(*host.run(pids, timeout_s=60, label='x').value)"
    out, err = start(path, body, as_file=as_file).communicate(timeout=60)
    assert err == ""
    assert gone(int(out.split()[1]))
    assert path.with_suffix(".ran").read_text() == "x"


def test_a_function_of_the_users_script_is_refused(tmp_path):
    body = "exec('def f(): pass'); host.run(f, timeout_s=60, label='x')"
    err = start(tmp_path / "script", body).communicate(timeout=60)[1]
    assert "SpecError" in err
    assert "is defined in a script; a job needs a module to import" in err
