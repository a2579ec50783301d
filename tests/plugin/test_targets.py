"""Runs on a target: a Python of this machine, driven through its agent."""

import json
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from harness.plugins.start.doctor.examine import Status
from harness.plugins.start.doctor.targets import check_targets
from tests.plugin.project import CASES, LIMIT_S

pytestmark = pytest.mark.slow

MOMENTS = 20
"""At which an agent is killed."""

VENV = f"[target.venv]\ncommand = [{json.dumps(sys.executable)}]\n"
ABSENT = '[target.venv]\ncommand = ["no-such-emulator"]\n'


def run_on(project, target, targets='["here", "venv"]'):
    for backend in ("onnxruntime", "mnn"):
        said = f"[backend.{backend}]\n"
        if said in (project.path / "parity.toml").read_text():
            project.change("parity.toml", said, f"{said}targets = {targets}\n")
    project.add("parity.toml", target)
    return project


@pytest.mark.smoke
def test_a_run_on_a_local_python_is_the_run_here_to_the_bit(project):
    ended = run_on(project, VENV).pytest()
    found = {case["case"]: case for case in project.report["cases"]}

    assert ended.code == 0, ended.text
    assert set(found) == {*CASES, *(f"{name}@venv" for name in CASES)}
    for name in CASES:
        here, there = found[name], found[f"{name}@venv"]
        assert len(here["rows"]["rms"]) > 5
        assert there["rows"] == here["rows"]
        assert there["coverage"] == here["coverage"]
        assert there["contract"] == here["contract"]
        assert ["target", "venv"] in there["ran"]["detail"]


OLD = """
import onnxruntime


class Old(onnxruntime.InferenceSession):
    def __init__(self, *_, **__):
        raise RuntimeError("Unsupported model IR version: 10, max supported: 8")


onnxruntime.InferenceSession = Old
"""
BROKEN = {
    "no command": (["no-such-emulator"], "absent", "which cannot be run"),
    "old runtime": (
        ["env", "PYTHONPATH=.", sys.executable],
        "load",
        "max supported: 8",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_target_that_cannot_run_a_case_is_no_result(quick, how):
    command, outcome, words = BROKEN[how]
    # A Python looks for this module when it starts.
    (quick.path / "sitecustomize.py").write_text(OLD)
    run_on(quick, f"[target.venv]\ncommand = {json.dumps(command)}\n")

    quick.parity("run").check(
        2,
        "✓ vae_decoder/onnxruntime/fp32 ",
        f"vae_decoder/onnxruntime/fp32@venv   {outcome}",
        "Target 'venv'" if outcome == "absent" else "onnxruntime ",
        words,
    )


def test_a_converter_that_is_not_to_be_had_is_no_result(project, tmp_path, monkeypatch):
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    # Versions that other tests installed are in their store.
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    said = "[backend.mnn]\n"
    project.change("parity.toml", said, f'{said}converter = "3.5.0"\n')

    project.parity("run", "vae_decoder/mnn/fp32", "vae_decoder/onnxruntime").check(
        2,
        "✓ vae_decoder/onnxruntime/fp32 ",
        "vae_decoder/mnn/fp32   absent",
        "the package index cannot be reached, or has no MNN",
    )


def test_an_agent_that_is_killed_loses_nothing(quick, tmp_path, monkeypatch):
    # Other tests put entries into the store that they share.
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    run_on(quick, VENV)
    code, text, lived_s = killed_after(quick, LIMIT_S)
    assert code == 0, text
    rows = rows_of(quick)
    kept = entries(tmp_path / "store")
    drawn = random.Random(0)  # moments, no secrets
    killed = 0
    for _ in range(4 * MOMENTS):
        code, text, _ = killed_after(quick, drawn.uniform(0, lived_s))
        assert "Traceback" not in text
        assert rows_of(quick)[0] == rows[0]  # of the case that runs here
        if "died with SIGKILL" not in text:
            lived_s /= 2  # it had ended before: the first run was slower
            continue
        # A command that never answered is a target that is not there, and is skipped.
        assert code == 2 or (code == 0 and "1 case skipped" in text), text
        killed += 1
        if killed == MOMENTS:
            break
    quick.parity("run").check(0)

    assert killed == MOMENTS
    assert entries(tmp_path / "store") == kept
    assert rows_of(quick) == rows


def rows_of(project):
    """The numbers of the case here and of the one on the target, in the last run."""
    report = json.loads(project.reports[-1].read_text())
    found = {case["case"]: case["rows"] for case in report["cases"]}
    return [found[name] for name in sorted(found)]


def entries(store):
    """Every artifact in a store, with its time."""
    return {path: path.stat().st_ctime_ns for path in store.glob("v*/*/*/*")}


def killed_after(project, seconds):
    """Run, and kill the agent so long after its start, if it still lives.

    Returns:
        Exit code and text of the run, and the time that the agent lived.

    """
    with ThreadPoolExecutor(1) as beside:
        lived_s = beside.submit(kill_agent, seconds)
        ended = project.parity("run")
    return ended.code, " ".join(ended.text.split()), lived_s.result()


def kill_agent(seconds):
    began_s = time.monotonic()
    while not (agents := agents_here()):
        assert time.monotonic() < began_s + LIMIT_S
        time.sleep(0.01)
    began_s = time.monotonic()
    psutil.wait_procs(agents, timeout=seconds)
    lived_s = time.monotonic() - began_s
    for agent in agents:
        with suppress(psutil.NoSuchProcess):
            agent.kill()
    return lived_s


def agents_here():
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.cmdline()[1:] == ["-i", "-q", "-u"]:
                found.append(child)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def test_doctor_says_what_each_target_has(quick):
    gone = ABSENT.replace("venv", "gone")
    run_on(quick, VENV + gone, targets='["venv", "gone"]')
    ended = quick.parity("doctor")
    assert re.search(
        r"✓ onnxruntime @venv +ONNX Runtime [\d.]+ on \w+, Python 3", ended.text
    ), ended.text
    assert ended.has("! onnxruntime @gone "), ended.text
    assert ended.has("'no-such-emulator', which cannot be run")


INLINE = f"[target]\nvenv = {{ command = [{json.dumps(sys.executable)}] }}\n"
BANNER = """[target.venv]
command = ["sh", "-c", 'echo "Note: be kind" >&2; exec "$0" "$@"', "{python}"]
"""
LOOKED_AT = {
    "inline": ("onnxruntime", 'targets = ["venv"]', INLINE, Status.OK, ", Python 3."),
    "banner": (
        "mnn",
        'targets = ["venv"]',
        BANNER.replace("{python}", sys.executable),
        Status.OK,
        "; The device supports: i8sdot:",
    ),
    "no provider": (
        "onnxruntime",
        'targets = ["venv"]\ndevice = "openvino"',
        VENV,
        Status.WARN,
        "has no OpenVINOExecutionProvider",
    ),
    "no float16": (
        "mnn",
        'targets = ["venv"]\nprecision = "low"',
        VENV,
        Status.WARN,
        "; not in precision low: The device supports: i8sdot:",
    ),
    "version": (
        "mnn",
        'versions = ["0.0.1"]',
        "",
        Status.ABSENT,
        "is not installed yet",
    ),
    "installed version": ("mnn", 'versions = ["0.0.2"]', "", Status.OK, "MNN "),
}


@pytest.mark.parametrize("how", LOOKED_AT)
def test_doctor_runs_a_model_on_each_target(project, tmp_path, monkeypatch, how):
    backend, said, targets, status, words = LOOKED_AT[how]
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "store"))
    environment = f"MNN-0.0.2-{sys.implementation.cache_tag}"
    python = tmp_path / "store" / "versions" / environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    path = project.path / "parity.toml"
    suite = path.read_text().partition("[backend.")[0]
    path.write_text(f"{suite}[backend.{backend}]\n{said}\n{targets}")

    (finding,) = check_targets(path)

    assert finding.status is status, finding
    assert words in finding.says
    assert "be kind" not in finding.says


def test_a_case_on_a_target_is_tuned_accepted_and_gated_as_one_from_here(quick):
    case = f"{CASES[0]}@venv"
    run_on(quick, VENV)

    quick.parity("tune", "--samples", "2", "--layers", "2").check(0, case)

    assert quick.parity("run").code == 0
    quick.accept()
    quick.gated().check(0, "accepted")

    pages = [path.read_text() for path in quick.path.glob("reports/runs/*/report.html")]
    assert len(pages) == 2
    assert all(case in page for page in pages)
