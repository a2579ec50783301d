"""What `parity doctor` looks at in MNN and its converter."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.doctor import (
    FED,
    ONE_OPERATOR,
    Answer,
    Ask,
    Finding,
    Status,
    compared,
    ran,
)

_MNN_BACKENDS = ("CPU", "OPENCL", "VULKAN", "CUDA", "METAL")


def examine(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each backend and the converter.

    Args:
        ask: Puts a question to a process of its own.
        have: Installed packages and their versions.

    """
    yield from check_mnn(ask, have)
    yield from check_converter(ask)


def check_mnn(ask: Ask, have: Mapping[str, str]) -> Iterator[Finding]:
    """Try each backend, and whether low precision changes a number."""
    for backend in _MNN_BACKENDS:
        answer = ask(f"{__name__}:mnn", backend, "high")
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
            yield ran(check, have.get("MNN", ""), answer)
        if wanted and not answer.ended:
            yield _low_precision(ask(f"{__name__}:mnn", backend, "low"))


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
    answer = ask(f"{__name__}:converter")
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


def mnn(backend: str, precision: str) -> dict[str, Any]:
    """Answer what a model of one operator gives on a backend."""
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
    fed = np.full((1, 4), FED, np.float32)
    interpreter.getSessionInput(session).copyFrom(_mnn_tensor(fed))
    interpreter.runSession(session)
    result = np.zeros((1, 4), np.float32)
    out = _mnn_tensor(result)
    interpreter.getSessionOutput(session).copyToHostTensor(out)
    return compared(out.getNumpyData())


def _mnn_tensor(values: Any) -> Any:
    import MNN

    layout = MNN.Tensor_DimensionType_Caffe
    return MNN.Tensor(values.shape, MNN.Halide_Type_Float, values, layout)


def converter() -> dict[str, Any]:
    """Answer whether the wheel's converter left a file."""
    import _tools
    import MNN  # noqa: F401  # the extension finds its symbols in this one

    Path("model.onnx").write_bytes(ONE_OPERATOR)
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
