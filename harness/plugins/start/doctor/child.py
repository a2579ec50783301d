"""Tiny runs, each in a child process, because a run may crash its process."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.case import GIVEN, Component, Device, Source, TensorSpec, Variant
from harness.core.errors import StageError
from harness.core.program import ended
from harness.core.received import decode
from harness.core.runtime import EXACT, resolve, runs_exported, runtime

_ROOT = Path(__file__).parents[4]
# The folder is appended, so that no package in it can hide a standard one.
_CHILD = """
import sys
sys.path.append(sys.argv[1])
from harness.plugins.start.doctor.child import answer
answer(*sys.argv[2:])
"""
_ANSWER = "answer.json"

# y = x + x over four float32 values, as bytes, so that a tiny run needs no onnx.
_ONE_OPERATOR = (
    b'\x08\x08:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08'
    b"\x08\x01\x12\x04\n\x02\x08\x04b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08"
    b"\x04B\x04\n\x00\x10\r"
)
# float16 rounds this to 1, so the result also shows the precision of the run.
_FED = 1 + 2**-12

LIMIT_S = 60.0
"""Seconds that a child process has."""

COMPILE_S = 600.0
"""Seconds that the child process has that may compile the comparison. It needs 11 s of
processor time, which took over a minute where ten processes shared two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a child process.

    Attributes:
        facts: The facts that it wrote; empty if it ended before that.
        ended: How it failed; empty if it ended normally.
        log: What it wrote to standard error.

    """

    facts: Mapping[str, Any]
    ended: str = ""
    log: str = ""


def ask_child(function: str, *arguments: str, timeout_s: float = LIMIT_S) -> Answer:
    """Call a function in a new process, in an empty folder.

    The function is ``module:function``, or one of this module. It takes texts, and
    returns facts that JSON can hold.
    """
    name = function if ":" in function else f"{__name__}:{function}"
    command = [sys.executable, "-c", _CHILD, str(_ROOT), name, *arguments]
    with tempfile.TemporaryDirectory(prefix="parity-doctor-") as folder:
        # Native code may print to stdout, and what it prints is no error.
        done = ended(command, Path(folder), limit_s=timeout_s, stdout=False)
        if done.code:
            return Answer(facts={}, ended=done.words)
        try:
            facts = json.loads(Path(folder, _ANSWER).read_text(encoding="utf-8"))  # noqa: TID251  # our own child's; a number may be NaN
        except FileNotFoundError:  # native code can end a process with exit code 0
            return Answer(facts={}, ended="ended without an answer")
    return Answer(facts=facts, log=done.text)


def answer(function: str, *arguments: str) -> None:
    """Call a function and write its result to a file; native code may use stdout."""
    facts = resolve(function)(*arguments)
    Path(_ANSWER).write_text(json.dumps(facts), encoding="utf-8")


def run_on(name: str, told: str) -> dict[str, Any]:
    """Convert and run a model of one operator, as every case is converted and run.

    Args:
        name: Name of the runtime.
        told: The device, in JSON.

    Returns:
        The runtime's ``version``, the ``detail`` of its session, and the ``value`` that
        it computes for 2 × ``fed``; or ``refused``, the reason why it does not run on
        the device.

    """
    import numpy as np

    from harness.runtimes.session import open_session

    declared, asked = runtime(name), decode(told, Device)
    exported = Path("exported", "model.onnx")
    exported.parent.mkdir()
    exported.write_bytes(_ONE_OPERATOR)
    component = Component(
        name="doctor",
        recipe=GIVEN,
        source=Source(path=exported),
        inputs=(TensorSpec(name="x", shape=(4,)),),
        outputs=(TensorSpec(name="y", shape=(4,)),),
    )
    feeds = {"x": np.full(4, _FED, np.float32)}
    try:
        path = exported
        if not runs_exported(name, EXACT):
            path = Path("converted", declared.model)
            path.parent.mkdir()
            resolve(f"{declared.package}.convert:convert")(
                exported,
                Variant(name=EXACT, backend=name, kind=EXACT),
                path.parent,
                component=component,
                probes=(),
                native=None,
            )
        with open_session(name, path, asked, ["y"]) as session:
            result = session.run(feeds)["y"]
            version, detail = session.ran.version, dict(session.ran.detail)
    except StageError as error:
        return {"refused": str(error)}
    # Doubling is exact in float32.
    right = bool((result == 2 * _FED).all())
    value = float(result.ravel()[0])
    facts = {"version": version, "detail": detail}
    return {**facts, "right": right, "value": value, "fed": _FED}


def load(name: str) -> dict[str, Any]:
    """Import onnx and read a model, import PyTorch, or compare two arrays.

    The last loads the compiled comparison of numba, or compiles it.
    """
    if name == "onnx":
        import onnx

        onnx.load_from_string(_ONE_OPERATOR)
    elif name == "torch":
        import torch  # noqa: F401
    else:
        import harness.measure.precompile  # noqa: F401

    return {}
