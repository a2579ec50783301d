"""Questions to a runtime, each answered in a child process that may die of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.core.doctor import FED, ONE_OPERATOR, Answer
from harness.core.runtime import resolve

_ROOT = Path(__file__).parents[3]
# The folder is appended, not put first, lest a package there hide a standard one.
_CHILD = """
import sys
sys.path.append(sys.argv[1])
from harness.commands.doctor.child import answer
answer(*sys.argv[2:])
"""
_ANSWER = "answer.json"


def ask_child(question: str, *arguments: str, timeout_s: float = 60.0) -> Answer:
    """Put a question to a fresh process, in an empty folder of its own.

    Args:
        question: One of `QUESTIONS`, or ``module:function`` of a runtime's own.
        *arguments: Of the function that answers.
        timeout_s: Limit of the process.

    """
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
    asked = resolve(question) if ":" in question else QUESTIONS[question]
    facts = asked(*arguments)
    Path(_ANSWER).write_text(json.dumps(facts), encoding="utf-8")


def _onnx() -> dict[str, Any]:
    import onnx

    onnx.load_from_string(ONE_OPERATOR)
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
        return {"cached": False, "right": numba.njit(probe)(FED) == 2 * FED}
    right = first(FED) == 2 * FED
    again = numba.njit(cache=True)(probe)
    again(FED)
    for path in Path(again.stats.cache_path).glob("*parity_doctor_probe*"):
        path.unlink(missing_ok=True)
    return {"cached": bool(again.stats.cache_hits), "right": right}


QUESTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "onnx": _onnx,
    "torch": _torch,
    "numba": _numba,
}
