"""A converter is judged by the file it leaves, whatever it says; it may be fake."""

import signal
import stat
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.slow

SAYS_SUCCESS = """\
#!/bin/sh
echo "Converted Success!"
"""
SEGFAULTS = """\
#!/bin/sh
echo "Start to Optimize the MNN Net..."
kill -SEGV $$
"""
LEAVES_RUBBISH = """\
#!{python}
import sys
target = sys.argv[sys.argv.index("--MNNModel") + 1]
open(target, "wb").write(b"\\0" * 1000)
open(target + ".weight", "wb").write(b"\\0" * 1000)
print("Converted Success!")
"""
TRUNCATES = """\
#!{python}
import sys
import MNN, _tools
target = sys.argv[sys.argv.index("--MNNModel") + 1]
_tools.mnnconvert(sys.argv)
data = open(target, "rb").read()
open(target, "wb").write(data[: len(data) // 2])
"""
FORGETS_WEIGHTS = """\
#!{python}
import os
import sys
import MNN, _tools
target = sys.argv[sys.argv.index("--MNNModel") + 1]
_tools.mnnconvert(sys.argv)
os.unlink(target + ".weight")
"""
HANGS = """\
#!/bin/sh
echo "thinking"
exec sleep 1000
"""
CONVERTERS = {
    "says_success": (SAYS_SUCCESS, ("left no file", "Converted Success!")),
    "segfaults": (SEGFAULTS, ("left no file", "SIGSEGV ended the converter")),
    "leaves_rubbish": (LEAVES_RUBBISH, ("does not load",)),
    "truncates": (TRUNCATES, ("does not load",)),
    "forgets_weights": (FORGETS_WEIGHTS, ("model.mnn.weight", "left no")),
}


def write_converter(project, text: str) -> str:
    path = project.folder / "MNNConvert"
    path.write_text(text.replace("{python}", sys.executable), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_converter_that_leaves_no_sound_file_has_failed(project, name):
    text, facts = CONVERTERS[name]
    there = sorted(project.store.glob("v1/mnn/*/*"))
    ended = project.run("mnn", "--mnn-convert", write_converter(project, text))
    assert ended.code == 2
    assert project.outcomes()["vae_decoder/mnn/fp32/outputs"] == "convert"
    assert ended.sentence("vae_decoder", *facts)
    assert sorted(project.store.glob("v1/mnn/*/*")) == there


def test_a_converter_that_hangs_is_ended_with_all_that_it_started(project):
    project.write("vae_decoder", timeout_s=3)
    ended = project.run("mnn", "--mnn-convert", write_converter(project, HANGS))
    assert ended.code == 2
    assert project.outcomes()["vae_decoder/mnn/fp32/outputs"] == "timed-out"
    assert ended.sentence("vae_decoder/mnn/fp32: conversion", "3 s", "timeout_s")
    assert not sleeping()


def sleeping() -> list[psutil.Process]:
    """Return every process that a hanging converter has become."""
    limit = time.monotonic() + 5
    while found := [p for p in psutil.process_iter() if is_sleep(p)]:
        if time.monotonic() > limit:
            return found
        time.sleep(0.05)
    return []


def is_sleep(process: psutil.Process) -> bool:
    try:
        return process.cmdline() == ["sleep", "1000"]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def test_an_operator_that_mnn_lacks_is_named_with_its_module_and_what_avoids_it(made):
    project, ended = made

    assert ended.code == 2
    assert ended.sentence(
        "text_encoder",
        "no operator IsNaN",
        "self_attn",
        'attention = "eager"',
        "[component.text_encoder]",
    )
    first, *_ = project.reports().values()
    found = {check["id"]: check["outcome"] for check in first["verdicts"]}
    assert found["text_encoder/mnn/fp32/outputs"] == "convert"
    assert found["text_encoder/onnxruntime/fp32/outputs"] == "within"
    assert found["vae_decoder/mnn/fp32/outputs"] == "within"


def test_ctrl_c_during_a_conversion_leaves_no_process_and_no_half_file(project):
    converter = write_converter(project, HANGS)
    process = project.start("run", "mnn", "--mnn-convert", converter)
    wait_for(lambda: list(project.store.glob("making/mnn.*")), process)
    hosts = psutil.Process(process.pid).children(recursive=True)

    process.send_signal(signal.SIGINT)
    ended = project.ended(process)

    assert ended.code == 2
    assert ended.sentence("parity: stopped", "store")
    assert project.reports() == {}
    psutil.wait_procs(hosts, timeout=5)
    assert [host for host in hosts if host.is_running()] == []


def test_a_killed_run_leaves_no_process_and_the_next_run_clears_up(project):
    converter = write_converter(project, HANGS)
    process = project.start("run", "mnn", "--mnn-convert", converter)
    wait_for(lambda: list(project.store.glob("making/mnn.*")), process)
    hosts = psutil.Process(process.pid).children(recursive=True)

    process.kill()
    process.communicate()

    psutil.wait_procs(hosts, timeout=5)
    assert [host for host in hosts if host.is_running()] == []
    assert project.run("--yes", command="store clear").code == 0


def wait_for(condition, process) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_two_runs_at_once_convert_once(project):
    """Both wait for one converter, which notes each time that it is called."""
    notes = project.folder / "notes"
    converter = write_converter(
        project,
        f"""\
#!{{python}}
import sys, time
import MNN, _tools
open({str(notes)!r}, "a").write("called\\n")
time.sleep(1)
_tools.mnnconvert(sys.argv)
""",
    )
    arguments = ("run", "mnn", "--mnn-convert", converter)

    both = [project.start(*arguments), project.start(*arguments)]
    ended = [project.ended(process, project.reports()) for process in both]

    assert [one.code for one in ended] == [0, 0]
    assert notes.read_text(encoding="utf-8") == "called\n"
    assert len(project.reports()) == 2
    assert list(project.store.glob("making/*")) == []
