"""`parity target make`: what it puts into a machine's folder, and what it refuses.

pip and the command are real. A shell script stands in for the emulator: it runs a
Python of this machine. `tests/targets` has a real emulator.
"""

import platform
import subprocess
import sys
import zipfile

import pytest

from harness.commands.cli import main
from harness.core.environment import installed
from harness.core.runtime import runtime
from harness.engine import environments

pytestmark = pytest.mark.slow

HERE = {
    one.distributions[-1]: next(iter(installed(one.distributions).values()))
    for one in map(runtime, ("onnxruntime", "mnn"))
}
OTHER = "0.0.1"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A root, an emulator on PATH and a folder of wheels; returns the root."""
    root, wheels, tools = (tmp_path / name for name in ("root", "wheels", "tools"))
    for folder in (root / "usr" / "bin", wheels, tools):
        folder.mkdir(parents=True)
    python = "python{}.{}".format(*sys.version_info)
    for path, text in {
        root / "usr" / "bin" / python: f'exec {sys.executable} "$@"',
        # Without -cpu CPU -L ROOT.
        tools / "qemu-aarch64-static": 'shift 4\nexec "$@"',
    }.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    write_wheel(wheels, "numpy", "2.0.0")
    for name, version in HERE.items():
        write_wheel(wheels, name, version)
        write_wheel(wheels, name, OTHER)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.chdir(tmp_path)
    return root


def write_wheel(folder, name, version):
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = {version!r}\n")
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{about}/METADATA", head)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", tags)
        wheel.writestr(f"{about}/RECORD", "")


def make(*words):
    return main(["target", "make", "arm64", "--into", "arm64", *words])


def test_a_root_that_is_named_needs_no_packages_of_debian(machine, capsys):
    assert make("--root", str(machine), "--cpu", "cortex-a53") == 0
    said = capsys.readouterr().out
    assert f"  MNN {HERE['MNN']}" in said
    assert "[target.cortex-a53]" in said
    assert "fetching a Python" not in said


def test_a_version_that_is_chosen_is_put_there(machine, capsys):
    assert make("--root", str(machine), "--with", f"mnn=={OTHER}") == 0
    said = capsys.readouterr().out
    assert f"  MNN {OTHER}" in said
    assert f"  onnxruntime {HERE['onnxruntime']}" in said


def test_wheels_are_fetched_again_where_other_versions_are_wanted(machine, capsys):
    make("--root", str(machine), "--with", f"MNN=={OTHER}")
    capsys.readouterr()
    assert make() == 0
    again = capsys.readouterr().out
    assert make() == 0
    assert f"  MNN {HERE['MNN']}" in again
    assert "fetching" not in capsys.readouterr().out


def test_two_commands_at_once_make_one_machine(machine):
    words = ("target", "make", "arm64", "--into", "arm64", "--root", str(machine))
    both = [
        subprocess.Popen(
            (sys.executable, "-m", "harness", *words), stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [one.communicate(timeout=120)[0] for one in both]

    assert [one.returncode for one in both] == [0, 0]
    assert sum("fetching wheels" in one for one in said) == 1


def test_where_there_is_no_pip_uv_brings_it(machine, tmp_path, capsys, monkeypatch):
    uv = tmp_path / "tools" / "uv"
    # In place of `uv tool run --python PYTHON pip`.
    uv.write_text(f'#!/bin/sh\nshift 5\nexec {sys.executable} -m pip "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setattr(environments, "installed", lambda _: {})
    assert make("--root", str(machine)) == 0
    assert f"  MNN {HERE['MNN']}" in capsys.readouterr().out


UBUNTU = "Ubuntu has packages of other processors on servers that its sources do not"
REFUSED = {
    "no Python": (
        ("--root", "tools"),
        "tools has no Python such as usr/bin/python3.11; give --root",
    ),
    "no such wheel": (
        ("--root", "root", "--with", "MNN==9.9"),
        "wheels for arm64 cannot be fetched: ",
    ),
    "no version": (
        ("--root", "root", "--with", "MNN"),
        "--with MNN is no wheel and its version; write NAME==VERSION, where NAME is",
    ),
    "no runtime": (("--root", "root", "--with", "torch==2"), "--with torch==2 is no"),
    "packages of Ubuntu": ((), UBUNTU),
}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_made_is_a_sentence_and_2(tmp_path, capsys, monkeypatch, what):
    apt = tmp_path / "tools" / "apt-get"
    apt.write_text("#!/bin/sh\necho E: Unable to locate package >&2\nexit 100\n")
    apt.chmod(0o755)
    told = {"ID": "mint", "ID_LIKE": "ubuntu debian"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: told)
    options, words = REFUSED[what]
    assert make(*options) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_machine_keeps_its_root(machine, tmp_path, capsys):
    make("--root", str(machine))
    assert make("--root", str(tmp_path)) == 2
    assert "arm64 has another root; give a new folder" in capsys.readouterr().err
