"""ONNX to MNN, judged by the file that it leaves and by nothing that it says.

MNN's converter exits 0 and prints success on failure, and leaves an older file in
place. Here it writes into an empty folder, and the file must load and have the right
inputs and outputs. The wheel's command-line wrapper is never used: importing it
installs packages and reports to a server. The extension module behind it does neither.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.case import Component, TensorSpec, Variant
from harness.core.contract import Found, Sides, breach
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import Probe
from harness.runtimes.graph.origin import origin_of
from harness.runtimes.mnn import MODEL, RUNTIME, WEIGHTS

_UNSUPPORTED = re.compile(r"These Op Not Support: (?P<ops>.+)")
_OLDER_OPSET = (
    "Exporting with opset = 18 in [component.{component}] avoids it: a newer opset has "
    "one operator for what it is written out in there, which MNN takes."
)
_WAY_OUT = {
    "Attention": _OLDER_OPSET,
    "GroupNormalization": _OLDER_OPSET,
    "RMSNormalization": _OLDER_OPSET,
    "Mish": (
        'Exporting with exporter = "torchscript" in [component.{component}] avoids it: '
        "dynamo writes Mish as one operator, torchscript as Softplus, Tanh and Mul."
    ),
    "IsNaN": (
        'Exporting with attention = "eager" in [component.{component}] avoids it: '
        "masked scaled_dot_product_attention guards against NaN. Of a file that others "
        'exported, whoever does it gives the model attn_implementation="eager".'
    ),
}
"""Operator that MNN 3.6 lacks to what exports without it; each was tried."""
_TAIL_LINES = 8


def convert(
    source: Path,
    variant: Variant,
    folder: Path,
    *,
    component: Component,
    probes: Sequence[Probe],
    native: str | None,
) -> dict[str, object]:
    """Convert the graph at `source` to a variant; see `convert_mnn`."""
    return convert_mnn(
        source,
        variant.kind,
        variant.flags,
        folder,
        component=component,
        probes=probes,
        native=native,
    )


def convert_mnn(  # one conversion's whole circumstances
    source: Path,
    kind: str,
    flags: Sequence[str],
    folder: Path,
    *,
    component: Component,
    probes: Sequence[Probe],
    native: str | None,
) -> dict[str, object]:
    """Convert the ONNX file at `source` into the empty `folder`.

    Args:
        source: The exported model.
        kind: A key of `FLAGS`.
        flags: Added after the variant's own, so that they win.
        folder: Gets ``model.mnn`` and ``model.mnn.weight``.
        component: Whose inputs and outputs the file must have.
        probes: To say which module an unsupported operator comes from.
        native: A native converter to use instead of the wheel's.

    Returns:
        The command's arguments and the converter's log.

    Raises:
        StageError: No loadable file with these inputs and outputs came out.

    """
    target = folder / MODEL
    arguments = [
        "-f", "ONNX",
        "--modelFile", str(source.absolute()),
        "--MNNModel", str(target.absolute()),
        "--bizCode", "parity",
        "--saveExternalData=1",
        *RUNTIME.variants[kind].flags,
        *flags,
    ]  # fmt: skip
    log = _run_converter(arguments, native)
    if found := _UNSUPPORTED.search(log):
        _unsupported(found["ops"], component.name, probes, log, source)
    if not target.is_file() or not target.stat().st_size:
        _fail(
            f"{component.name}: the MNN converter left no file; it says: {_tail(log)}",
            log,
        )
    if not (folder / WEIGHTS).is_file():  # empty, where there are no weights
        msg = f"{component.name}: the MNN converter left no {WEIGHTS} by its {MODEL}."
        _fail(msg, log)
    _check_loads(target, component, log)
    return {
        "arguments": [*RUNTIME.variants[kind].flags, *flags],
        "converter": native or "wheel",
    }


def _run_converter(arguments: Sequence[str], native: str | None) -> str:
    if native:
        command = [str(Path(native).absolute()), *arguments]
    else:
        program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
        command = [sys.executable, "-c", program, *arguments]
    # It keeps weights in a file of a fixed name where it is started: two of them in one
    # folder write zeros into each other's.
    with tempfile.TemporaryDirectory() as alone:
        # The caller bounds this process; the converter dies with it.
        done = subprocess.run(  # a program that the user named, or ours
            command,
            cwd=alone,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            errors="replace",
        )
    if done.returncode < 0:
        return f"{done.stdout}\n{_signal(-done.returncode)} ended the converter"
    return done.stdout


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _check_loads(target: Path, component: Component, log: str) -> None:
    import MNN

    try:
        net = MNN.Interpreter(str(target))
        session = net.createSession({"backend": "CPU", "numThread": 1})
        sides = Sides(
            inputs=_found(net.getSessionInputAll(session), component.inputs),
            outputs=_found(net.getSessionOutputAll(session), ()),
        )
    except Exception as error:  # noqa: BLE001  # MNN raises no class of its own
        _fail(f"{component.name}: the converted file does not load ({error}).", log)
    # A session's sizes are those of the moment, so none is held to stay open.
    where = "the converted file"
    if words := breach(component, None, sides, where=where, ordered=False):
        _fail(f"{words} The converter lost or renamed it, or changed it.", log)


def _found(
    tensors: Mapping[str, Any], promised: Sequence[TensorSpec]
) -> tuple[Found, ...]:
    """Return what a session has; MNN's integers are of 32 bits, whatever was asked."""
    import MNN

    asked = {spec.name: spec.dtype for spec in promised}
    found = []
    for name, tensor in tensors.items():
        floating = tensor.getDataType() == MNN.Halide_Type_Float
        dtype = asked.get(name, "")
        if dtype and dtype.startswith("float") != floating:
            dtype = "float32" if floating else "int32"
        axes = (None,) * len(tensor.getShape()) if name in asked else None
        found.append(Found(name=name, dtype=dtype, shape=axes))
    return tuple(found)


def _unsupported(
    operators: str, component: str, probes: Sequence[Probe], log: str, source: Path
) -> None:
    import onnx

    names = sorted(
        {
            name.strip().removeprefix("ONNX::")
            for name in re.split(r"[,\s]+", operators)
            if name.strip()
        }
    )
    graph = onnx.load(source, load_external_data=False).graph
    origin = origin_of([node for node in graph.node if node.op_type in names], probes)
    hints = [
        _WAY_OUT[name].format(component=component) for name in names if name in _WAY_OUT
    ]
    way_out = (
        " ".join(dict.fromkeys(hints))
        or "Another exporter, opset or a rewrite may avoid it."
    )
    lacked = f"it has no operator {', '.join(names)}."
    words = " ".join(filter(None, (lacked, origin, way_out)))
    _fail(f"{component} cannot be converted to MNN: {words}", log)


def _tail(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-_TAIL_LINES:]) or "nothing"


def _fail(message: str, log: str) -> None:
    raise StageError(message, outcome=Outcome.CONVERT, log=log)
