"""Questions to a runtime, each answered in a child process that may die of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a child process found out.

    Attributes:
        facts: What it wrote down; empty when it did not get that far.
        words: All it and the native code below it printed.
        ended: How it died, or empty when it ended well.

    """

    facts: Mapping[str, Any]
    words: str = ""
    ended: str = ""


Ask: TypeAlias = Callable[..., Answer]
"""Puts a question, with arguments, to a process that may die of it."""

_ROOT = Path(__file__).parents[3]
# The folder is appended, not put first, lest a package there hide a standard one.
_CHILD = """
import sys
sys.path.append(sys.argv[1])
from harness.commands.doctor.child import answer
answer(*sys.argv[2:])
"""
_ANSWER = "answer.json"

# y = x + x over four float32 values; written out, so that asking needs no onnx.
_ONNX_MODEL = (
    b'\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08'
    b"\x08\x01\x12\x04\n\x02\x08\x04b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08"
    b"\x04B\x04\n\x00\x10\r"
)
# float16 rounds this to 1, so the result also tells in which precision it was made.
_FED = 1 + 2**-12


def ask_child(question: str, *arguments: str, timeout_s: float = 60.0) -> Answer:
    """Put one of `QUESTIONS` to a fresh process, in an empty folder of its own."""
    command = [sys.executable, "-c", _CHILD, str(_ROOT), question, *arguments]
    with tempfile.TemporaryDirectory(prefix="parity-doctor-") as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            ended = f"did not answer within {timeout_s:.0f} s"
            return Answer(facts={}, ended=ended)
        words = f"{done.stdout}\n{done.stderr}"
        if done.returncode < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-done.returncode).name
                return Answer(facts={}, words=words, ended=f"crashed with {name}")
        if done.returncode != 0:
            last = done.stderr.strip().rpartition("\n")[2] or "without a word"
            return Answer(facts={}, words=words, ended=f"failed: {last}")
        try:
            facts = json.loads(Path(folder, _ANSWER).read_text(encoding="utf-8"))
        except FileNotFoundError:  # native code can end a process with a zero
            return Answer(facts={}, words=words, ended="ended without an answer")
    return Answer(facts=facts, words=words)


def answer(question: str, *arguments: str) -> None:
    """Answer one question into the current folder; native code owns the stdout."""
    facts = QUESTIONS[question](*arguments)
    Path(_ANSWER).write_text(json.dumps(facts), encoding="utf-8")


def _onnx() -> dict[str, Any]:
    import onnx

    onnx.load_from_string(_ONNX_MODEL)
    return {"version": onnx.__version__}


def _torch() -> dict[str, Any]:
    import torch

    return {"threads": torch.get_num_threads(), "cuda": torch.version.cuda or ""}


def _numba() -> dict[str, Any]:
    import numba

    import harness

    # A function that claims to stand in harness/ is cached where the kernels are.
    place = str(Path(str(harness.__file__)))
    scope: dict[str, Any] = {}
    source = "def parity_doctor_probe(x):\n    return x + x\n"
    exec(compile(source, place, "exec"), scope)  # noqa: S102  # our own two lines
    probe = scope["parity_doctor_probe"]
    try:
        first = numba.njit(cache=True)(probe)
    except RuntimeError:  # numba found no folder it may write
        return {"cached": False, "right": numba.njit(probe)(_FED) == 2 * _FED}
    right = first(_FED) == 2 * _FED
    again = numba.njit(cache=True)(probe)
    again(_FED)
    for path in Path(again.stats.cache_path).glob("*parity_doctor_probe*"):
        path.unlink(missing_ok=True)
    return {"cached": bool(again.stats.cache_hits), "right": right}


def _onnxruntime() -> dict[str, Any]:
    import onnxruntime

    return {
        "providers": onnxruntime.get_available_providers(),
        "cuda": getattr(onnxruntime, "cuda_version", None) or "",
    }


def _provider(name: str) -> dict[str, Any]:
    import numpy as np
    import onnxruntime

    if name != "CPUExecutionProvider" and hasattr(onnxruntime, "preload_dlls"):
        # CUDA that came with PyTorch or pip is not on the loader's path.
        onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(_ONNX_MODEL, providers=[name])
    (result,) = session.run(None, {"x": np.full(4, _FED, np.float32)})
    return {"got": session.get_providers()[0], **_held(result)}


def _driver() -> dict[str, Any]:
    import ctypes

    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return {"cuda": ""}
    version, count = ctypes.c_int(), ctypes.c_int()
    failed = (
        driver.cuInit(0)
        or driver.cuDriverGetVersion(ctypes.byref(version))
        or driver.cuDeviceGetCount(ctypes.byref(count))
    )
    if failed or not count.value:
        return {"cuda": ""}
    return {"cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}


def _mnn(backend: str, precision: str) -> dict[str, Any]:
    import MNN
    import numpy as np
    from MNN import expr

    x = expr.placeholder([1, 4], expr.NCHW)
    x.name = "x"
    y = x + x
    y.name = "y"
    expr.save([y], "model.mnn")

    interpreter = MNN.Interpreter("model.mnn")
    asked = {"backend": backend, "precision": precision, "numThread": 1}
    session = interpreter.createSession(asked)
    fed = np.full((1, 4), _FED, np.float32)
    interpreter.getSessionInput(session).copyFrom(_mnn_tensor(fed))
    interpreter.runSession(session)
    result = np.zeros((1, 4), np.float32)
    out = _mnn_tensor(result)
    interpreter.getSessionOutput(session).copyToHostTensor(out)
    return _held(out.getNumpyData())


def _mnn_tensor(values: Any) -> Any:
    import MNN

    layout = MNN.Tensor_DimensionType_Caffe
    return MNN.Tensor(values.shape, MNN.Halide_Type_Float, values, layout)


def _converter() -> dict[str, Any]:
    import _tools
    import MNN  # noqa: F401  # the extension finds its symbols in this one

    Path("model.onnx").write_bytes(_ONNX_MODEL)
    # Never MNN.tools: it installs packages and reports to a log service. And
    # never its return value: that is True after a failure.
    _tools.mnnconvert(
        [
            "mnnconvert",
            *("--framework", "ONNX"),
            *("--modelFile", "model.onnx"),
            *("--MNNModel", "model.mnn"),
        ]
    )
    made = Path("model.mnn")
    return {"made": made.is_file() and made.stat().st_size > 0}


def _held(result: Any) -> dict[str, Any]:
    """Hold each element against the exact answer; doubling is exact in float32."""
    value = float(result.ravel()[0])
    return {"value": value, "fed": _FED, "right": bool((result == 2 * _FED).all())}


QUESTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "onnx": _onnx,
    "torch": _torch,
    "numba": _numba,
    "onnxruntime": _onnxruntime,
    "provider": _provider,
    "driver": _driver,
    "mnn": _mnn,
    "converter": _converter,
}
