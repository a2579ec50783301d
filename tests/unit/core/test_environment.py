"""`harness.core.environment`: the facts that identify a machine, and no others."""

import dataclasses
import json
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain

import pytest

from harness.core import environment as subject
from harness.core.environment import Environment, environment, printed
from tests.places import ROOT

DESK = Environment(
    python="3.11.2",
    system="Linux 6.1.0",
    arch="x86_64",
    cpu="Acme 9000",
    core_count=2,
    memory_bytes=25_200_000_000,
    gpus=(),
    host="0a1b2c3d",
    packages={"torch": "2.13.0"},
    commit="0" * 40,
    dirty=False,
)


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def test_this_machine_is_described():
    here = environment()
    assert here.python == sys.version.split()[0]
    assert here.core_count >= 1
    assert here.cpu
    assert here.packages["pytest"] == metadata.version("pytest")


def test_it_survives_json():
    told = environment().to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["id"] == environment().id


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"packages": {"torch": "2.14.0"}}, id="package-version"),
        pytest.param({"commit": "1" * 40}, id="commit"),
        pytest.param({"dirty": True}, id="dirty"),
        pytest.param({"python": "3.11.9"}, id="python-patch"),
        pytest.param({"system": "Linux 6.1.7"}, id="kernel-release"),
        pytest.param({"memory_bytes": 25_205_000_000}, id="a-few-mib-of-memory"),
    ],
)
def test_id_stays_while_the_machine_stays(change):
    assert dataclasses.replace(DESK, **change).id == DESK.id


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"cpu": "Acme 9001"}, id="cpu"),
        pytest.param({"core_count": 4}, id="cores"),
        pytest.param({"memory_bytes": 50_400_000_000}, id="memory"),
        pytest.param({"gpus": ("Acme GPU",)}, id="gpu"),
        pytest.param({"arch": "aarch64"}, id="arch"),
        pytest.param({"host": "11111111"}, id="another-of-its-kind"),
        pytest.param({"python": "3.12.0"}, id="python-minor"),
        pytest.param({"system": "Darwin 24.0"}, id="system"),
    ],
)
def test_id_moves_with_the_machine(change):
    assert dataclasses.replace(DESK, **change).id != DESK.id


def test_id_is_the_same_in_every_process():
    # A digest that rested on hash() would differ with each interpreter's seed.
    assert DESK.id == "895d91c0"


def test_a_changed_tracked_file_makes_the_commit_dirty(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("one")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "one")

    clean = subject._git_state(tmp_path)
    (tmp_path / "untracked").write_text("")
    untracked = subject._git_state(tmp_path)
    (tmp_path / "a").write_text("two")
    changed = subject._git_state(tmp_path)

    assert len(clean[0]) == 40
    assert clean == untracked == (clean[0], False)
    assert changed == (clean[0], True)


def test_a_folder_without_git_has_no_commit(tmp_path):
    assert subject._git_state(tmp_path) == ("", False)


def test_a_missing_command_says_nothing():
    assert printed("no-such-command-anywhere") == ""


def test_the_packages_of_record_are_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    every = [*project["project"]["dependencies"], *chain.from_iterable(extras)]
    wanted = " ".join(every).lower()
    # protobuf comes with onnx; it is recorded because another version breaks it.
    missing = {name.lower() for name in subject.packages()} - {"protobuf"}
    assert [name for name in sorted(missing) if name not in wanted] == []


def test_importing_it_loads_no_framework():
    heavy = "{'numpy', 'torch', 'onnx', 'onnxruntime', 'MNN'}"
    imported = "import sys, harness.core.environment"
    code = f"{imported}; print(sorted({heavy} & set(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "setting",
    [
        ("core.fsmonitor", "{program}"),
        ("filter.x.clean", "{program}"),
        ("core.hooksPath", "{folder}"),
    ],
    ids=lambda one: one[0],
)
def test_settings_of_others_repository_start_nothing(tmp_path, monkeypatch, setting):
    repository, programs = tmp_path / "downloaded", tmp_path / "programs"
    repository.mkdir()
    programs.mkdir()
    for name in ("program", "post-index-change"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
        (programs / name).chmod(0o755)
    git(repository, "init")
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "file").write_text("one")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "one")
    (repository / "file").write_text("two")
    name, value = setting
    git(
        repository,
        *("config", name),
        value.format(program=programs / "program", folder=programs),
    )
    monkeypatch.chdir(repository)

    here = environment.__wrapped__()

    assert here.commit
    assert here.dirty
    assert not (tmp_path / "ran").exists()
