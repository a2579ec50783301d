"""`parity doctor --app` with this Python as the environment of a version."""

import sys

import pytest

from tests.plugin.project import CASES

pytestmark = pytest.mark.slow

VERSION = "9.9.9"
RUNTIMES = ("MNN", "onnxruntime")


@pytest.fixture
def app(store, project, tmp_path, monkeypatch):
    """Ask about an app of one version, whose Python is a shell script."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PARITY_STORE", str(tmp_path / "own"))
    tag = sys.implementation.cache_tag

    def asked(runtime, script=f'exec {sys.executable} "$@"'):
        for name in RUNTIMES:
            (tmp_path / f"{name}-{VERSION}-py3-none-any.whl").touch()
            python = tmp_path / "own/versions" / f"{name}-{VERSION}-{tag}/bin/python"
            python.parent.mkdir(parents=True)
            python.write_text(f"#!/bin/sh\n{script}\n")
            python.chmod(0o755)
        told = ("--app", f"{runtime}={VERSION}", "--store", str(store))
        return project.parity("doctor", *told)

    return asked


def test_each_file_is_opened_once_wherever_the_suite_runs_it(project, app):
    project.change(
        "parity.toml",
        "[backend.mnn]\n",
        '[target.phone]\ncommand = ["no-such-emulator"]\n'
        '[backend.mnn]\ntargets = ["phone"]\nprecision = ["high", "low"]\n',
    )

    ended = app("mnn").check(0)
    lines = [line.split()[:2] for line in ended.text.splitlines() if "✓" in line]
    assert lines == [["✓", name] for name in CASES if "mnn" in name]


def test_a_version_that_does_not_end_is_ended_and_nothing_is_known(project, app):
    project.change("parity.toml", "timeout_s = 120", "timeout_s = 3")
    app("mnn", "sleep 60").check(2, "still running at its limit of 3 s")


def test_a_provider_that_the_wheel_lacks_says_nothing_about_the_file(project, app):
    project.change(
        "parity.toml",
        "[backend.onnxruntime]\n",
        '[backend.onnxruntime]\ndevice = "xnnpack"\n',
    )
    app("onnxruntime").check(2, f"! {CASES[0]}", "XnnpackExecutionProvider")
