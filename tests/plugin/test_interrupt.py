"""Ctrl-C during a stage ends the run in seconds and leaves nothing behind."""

import signal
import subprocess
import time

import psutil
import pytest

from tests.plugin.project import LIMIT_S, PARITY, PYTEST


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*PYTEST, "-m", "parity"), id="pytest"),
        pytest.param((*PARITY, "run"), id="command"),
    ],
)
def test_ctrl_c_while_exporting_leaves_nothing(quick, monkeypatch, command):
    store = quick.path / "cold-store"
    monkeypatch.setenv("PARITY_STORE", str(store))
    started = subprocess.Popen(
        command,
        cwd=quick.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        deadline_s = time.monotonic() + LIMIT_S
        while not list(store.glob("making/onnx.*")):
            assert started.poll() is None, started.stdout.read()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        children = psutil.Process(started.pid).children(recursive=True)
        started.send_signal(signal.SIGINT)
        sent_s = time.monotonic()
        text, _ = started.communicate(timeout=30)
    finally:
        started.kill()
        started.wait()

    assert children
    assert started.returncode == 2, text
    assert time.monotonic() - sent_s < 20
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []
    assert list((store / "making").iterdir()) == []
    assert list(store.glob("v1/onnx/*/*")) == []
    assert list(quick.path.glob("reports/runs/*")) == []
    assert "Traceback" not in text
