"""Ctrl-C during a stage ends the run in seconds and leaves nothing behind.

So do the signals of a CI and of a closed terminal. A reader that goes loses no report.
Whoever presses Ctrl-C several times sees no traceback.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from harness.engine.store import Store
from tests.plugin.drawing import COMPONENT, ONNXRUNTIME, STEPS
from tests.plugin.project import LIMIT_S, PARITY, PYTEST, begun

pytestmark = pytest.mark.slow


def wait_for(started, store, pattern):
    """Go on once the store of a command has what the pattern matches."""
    deadline_s = time.monotonic() + LIMIT_S
    while not list(store.glob(pattern)):
        assert started.poll() is None, started.stdout.read()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("command", "number"),
    [
        pytest.param((*PYTEST, "-m", "parity"), signal.SIGINT, id="pytest"),
        pytest.param((*PARITY, "run"), signal.SIGINT, id="command"),
        pytest.param((*PYTEST, "-m", "parity"), signal.SIGTERM, id="pytest-term"),
        pytest.param((*PARITY, "run"), signal.SIGTERM, id="command-term"),
    ],
)
def test_ctrl_c_in_an_export_leaves_nothing(quick, monkeypatch, command, number):
    store = quick.path / "cold-store"
    monkeypatch.setenv("PARITY_STORE", str(store))
    with begun(command, quick.path) as started:
        wait_for(started, store, "making/onnx.*")
        children = psutil.Process(started.pid).children(recursive=True)
        started.send_signal(number)
        sent_s = time.monotonic()
        text, _ = started.communicate(timeout=30)

    assert children
    assert started.returncode == 2, text
    assert time.monotonic() - sent_s < 20
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert list((store / "making").iterdir()) == []
    assert list(Store(root=store).verify()) == []  # an export that still ended is whole
    assert list(quick.path.glob("reports/runs/*")) == []
    assert "Traceback" not in text


def test_a_run_whose_reader_goes_could_not_tell_and_reports_what_ended(quick):
    quick.parity("run")  # the store has it all, so a case ends in a second
    (before,) = quick.reports
    pipe = subprocess.PIPE
    command = (*PARITY, "run")
    with subprocess.Popen(command, cwd=quick.path, stdout=pipe, stderr=pipe) as started:
        started.stdout.readline()
        started.stdout.close()
        said = started.stderr.read().decode()

    assert started.returncode == 2
    (report,) = set(quick.reports) - {before}
    assert "parity: nobody reads the output, so the run stopped; " in said
    assert f" goes to {report.parent.relative_to(quick.path)}" in said


def test_a_terminal_that_is_closed_costs_no_report(quick):
    quick.parity("run")
    (before,) = quick.reports
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        (*PARITY, "run"), cwd=quick.path, stdout=theirs, stderr=theirs
    ) as started:
        os.close(theirs)
        os.read(ours, 1)
        os.close(ours)  # from now on it cannot write, and gets another error than EPIPE

    assert started.returncode == 2
    assert len(set(quick.reports) - {before}) == 1


RUN = """
import sys
from pathlib import Path
from harness.commands.run import run_cases
from harness.core.settings import Settings
from harness.suite.suite import load_suite

store, runs, *ids = sys.argv[1:]
suite = load_suite(Path())
by_id = {case.id: case for case in suite.tested}
settings = Settings(store=store, runs=runs)
sys.exit(run_cases(suite, [by_id[one] for one in ids], settings, None))
"""


def test_ctrl_c_reports_what_ended_beside_the_case_that_runs(drawing):
    """The pipeline is waited for first, and would take many minutes."""
    pairs = "seeds = 500\nattribution = false\nmargin = { psnr = 60 }\nsteps = 300"
    drawing.change("parity.toml", f"steps = {STEPS}", pairs)
    store = drawing.path / "cold-store"
    # A process of its own: Python handles Ctrl-C on the stack that it has for signals,
    # and OpenVINO, which other tests import, leaves a smaller one behind.
    command = (sys.executable, "-c", RUN, store, "reports/runs", ONNXRUNTIME, COMPONENT)
    with begun(command, drawing.path) as started:
        wait_for(started, store, "v1/contract/*/*")
        time.sleep(6)  # its record follows, later on a busy machine
        started.send_signal(signal.SIGINT)
        text, _ = started.communicate(timeout=60)

    assert started.returncode == 2, text
    assert "stopped; what ended is judged below" in text
    assert [case["case"] for case in drawing.report["cases"]] == [COMPONENT]


@contextmanager
def in_a_terminal(command, folder):
    """Start a command in a process group of its own, as a shell does."""
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        command,
        cwd=folder,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def four_times(started):
    """Press Ctrl-C four times within a second; return what was printed after that."""
    children = psutil.Process(started.pid).children(recursive=True)
    for _ in range(4):
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGINT)
        time.sleep(0.1)
    text, _ = started.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert "Traceback" not in text
    assert "Exception ignored" not in text
    return text


def handles_signals(pid):
    """Whether a process has a handler for Ctrl-C and one for SIGTERM."""
    status = Path("/proc", str(pid), "status").read_text()
    line = next(one for one in status.splitlines() if one.startswith("SigCgt"))
    caught = int(line.split()[1], 16)
    return all(caught >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTERM))


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize("command", ["run", "doctor", "verify"])
def test_four_quick_ctrl_c_while_importing_end_it_with_a_word(tmp_path, command):
    with in_a_terminal((*PARITY, command), tmp_path) as started:
        while not handles_signals(started.pid):
            time.sleep(0.001)
        text = four_times(started)
    assert text.startswith("parity: stopped")
    assert started.returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*PYTEST, "-m", "parity"), id="pytest"),
        pytest.param((*PARITY, "run"), id="run"),
        pytest.param((*PARITY, "bench"), id="bench"),
        pytest.param((*PARITY, "tune"), id="tune"),
    ],
)
def test_four_quick_ctrl_c_during_a_stage_leave_nothing(quick, monkeypatch, command):
    store = quick.path / "cold-store"
    monkeypatch.setenv("PARITY_STORE", str(store))
    with in_a_terminal(command, quick.path) as started:
        wait_for(started, store, "making/*")
        four_times(started)

    assert started.returncode == 2
    # A worker that is ended at once leaves its work folder to whoever comes next.
    left = {one.problem for one in Store(root=store).verify()}
    assert left <= {"left by a process that died before it was done"}
    assert list((store / "making").iterdir()) == []
    assert list(quick.path.glob("reports/runs/*")) == []


def test_four_quick_ctrl_c_end_the_children_of_doctor(tmp_path):
    with in_a_terminal((*PARITY, "doctor"), tmp_path) as started:
        while not psutil.Process(started.pid).children():
            time.sleep(0.01)
        four_times(started)
    assert started.returncode == 2


@pytest.mark.parametrize("after", ["agrees", " report "])
def test_four_quick_ctrl_c_at_the_end_leave_a_whole_report_or_none(quick, after):
    quick.parity("run")  # the store has it all
    with in_a_terminal((*PARITY, "run"), quick.path) as started:
        while after not in started.stdout.readline():
            assert started.poll() is None
        four_times(started)
    assert started.returncode in {0, 2}
    for path in quick.reports:
        assert json.loads(path.read_text())["cases"]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*PARITY, "run"), id="command"),
        pytest.param((*PYTEST, "-m", "parity"), id="pytest"),
    ],
)
def test_a_run_whose_folder_is_removed_could_not_tell(project, command):
    runs = project.path / "reports" / "runs"
    with begun(command, project.path) as started:
        wait_for(started, runs, "*/cases/*.json")
        (folder,) = runs.iterdir()
        shutil.rmtree(folder, ignore_errors=True)
        text, _ = started.communicate(timeout=LIMIT_S)

    assert started.returncode == 2, text
    assert "Traceback" not in text
    assert "cases agree" not in text
    said = " ".join(text.split())
    assert f"{folder.name} was removed while" in said or "there is no report" in said
