"""What the doctor looks at. Each check yields findings and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.commands.doctor.child import Answer, Ask
from harness.commands.doctor.finding import Finding, Status
from harness.core.environment import PACKAGES, core_count, environment

MNN_TELEMETRY = "aliyun-log-python-sdk"
_GIB = 2**30
_ONNXRUNTIMES = frozenset({"onnxruntime", "onnxruntime-gpu"})
_MNN_BACKENDS = ("CPU", "OPENCL", "VULKAN", "CUDA", "METAL")
_FULL_SIZE_BYTES = 12 * _GIB
_SCANT_BYTES = 2 * _GIB


def tested_versions() -> dict[str, str]:
    """Return the version of each package that this release was tested with.

    They are those of ``constraints.txt``, which a wheel carries inside the package.
    """
    here = Path(__file__).parents[2]
    places = (here / "constraints.txt", here.parent / "constraints.txt")
    path = next(place for place in places if place.is_file())
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = (line.partition("#")[0].strip() for line in lines)
    pairs = (pin.partition("==") for pin in pins if pin)
    return {canonical(name): version for name, _, version in pairs}


def check_python() -> Iterator[Finding]:
    """Say what computes here."""
    here = environment()
    yield Finding(
        check="python",
        status=Status.OK,
        says=f"{here.python} on {here.system.partition(' ')[0]} {here.arch}, "
        f"{here.core_count} cores, {here.memory_bytes / _GIB:.0f} GiB",
    )


def check_packages(
    have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Finding]:
    """Look for packages that are missing or of another version than tested."""
    missing = [name for name in PACKAGES if name not in {*have, *_ONNXRUNTIMES}]
    if not _ONNXRUNTIMES & set(have):
        missing.append("onnxruntime")
    others = {
        name: version
        for name, version in have.items()
        if name != MNN_TELEMETRY
        # A local part, as in 2.13.0+cpu, names a build of the same version.
        and version.partition("+")[0] != tested.get(canonical(name), "")
    }
    if missing:
        yield Finding(
            check="packages",
            status=Status.FAIL,
            says=f"not installed: {', '.join(missing)}",
            mend=_pip_install(missing, tested),
        )
    if others:
        told = (
            f"{name} {version} ({tested.get(canonical(name), 'none')})"
            for name, version in others.items()
        )
        yield Finding(
            check="packages",
            status=Status.WARN,
            says=f"not the tested version (in brackets): {', '.join(told)}",
            mend=_pip_install(others, tested),
        )
    if not missing and not others:
        yield Finding(
            check="packages",
            status=Status.OK,
            says=f"{len(have)} that matter, each at its tested version",
        )


def check_shadowing(have: Mapping[str, str]) -> Iterator[Finding]:
    """Look for two packages that claim the folder of ONNX Runtime."""
    if set(have) >= _ONNXRUNTIMES:
        yield Finding(
            check="onnxruntime",
            status=Status.FAIL,
            says="onnxruntime and onnxruntime-gpu are both installed and share one "
            "folder: which one runs is left to chance",
            mend="pip uninstall -y onnxruntime onnxruntime-gpu && "
            f"pip install onnxruntime-gpu=={have['onnxruntime-gpu']}",
        )


def check_onnx(
    ask: Ask, have: Mapping[str, str], tested: Mapping[str, str]
) -> Iterator[Finding]:
    """Import onnx, which MNN's own commands are known to break."""
    answer = ask("onnx")
    mend = _pip_install(["onnx", "protobuf"], tested)
    if MNN_TELEMETRY in have:
        mend = f"pip uninstall -y {MNN_TELEMETRY} && {mend}"
        yield Finding(
            check="onnx",
            status=Status.WARN,
            says=f"{MNN_TELEMETRY} is installed: MNN's own commands (mnnconvert, "
            "mnnquant) fetch it, change protobuf for it, and report each conversion",
            mend=mend,
        )
    if answer.ended:
        says = f"import onnx {answer.ended} (protobuf {have.get('protobuf', 'none')})"
        yield Finding(check="onnx", status=Status.FAIL, says=says, mend=mend)
    else:
        says = f"imports, with protobuf {have.get('protobuf', 'none')}"
        yield Finding(check="onnx", status=Status.OK, says=says)


def check_torch(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Import PyTorch, and hold its threads against the cores."""
    answer = ask("torch")
    if answer.ended:
        yield Finding(
            check="torch", status=Status.FAIL, says=f"import torch {answer.ended}"
        )
        return
    threads, cores = answer.facts["threads"], core_count()
    says = f"{have.get('torch', '')}, {threads} threads on {cores} cores"
    if threads > cores:
        says += ": they will wait for each other and timings will jump"
        mend = f"export OMP_NUM_THREADS={cores}"
        yield Finding(check="torch", status=Status.WARN, says=says, mend=mend)
    else:
        yield Finding(check="torch", status=Status.OK, says=says)


def check_numba(ask: Ask) -> Iterator[Finding]:
    """Compile as the comparison kernel is compiled, and look for the cache."""
    answer = ask("numba")
    if answer.ended or not answer.facts["right"]:
        ended = answer.ended or "computes wrong numbers"
        says = f"nothing can be compared: compiling {ended}"
        yield Finding(check="numba", status=Status.FAIL, says=says)
    elif not answer.facts["cached"]:
        yield Finding(
            check="numba",
            status=Status.WARN,
            says="compiles, and cannot keep the result: each process compiles anew",
            mend="export NUMBA_CACHE_DIR=a-folder-you-can-write",
        )
    else:
        yield Finding(check="numba", status=Status.OK, says="compiles, and caches")


def check_onnxruntime(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each provider that ONNX Runtime lists."""
    listed = ask("onnxruntime")
    if listed.ended:
        yield Finding(
            check="onnxruntime",
            status=Status.FAIL,
            says=f"import onnxruntime {listed.ended}",
        )
        return
    version = next((have[name] for name in _ONNXRUNTIMES if name in have), "")
    driver = ask("driver").facts.get("cuda", "")
    torch_cuda = ask("torch").facts.get("cuda", "") if driver else ""
    # CPU first: the rest falls back to it.
    for provider in reversed(listed.facts["providers"]):
        answer = ask("provider", provider)
        check = f"onnxruntime {provider.removesuffix('ExecutionProvider')}"
        if not answer.ended and answer.facts["got"] == provider:
            yield _ran(check, version, answer)
            continue
        wanted = provider == "CPUExecutionProvider"
        usable = provider == "CUDAExecutionProvider" and bool(driver)
        status = Status.FAIL if wanted else Status.WARN if usable else Status.ABSENT
        mend = (
            cuda_fit(driver=driver, torch=torch_cuda, onnxruntime=listed.facts["cuda"])
            if usable
            else ""
        )
        says = f"offered, and {answer.ended}"
        if not answer.ended:
            says = f"falls back to the CPU: {_refusal(answer.words)}"
        yield Finding(check=check, status=status, says=says, mend=mend)


def cuda_fit(*, driver: str, torch: str, onnxruntime: str) -> str:
    """Say in one sentence why CUDA fits or does not; versions as ``13.0``.

    Args:
        driver: The newest CUDA the driver runs.
        torch: The CUDA that PyTorch was built with; empty for a CPU build.
        onnxruntime: The CUDA that onnxruntime-gpu was built with.

    """
    if not onnxruntime:
        return "This build of ONNX Runtime has no CUDA: install onnxruntime-gpu."
    major = onnxruntime.partition(".")[0]
    if int(driver.partition(".")[0]) < int(major):
        return (
            f"The driver runs CUDA up to {driver} and onnxruntime-gpu needs {major}.x: "
            "update the driver, or install an onnxruntime-gpu built for an older CUDA."
        )
    install = 'pip install "onnxruntime-gpu[cuda,cudnn]"'
    if not torch:
        return f"{install}   (PyTorch is a CPU build and brings no CUDA)"
    if torch.partition(".")[0] != major:
        return f"{install}   (PyTorch brings CUDA {torch}, {major}.x is needed)"
    return install


def check_mnn(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each backend, and whether low precision changes a number."""
    for backend in _MNN_BACKENDS:
        answer = ask("mnn", backend, "high")
        check = f"mnn {backend}"
        wanted = backend == "CPU"
        if answer.ended:
            status = Status.FAIL if wanted else Status.WARN
            says = f"a model of one operator {answer.ended}"
            yield Finding(check=check, status=status, says=says)
        elif "Can't Find type=" in answer.words:
            says = "not in this build, would run on the CPU"
            yield Finding(check=check, status=Status.ABSENT, says=says)
        else:
            yield _ran(check, have.get("MNN", ""), answer)
        if wanted and not answer.ended:
            yield _low_precision(ask("mnn", backend, "low"))


def _low_precision(answer: Answer) -> Finding:
    check = "mnn precision"
    if answer.ended:
        return Finding(
            check=check, status=Status.WARN, says=f"low: the model {answer.ended}"
        )
    if answer.facts["right"]:
        says = "low computes in float32 here: it says nothing about a phone"
        return Finding(check=check, status=Status.ABSENT, says=says)
    return Finding(check=check, status=Status.OK, says="low computes in float16 here")


def check_converter(ask: Ask) -> Iterator[Finding]:
    """Convert one operator to MNN, and look for the native converter."""
    answer = ask("converter")
    if answer.ended or not answer.facts["made"]:
        yield Finding(
            check="converter",
            status=Status.FAIL,
            says=f"ONNX to MNN {answer.ended or 'left no file'}",
            mend="pip install --force-reinstall --no-deps MNN",
        )
    else:
        yield Finding(
            check="converter", status=Status.OK, says="MNN's wheel converts ONNX"
        )
    native = shutil.which("MNNConvert")
    if native:
        yield Finding(check="MNNConvert", status=Status.OK, says=native)
    else:
        says = "not on PATH; the wheel's converter is used"
        yield Finding(check="MNNConvert", status=Status.ABSENT, says=says)


def check_store(store: Path) -> Iterator[Finding]:
    """Look for room where artifacts are kept."""
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    says = f"{free / _GIB:.0f} GiB free at {store}"
    mend = "export PARITY_STORE=a-folder-on-another-disk"
    if not os.access(place, os.W_OK):
        says = f"{place} cannot be written"
        yield Finding(check="store", status=Status.FAIL, says=says, mend=mend)
    elif free < _SCANT_BYTES:
        yield Finding(check="store", status=Status.WARN, says=says, mend=mend)
    elif free < _FULL_SIZE_BYTES:
        says += "; models of full size need 12"
        yield Finding(check="store", status=Status.OK, says=says)
    else:
        yield Finding(check="store", status=Status.OK, says=says)


def _ran(check: str, version: str, answer: Answer) -> Finding:
    if answer.facts["right"]:
        return Finding(check=check, status=Status.OK, says=f"{version} runs")
    says = f"runs, and 2 × {answer.facts['fed']} came out as {answer.facts['value']}"
    return Finding(check=check, status=Status.FAIL, says=says)


def _refusal(words: str) -> str:
    """Return why ONNX Runtime refused a provider, in its own words."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", words)
    cause = re.search(r"with error: (.+)", plain) or re.search(r"EP Error (.+)", plain)
    if not cause:
        return "it gives no reason"
    return cause[1].strip().removesuffix(": No such file or directory")


def canonical(name: str) -> str:
    """Spell a package as indexes do: lower case, single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip_install(names: Iterable[str], tested: Mapping[str, str]) -> str:
    pins = {name: tested.get(canonical(name)) for name in names}
    wanted = (f"{name}=={pin}" if pin else name for name, pin in pins.items())
    return f"pip install {' '.join(wanted)}"
