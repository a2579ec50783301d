"""`parity doctor`: each finding follows from its probe; a crash is a finding."""

import ast
import json
import os
import re
import shutil
import signal
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.core.environment import packages
from harness.core.runtime import runtime, runtimes
from harness.core.text import screen
from harness.plugins.start.doctor import examine as doctor
from harness.plugins.start.doctor.child import LIMIT_S, Answer, ask_child
from harness.plugins.start.doctor.examine import Diagnosis, Status, exit_code, render
from harness.runtimes.onnxruntime.doctor import cuda_remedy
from tests.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OK, WARN, FAIL, ABSENT = Status.OK, Status.WARN, Status.FAIL, Status.ABSENT

TESTED = doctor.tested_versions()
HAVE = {
    name: TESTED[canonicalize_name(name)]
    for name in packages()
    if name != "onnxruntime"
}
RAN = Answer(facts={"version": "1.0", "value": 2.0, "fed": 1.0, "right": True})
WRONG = Answer(facts={**RAN.facts, "right": False})
REFUSED = Answer(facts={"refused": "asked for cuda and runs on cpu. Install it."})
CRASHED = Answer(facts={}, ended="crashed with SIGSEGV")


def answering(**answers):
    """Answer from a table; `run_on_cuda` goes before `run_on`."""

    def ask(function, *arguments, timeout_s=LIMIT_S):
        function, last = function.rpartition(":")[2], arguments[-1]
        if function == "run_on":
            last = json.loads(last)["device"]
        if last == "numba":  # it may compile, on a machine with other work
            assert timeout_s > 5 * LIMIT_S
        names = (f"{function}_{last}", function)
        return answers[next(name for name in names if name in answers)]

    return ask


def seen(findings):
    return {each.check: each.status for each in findings}


def only(findings):
    (finding,) = findings
    return finding


# Packages


def test_a_sound_installation_has_one_finding():
    assert only(doctor.check_packages(HAVE, TESTED)).status is OK


def test_a_local_build_of_the_tested_version_is_the_tested_version():
    have = {**HAVE, "torch": f"{HAVE['torch']}+cu130"}

    assert only(doctor.check_packages(have, TESTED)).status is OK


def test_another_version_warns_and_the_tested_one_fixes_it():
    finding = only(doctor.check_packages({**HAVE, "numpy": "1.0"}, TESTED))

    assert finding.status is WARN
    assert f"numpy 1.0 ({TESTED['numpy']})" in finding.says
    assert finding.fix == f"pip install numpy=={TESTED['numpy']}"


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        pytest.param("MNN", "MNN", id="a-package"),
        pytest.param("onnxruntime-gpu", "onnxruntime", id="both-onnxruntimes"),
    ],
)
def test_a_missing_package_fails(missing, named):
    have = {name: version for name, version in HAVE.items() if name != missing}

    finding = only(doctor.check_packages(have, TESTED))

    assert finding.status is FAIL
    assert finding.says == f"not installed: {named}"
    assert finding.fix == f"pip install {named}=={TESTED[named.lower()]}"


# Imports


LOADED = Answer(facts={})


def test_an_onnx_that_cannot_be_imported_fails_with_the_way_back():
    broken = Answer(facts={}, ended="failed: TypeError: Descriptors")
    ask = answering(load_onnx=broken, load_torch=LOADED, load_numba=LOADED)
    have = {**HAVE, doctor.MNN_TELEMETRY: "0.9", "protobuf": "3.20.3"}

    found = list(doctor.check_loads(ask, have, TESTED))

    assert [each.status for each in found] == [WARN, FAIL, OK, OK]
    assert "protobuf 3.20.3" in found[1].says
    assert "TypeError: Descriptors" in found[1].says
    assert found[1].fix == (
        f"pip uninstall -y {doctor.MNN_TELEMETRY} && pip install "
        f"onnx=={TESTED['onnx']} protobuf=={TESTED['protobuf']}"
    )


@pytest.mark.parametrize("name", ["onnx", "torch", "numba"])
def test_what_crashes_while_it_loads_fails_alone(name):
    answers = dict.fromkeys(("load_onnx", "load_torch", "load_numba"), LOADED)
    ask = answering(**{**answers, f"load_{name}": CRASHED})

    failed = [
        each for each in doctor.check_loads(ask, HAVE, TESTED) if each.status is FAIL
    ]
    assert [each.check for each in failed] == [name]
    assert "crashed with SIGSEGV" in failed[0].says
    assert failed[0].fix


# Runtimes


@pytest.mark.parametrize(
    ("answer", "first", "other"),
    [
        pytest.param(RAN, OK, OK, id="runs"),
        pytest.param(WRONG, FAIL, FAIL, id="wrong-numbers"),
        pytest.param(REFUSED, FAIL, ABSENT, id="refused"),
        pytest.param(CRASHED, FAIL, WARN, id="crash"),
    ],
)
def test_a_device_is_believed_after_it_ran_and_the_first_must_run(answer, first, other):
    ask = answering(run_on=answer)
    found = seen(doctor.check_runtime(ask, runtime("mnn"), HAVE))

    assert found.pop("mnn cpu") is first
    assert set(found) == {f"mnn {name}" for name in runtime("mnn").devices[1:]}
    assert set(found.values()) == {other}


def test_a_device_that_a_remedy_would_make_work_is_a_warning():
    ask = answering(
        run_on=RAN,
        run_on_cuda=REFUSED,
        remedy=Answer(facts={"remedy": "update the driver"}),
    )
    _, cuda, *_ = doctor.check_runtime(ask, runtime("onnxruntime"), HAVE)

    assert (cuda.status, cuda.fix) == (WARN, "update the driver")
    assert cuda.says == REFUSED.facts["refused"]


def test_two_onnxruntimes_fail_and_one_does_not():
    ask = answering(run_on=RAN)
    both = {**HAVE, "onnxruntime": "1.20.0"}
    shadowed, *_ = doctor.check_runtime(ask, runtime("onnxruntime"), both)
    alone = doctor.check_runtime(ask, runtime("onnxruntime"), HAVE)

    assert shadowed.status is FAIL
    assert "share one folder" in shadowed.says
    assert set(seen(alone).values()) == {OK}


@pytest.mark.parametrize(
    ("driver", "built_with", "says"),
    [
        pytest.param("12.8", "13.0", "update the driver", id="old-driver"),
        pytest.param("9.2", "13.0", "update the driver", id="very-old-driver"),
        pytest.param("13.1", "13.0", "pip install", id="libraries-missing"),
        pytest.param("13.1", "", "no CUDA", id="cpu-onnxruntime"),
    ],
)
def test_a_sentence_says_what_cuda_lacks(driver, built_with, says):
    assert says in cuda_remedy(driver, built_with)


# The store


@pytest.mark.parametrize(
    ("free_gib", "status"),
    [
        pytest.param(1, WARN, id="scant"),
        pytest.param(5, OK, id="enough-for-small-models"),
        pytest.param(50, OK, id="plenty"),
    ],
)
def test_a_full_disk_warns(monkeypatch, tmp_path, free_gib, status):
    usage = shutil.disk_usage(tmp_path)._replace(free=free_gib * 2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    *_, finding = doctor.check_machine(tmp_path / "not" / "yet" / "there")

    assert finding.status is status
    assert ("full size" in finding.says) == (free_gib < 12)
    assert not (tmp_path / "not").exists()


def test_a_store_that_cannot_be_written_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)

    *_, finding = doctor.check_machine(tmp_path)
    assert finding.status is FAIL


# The child process


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        pytest.param(
            f"import os; os.kill(os.getpid(), {signal.SIGSEGV:d})",
            "crashes by SIGSEGV",
            id="crash",
        ),
        pytest.param("import no_such", "ModuleNotFoundError", id="raises"),
        pytest.param("import os; os._exit(3)", "ends with exit code 3", id="exits"),
        pytest.param("import os; os._exit(0)", "ended without an answer", id="quits"),
        pytest.param("import time; time.sleep(60)", "no end within 1 s", id="hangs"),
    ],
)
def test_a_child_that_dies_says_how(line, ended, monkeypatch):
    monkeypatch.setattr("harness.plugins.start.doctor.child._CHILD", line)
    answer = ask_child("load", "onnx", timeout_s=1.0)

    assert answer.ended.startswith(ended)
    assert answer.facts == {}


def test_what_a_child_prints_is_kept_apart_from_its_answer(monkeypatch):
    line = "print('chatter'); open('answer.json', 'w').write('{\"a\": 1}')"
    monkeypatch.setattr("harness.plugins.start.doctor.child._CHILD", line)

    assert ask_child("load", "onnx").facts == {"a": 1}


# What is shown


def lines(*findings, has_suite=True):
    return [line.text for line in screen(render(findings, has_suite=has_suite))]


SOUND = (
    Diagnosis(check="mnn cuda", status=ABSENT, says="not here"),
    Diagnosis(check="torch", status=WARN, says="slow", fix="do this"),
    Diagnosis(check="mnn cpu", status=OK, says="runs"),
)
BROKEN = Diagnosis(check="a", status=FAIL, says="word " * 40, fix="pip " * 40)


def test_absent_findings_come_last_and_a_command_is_not_wrapped(snapshot):
    shown = [lines(*SOUND), lines(BROKEN), lines(has_suite=False)]

    assert "\n\n".join("\n".join(some) for some in shown) == snapshot
    assert exit_code([BROKEN]) == 2
    assert exit_code([]) == 0


# The versions


def test_each_package_of_record_has_a_tested_version():
    assert [name for name in packages() if canonicalize_name(name) not in TESTED] == []


def declared(*groups):
    """Return the packages that pyproject.toml asks for, and those of groups too."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [
        *PROJECT["project"]["dependencies"],
        *(each for extra in extras for each in extra),
        *(each for name in groups for each in PROJECT["dependency-groups"][name]),
    ]
    return {canonicalize_name(Requirement(each).name) for each in wanted}


def imported(folder):
    """Return the top-level names that the files of a folder import anywhere."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def test_the_base_has_no_torch_and_what_reading_a_run_needs():
    base = {
        canonicalize_name(Requirement(r).name)
        for r in PROJECT["project"]["dependencies"]
    }

    assert "torch" not in base
    assert {"scipy", "safetensors"} <= base


def test_each_dependency_and_each_tool_is_pinned():
    assert declared(*PROJECT["dependency-groups"]) - set(TESTED) == set()


REWRITERS = ("onnxoptimizer", "onnxsim", "onnxslim")


@pytest.mark.parametrize(
    ("folder", "groups", "ours"),
    [
        pytest.param("harness", (), {"harness"}, id="harness"),
        pytest.param(
            "tests",
            ("test", "fleet"),
            # All but the first four are of environments that tests/exporters makes.
            {"harness", "tests", "docs", "fixtures", "optimum", "txtai", *REWRITERS},
            id="tests",
        ),
    ],
)
def test_what_is_imported_is_declared(folder, groups, ours):
    there, asked = packages_distributions(), declared(*groups)

    # Nothing may rest on what another package happens to bring.
    assert [
        name
        for name in sorted(imported(folder) - ours)
        if asked.isdisjoint(map(canonicalize_name, there.get(name, [name])))
    ] == []


def test_pins_are_plain_versions():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]

    # No host, no path, and no build of one machine: torch==2.13.0+cpu fits no GPU.
    odd = [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+(\s+# .+)?", pin)]
    assert odd == []
    assert pins == sorted(pins, key=str.lower)


def test_a_wheel_carries_the_tested_versions():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert wheel["force-include"] == {"constraints.txt": "harness/constraints.txt"}


# This machine


def test_this_machine_is_examined(tmp_path):
    findings = doctor.examine(store=tmp_path)

    assert [each.says for each in findings if each.status is FAIL] == []
    assert {f"{name} cpu" for name in runtimes()} <= set(seen(findings))
    assert list(tmp_path.iterdir()) == []
