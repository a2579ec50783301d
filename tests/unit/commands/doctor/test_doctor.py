"""`parity doctor`: what each finding is made from, and that a crash becomes one."""

import ast
import os
import re
import shutil
import signal
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from harness.commands.doctor import Finding, Status, checks, examine, exit_code, render
from harness.commands.doctor.child import ask_child
from harness.core.doctor import Answer
from harness.core.environment import packages
from harness.runtimes.mnn import doctor as mnn
from harness.runtimes.onnxruntime import doctor as onnxruntime
from harness.runtimes.onnxruntime.doctor import cuda_fit as fit

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OK, WARN, FAIL, ABSENT = Status.OK, Status.WARN, Status.FAIL, Status.ABSENT

TESTED = checks.tested_versions()
HAVE = {
    name: TESTED[checks.canonical(name)] for name in packages() if name != "onnxruntime"
}
RAN = {"value": 2.0, "fed": 1.0, "right": True}
FELL_BACK = Answer(
    facts={"got": "CPUExecutionProvider", **RAN},
    words="\x1b[1;31m[E:onnxruntime] Failed to load library libonnxruntime_providers"
    "_cuda.so with error: libcublasLt.so.13: cannot open shared object file: "
    "No such file or directory\x1b[m",
)
NO_BACKEND = Answer(facts=RAN, words="Can't Find type=3 backend, use 0 instead")


def answering(**answers):
    """Answer questions from a table; `mnn_CUDA` goes before `mnn`."""

    def ask(question, *arguments):
        question = question.rpartition(":")[2]
        for name in ("_".join((question, *arguments)), question):
            if name in answers:
                return answers[name]
        pytest.fail(f"asked {question} {arguments}, which this test has no answer for")

    return ask


def seen(findings):
    return {each.check: each.status for each in findings}


def only(findings):
    (finding,) = findings
    return finding


# Packages


def test_a_sound_installation_has_one_finding():
    assert only(checks.check_packages(HAVE, TESTED)).status is OK


def test_a_local_build_of_the_tested_version_is_the_tested_version():
    have = {**HAVE, "torch": f"{HAVE['torch']}+cu130"}

    assert only(checks.check_packages(have, TESTED)).status is OK


def test_another_version_warns_and_the_tested_one_mends():
    finding = only(checks.check_packages({**HAVE, "numpy": "1.0"}, TESTED))

    assert finding.status is WARN
    assert f"numpy 1.0 ({TESTED['numpy']})" in finding.says
    assert finding.mend == f"pip install numpy=={TESTED['numpy']}"


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        pytest.param("MNN", "MNN", id="a-package"),
        pytest.param("onnxruntime-gpu", "onnxruntime", id="both-onnxruntimes"),
    ],
)
def test_a_missing_package_fails(missing, named):
    have = {name: version for name, version in HAVE.items() if name != missing}

    finding = only(checks.check_packages(have, TESTED))

    assert finding.status is FAIL
    assert finding.says == f"not installed: {named}"
    assert finding.mend == f"pip install {named}=={TESTED[named.lower()]}"


def test_two_onnxruntimes_fail_and_one_does_not():
    both = {**HAVE, "onnxruntime": "1.20.0"}

    assert only(onnxruntime.check_shadowing(both)).status is FAIL
    assert list(onnxruntime.check_shadowing(HAVE)) == []


# Imports


def test_an_onnx_that_cannot_be_imported_fails_with_the_way_back():
    ask = answering(onnx=Answer(facts={}, ended="failed: TypeError: Descriptors"))
    have = {**HAVE, checks.MNN_TELEMETRY: "0.9", "protobuf": "3.20.3"}

    found = list(checks.check_onnx(ask, have, TESTED))

    assert [each.status for each in found] == [WARN, FAIL]
    assert "protobuf 3.20.3" in found[1].says
    assert "TypeError: Descriptors" in found[1].says
    assert found[1].mend == (
        f"pip uninstall -y {checks.MNN_TELEMETRY} && pip install "
        f"onnx=={TESTED['onnx']} protobuf=={TESTED['protobuf']}"
    )


def test_more_threads_than_cores_warn(monkeypatch):
    monkeypatch.setattr(checks, "core_count", lambda: 2)

    for threads, status in ((1, OK), (2, OK), (3, WARN)):
        ask = answering(torch=Answer(facts={"threads": threads, "cuda": ""}))
        assert only(checks.check_torch(ask, HAVE)).status is status


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(Answer(facts={"cached": True, "right": True}), OK, id="caches"),
        pytest.param(Answer(facts={"cached": False, "right": True}), WARN, id="cannot"),
        pytest.param(Answer(facts={"cached": True, "right": False}), FAIL, id="wrong"),
        pytest.param(Answer(facts={}, ended="crashed with SIGILL"), FAIL, id="crash"),
    ],
)
def test_numba_must_compile_and_should_cache(answer, status):
    assert only(checks.check_numba(answering(numba=answer))).status is status


# Runtimes


def providers(cuda, *, driver=""):
    return answering(
        providers=Answer(
            facts={
                "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"],
                "cuda": "13.0",
            }
        ),
        driver=Answer(facts={"cuda": driver}),
        torch=Answer(facts={"cuda": "", "threads": 1}),
        provider_CPUExecutionProvider=FELL_BACK,
        provider_CUDAExecutionProvider=cuda,
    )


def test_a_listed_provider_that_falls_back_is_absent_in_its_own_words():
    cpu, cuda = onnxruntime.check_onnxruntime(providers(FELL_BACK), HAVE)

    assert (cpu.check, cpu.status) == ("onnxruntime CPU", OK)
    assert (cuda.check, cuda.status) == ("onnxruntime CUDA", ABSENT)
    assert cuda.says == (
        "falls back to the CPU: libcublasLt.so.13: cannot open shared object file"
    )


def test_the_same_beside_a_gpu_is_a_warning_with_a_way_out():
    _, cuda = onnxruntime.check_onnxruntime(providers(FELL_BACK, driver="13.1"), HAVE)

    assert cuda.status is WARN
    assert cuda.mend.startswith('pip install "onnxruntime-gpu[cuda,cudnn]"')


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(
            Answer(facts={"got": "CUDAExecutionProvider", **RAN}), OK, id="runs"
        ),
        pytest.param(
            Answer(facts={"got": "CUDAExecutionProvider", **RAN, "right": False}),
            FAIL,
            id="wrong-numbers",
        ),
        pytest.param(Answer(facts={}, ended="crashed with SIGSEGV"), WARN, id="crash"),
    ],
)
def test_a_provider_is_believed_after_it_ran(answer, status):
    _, cuda = onnxruntime.check_onnxruntime(providers(answer, driver="13.1"), HAVE)

    assert cuda.status is status


@pytest.mark.parametrize(
    ("driver", "torch", "onnxruntime", "says"),
    [
        pytest.param("12.8", "12.8", "13.0", "update the driver", id="old-driver"),
        pytest.param("9.2", "", "13.0", "update the driver", id="very-old-driver"),
        pytest.param("13.1", "12.8", "13.0", "brings CUDA 12.8", id="other-torch"),
        pytest.param("13.1", "", "13.0", "CPU build", id="cpu-torch"),
        pytest.param("13.1", "13.0", "13.0", "pip install", id="libraries-missing"),
        pytest.param("13.1", "13.0", "", "no CUDA", id="cpu-onnxruntime"),
    ],
)
def test_a_sentence_says_why_cuda_does_not_fit(driver, torch, onnxruntime, says):
    told = fit(driver=driver, torch=torch, onnxruntime=onnxruntime)

    assert says in told


def test_a_backend_that_mnn_replaces_is_absent():
    ask = answering(
        mnn=NO_BACKEND, mnn_CPU_high=Answer(facts=RAN), mnn_CPU_low=NO_BACKEND
    )

    assert seen(mnn.check_mnn(ask, HAVE)) == {
        "mnn CPU": OK,
        "mnn precision": ABSENT,
        **dict.fromkeys(("mnn OPENCL", "mnn VULKAN", "mnn CUDA", "mnn METAL"), ABSENT),
    }


def test_low_precision_that_changes_a_number_is_effective():
    ask = answering(
        mnn=NO_BACKEND,
        mnn_CPU_high=Answer(facts=RAN),
        mnn_CPU_low=Answer(facts={**RAN, "right": False}),
    )

    assert seen(mnn.check_mnn(ask, HAVE))["mnn precision"] is OK


def test_a_crash_on_the_cpu_fails_and_elsewhere_warns():
    ask = answering(mnn=Answer(facts={}, ended="crashed with SIGSEGV"))

    found = seen(mnn.check_mnn(ask, HAVE))

    assert found["mnn CPU"] is FAIL
    assert found["mnn CUDA"] is WARN


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(Answer(facts={"made": True}), OK, id="made"),
        # The converter returns True and exits with 0 all the same.
        pytest.param(Answer(facts={"made": False}), FAIL, id="no-file"),
        pytest.param(Answer(facts={}, ended="crashed with SIGSEGV"), FAIL, id="crash"),
    ],
)
def test_the_converter_is_judged_by_its_file(answer, status):
    found = mnn.check_converter(answering(converter=answer))

    assert seen(found)["converter"] is status


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

    finding = only(checks.check_store(tmp_path / "not" / "yet" / "there"))

    assert finding.status is status
    assert ("full size" in finding.says) == (free_gib == 5)
    assert not (tmp_path / "not").exists()


def test_a_store_that_cannot_be_written_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert only(checks.check_store(tmp_path)).status is FAIL


# The child process


@pytest.fixture
def question(monkeypatch):
    """Ask a process whose Python runs the given line in place of an answer."""

    def ask(line, **options):
        monkeypatch.setattr("harness.commands.doctor.child._CHILD", line)
        return ask_child("onnx", **options)

    return ask


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        pytest.param(
            f"import os; os.kill(os.getpid(), {signal.SIGSEGV:d})",
            "crashed with SIGSEGV",
            id="crash",
        ),
        pytest.param("import no_such", "failed: ModuleNotFoundError", id="raises"),
        pytest.param("import os; os._exit(3)", "failed: without a word", id="exits"),
        pytest.param("import os; os._exit(0)", "ended without an answer", id="quits"),
    ],
)
def test_a_child_that_dies_says_how(question, line, ended):
    answer = question(line)

    assert answer.ended.startswith(ended)
    assert answer.facts == {}


def test_a_child_that_hangs_is_ended(question):
    answer = question("import time; time.sleep(60)", timeout_s=0.3)

    assert answer.ended == "did not answer within 0 s"


def test_what_a_child_prints_is_kept_apart_from_its_answer(question):
    answer = question(
        "print('native chatter'); open('answer.json', 'w').write('{\"a\": 1}')"
    )

    assert answer.facts == {"a": 1}
    assert "native chatter" in answer.words


def test_the_doctor_leaves_nothing_behind():
    cached = ROOT / "harness" / "__pycache__"

    answer = ask_child("numba")

    assert answer.ended == ""
    assert list(cached.glob("*parity_doctor*")) == []


# What is shown


def test_like_findings_share_a_line_and_absent_ones_come_last():
    lines = list(
        render(
            [
                Finding(check="mnn CUDA", status=ABSENT, says="not here"),
                Finding(check="mnn METAL", status=ABSENT, says="not here"),
                Finding(check="torch", status=WARN, says="slow", mend="do this"),
                Finding(check="mnn CPU", status=OK, says="runs"),
            ],
            has_suite=True,
        )
    )

    assert lines == [
        "",
        " ! torch                 slow",
        "                         → do this",
        " ✓ mnn CPU               runs",
        "",
        " · mnn                   CUDA, METAL: not here",
        "",
        "Ready: parity can be measured on mnn CPU.",
        "next   pytest -m parity",
    ]


def test_where_there_is_no_suite_the_next_step_writes_one():
    *_, command = render([], has_suite=False)

    assert command == "next   parity init path/to/checkpoint"


def test_a_failure_is_the_verdict():
    findings = [Finding(check="numba", status=FAIL, says="nothing can be compared")]

    *_, verdict, command = render(findings, has_suite=True)

    assert verdict == "Not ready: mend 1 thing (✗) first."
    assert command == "next   parity doctor"
    assert exit_code(findings) == 2
    assert exit_code([]) == 0


def test_a_long_sentence_wraps_and_a_command_does_not():
    finding = Finding(check="a", status=WARN, says="word " * 40, mend="pip " * 40)

    lines = list(render([finding], has_suite=True))

    assert max(len(line) for line in lines if "→" not in line) <= 100
    assert f"→ {'pip ' * 40}" in "\n".join(lines)


# The versions


def test_each_package_of_record_has_a_tested_version():
    assert [name for name in packages() if checks.canonical(name) not in TESTED] == []


def declared(*groups):
    """Return the packages that pyproject.toml asks for, and those of groups too."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [
        *PROJECT["project"]["dependencies"],
        *(each for extra in extras for each in extra),
        *(each for name in groups for each in PROJECT["dependency-groups"][name]),
    ]
    return {checks.canonical(Requirement(each).name) for each in wanted}


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


def test_each_dependency_and_each_tool_is_pinned():
    assert declared(*PROJECT["dependency-groups"]) - set(TESTED) == set()


REWRITERS = ("onnxoptimizer", "onnxsim", "onnxslim")


@pytest.mark.parametrize(
    ("folder", "groups", "ours"),
    [
        pytest.param("harness", (), {"harness"}, id="harness"),
        pytest.param(
            "tests",
            ("test",),
            # All but the first two are of environments that tests/exporters makes.
            {"harness", "tests", "optimum", "txtai", *REWRITERS},
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
        if asked.isdisjoint(map(checks.canonical, there.get(name, [name])))
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
    findings = examine(store=tmp_path)

    assert [each.says for each in findings if each.status is FAIL] == []
    assert {"onnxruntime CPU", "mnn CPU"} <= set(seen(findings))
    assert list(tmp_path.iterdir()) == []
