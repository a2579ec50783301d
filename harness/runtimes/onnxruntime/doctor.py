"""What `parity doctor` looks at in ONNX Runtime."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.doctor import FED, ONE_OPERATOR, Ask, Finding, Status, compared, ran

_PACKAGES = frozenset({"onnxruntime", "onnxruntime-gpu"})


def examine(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Look for two packages in one folder, and try each provider.

    Args:
        ask: Puts a question to a process of its own.
        have: Installed packages and their versions.

    """
    yield from check_shadowing(have)
    yield from check_onnxruntime(ask, have)


def check_shadowing(have: Mapping[str, str]) -> Iterator[Finding]:
    """Look for two packages that claim the folder of ONNX Runtime."""
    if set(have) >= _PACKAGES:
        yield Finding(
            check="onnxruntime",
            status=Status.FAIL,
            says="onnxruntime and onnxruntime-gpu are both installed and share one "
            "folder: which one runs is left to chance",
            mend="pip uninstall -y onnxruntime onnxruntime-gpu && "
            f"pip install onnxruntime-gpu=={have['onnxruntime-gpu']}",
        )


def check_onnxruntime(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each provider that ONNX Runtime lists."""
    listed = ask(f"{__name__}:providers")
    if listed.ended:
        yield Finding(
            check="onnxruntime",
            status=Status.FAIL,
            says=f"import onnxruntime {listed.ended}",
        )
        return
    version = next((have[name] for name in _PACKAGES if name in have), "")
    newest = ask(f"{__name__}:driver").facts.get("cuda", "")
    torch_cuda = ask("torch").facts.get("cuda", "") if newest else ""
    # CPU first: the rest falls back to it.
    for name in reversed(listed.facts["providers"]):
        answer = ask(f"{__name__}:provider", name)
        check = f"onnxruntime {name.removesuffix('ExecutionProvider')}"
        if not answer.ended and answer.facts["got"] == name:
            yield ran(check, version, answer)
            continue
        wanted = name == "CPUExecutionProvider"
        usable = name == "CUDAExecutionProvider" and bool(newest)
        status = Status.FAIL if wanted else Status.WARN if usable else Status.ABSENT
        mend = (
            cuda_fit(driver=newest, torch=torch_cuda, onnxruntime=listed.facts["cuda"])
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


def _refusal(words: str) -> str:
    """Return why ONNX Runtime refused a provider, in its own words."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", words)
    cause = re.search(r"with error: (.+)", plain) or re.search(r"EP Error (.+)", plain)
    if not cause:
        return "it gives no reason"
    return cause[1].strip().removesuffix(": No such file or directory")


def providers() -> dict[str, Any]:
    """Answer which providers this build lists, and the CUDA it was built with."""
    import onnxruntime

    return {
        "providers": onnxruntime.get_available_providers(),
        "cuda": getattr(onnxruntime, "cuda_version", None) or "",
    }


def provider(name: str) -> dict[str, Any]:
    """Answer what a model of one operator gives on a provider."""
    import numpy as np
    import onnxruntime

    if name != "CPUExecutionProvider" and hasattr(onnxruntime, "preload_dlls"):
        # CUDA that came with PyTorch or pip is not on the loader's path.
        onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(ONE_OPERATOR, providers=[name])
    (result,) = session.run(None, {"x": np.full(4, FED, np.float32)})
    return {"got": session.get_providers()[0], **compared(result)}


def driver() -> dict[str, Any]:
    """Answer the newest CUDA that the driver runs; empty without a GPU."""
    import ctypes

    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return {"cuda": ""}
    version, count = ctypes.c_int(), ctypes.c_int()
    failed = (
        library.cuInit(0)
        or library.cuDriverGetVersion(ctypes.byref(version))
        or library.cuDeviceGetCount(ctypes.byref(count))
    )
    if failed or not count.value:
        return {"cuda": ""}
    return {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}
