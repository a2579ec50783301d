"""Convert ONNX to MNN, and check the file that this leaves, not the messages.

When MNN's converter fails, it exits 0, prints success, and leaves an older file in
place. Here it writes into an empty folder, and the file must load and have the right
inputs and outputs. The wheel's command-line wrapper is never used: its import installs
packages and reports to a server. The extension module behind it does neither.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.case import Component, Variant
from harness.core.contract import Sides, breach
from harness.core.errors import StageError
from harness.core.onnx_ports import Port
from harness.core.outcome import Outcome
from harness.core.probes import Probe
from harness.core.program import ended, signal_name
from harness.engine.pythons import python_of
from harness.runtimes.graph.onnx_graph import origin_of
from harness.runtimes.mnn import MODEL, RUNTIME, WEIGHTS, file

if TYPE_CHECKING:
    import numpy as np

_UNSUPPORTED = re.compile(r"These Op Not Support: (?P<ops>.+)")
_REFUSED_FORM = re.compile(r"Convert Onnx's Op .*, type = (?P<op>\S+), failed.*")
"""The converter's line about an operator that it knows, in a form that it refuses. Its
reason stands in the line before."""

_MOST_REASONS = 3
_OLDER_OPSET = (
    "with opset = 18",
    "with opset 18",
    "a newer opset has one operator for what MNN takes written out",
)
_WAY_OUT = {
    "Attention": _OLDER_OPSET,
    "GroupNormalization": _OLDER_OPSET,
    "RMSNormalization": _OLDER_OPSET,
    "Mish": (
        'with exporter = "torchscript"',
        "by PyTorch's torchscript exporter",
        "dynamo writes Mish as one operator, torchscript as Softplus, Tanh and Mul",
    ),
    "IsNaN": (
        'with attention = "eager"',
        'from a model with attn_implementation="eager"',
        "masked scaled_dot_product_attention guards against NaN",
    ),
}
"""Operator that MNN 3.6 lacks, to ways to export without it, and why that helps: what
a suite sets, and what somebody does who exports a file by other means. Each way was
tried."""
_TAIL_LINES = 8
_FILE_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,60}")
"""A text that names a file, and no other place."""

_PROGRESS = re.compile(r"\[\d\d:|Start to |Converted |inputTensors|outputTensors")
"""Beginnings of lines of the converter that are no reason of a refusal."""

_CLOCK = re.compile(r"^\[\d\d:\d\d:\d\d\] (@ \d+: |\S+:\d+: )?")


def convert(
    source: Path,
    variant: Variant,
    folder: Path,
    *,
    component: Component,
    probes: Sequence[Probe],
    native: str | None,
    calibration: Sequence[Mapping[str, np.ndarray]] = (),
) -> dict[str, object]:
    """Convert the ONNX file at `source` into the empty `folder`.

    The variant's own flags come after those of its kind, so that they win. `probes`
    name the module of an unsupported operator. `native` is a converter to use instead
    of the wheel's. `calibration` has sets of inputs by name, for MNN's offline
    quantization; it is empty for a variant that is not calibrated.

    Returns:
        The converter's flags, its name, and the number of layers by their bits.

    Raises:
        StageError: The converter wrote no loadable file with these inputs and outputs.

    """
    built_in = RUNTIME.variants[variant.kind].flags
    target = folder / MODEL
    arguments = [
        "-f", "ONNX",
        "--modelFile", str(source.absolute()),
        "--MNNModel", str(target.absolute()),
        "--bizCode", "parity",
        # The tool for offline quantization reads no weights beside a file.
        *([] if calibration else ["--saveExternalData=1"]),
        *built_in,
        *variant.converter_flags,
    ]  # fmt: skip
    python = sys.executable
    if variant.converter:
        python, native = str(python_of(RUNTIME, variant.converter)), None
    program = [python, "-c", "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"]
    log = _run([*([str(Path(native).absolute())] if native else program), *arguments])
    if found := _UNSUPPORTED.search(log):
        _unsupported(found["ops"], component, probes, log, source)
    if not target.is_file() or not target.stat().st_size:
        msg = f"{component.name}: the MNN converter left no file; it says: {_tail(log)}"
        _fail(msg, log)
    if calibration:
        log += _quantize(target, calibration, python)
        (folder / WEIGHTS).touch()
    if not (folder / WEIGHTS).is_file():  # empty, if there are no weights
        msg = f"{component.name}: the MNN converter left no {WEIGHTS} by its {MODEL}."
        _fail(msg, log)
    with suppress(ValueError):  # what is no .mnn file does not load, as is said below
        # MNN reads past the end of weights that are cut off, and computes with that.
        if words := file.lacking_mnn(target, folder / WEIGHTS):
            msg = f"{component.name}: the MNN converter wrote too few weights: {words}."
            _fail(msg, log)
    if not variant.converter:  # else only its own version must read the file
        _check_loads(target, component, log)
    flags = [*built_in, *variant.flags]
    made_by = variant.converter or native or "wheel"
    bits = Counter(layer.bits for layer in file.stored(target))
    stored = {str(each): bits[each] for each in sorted(bits)}
    return {"arguments": flags, "converter": made_by, "bits": stored}


def content(path: Path) -> bytes:
    """Return what decides about a converted file, to compare it with another."""
    return file.content(path) if path.name == MODEL else path.read_bytes()


def _run(command: Sequence[str]) -> str:
    # The converter keeps weights in a file of a fixed name in its working folder. Two
    # converters in one folder write zeros into each other's file.
    with tempfile.TemporaryDirectory() as alone:
        # The caller limits this process's time; the converter ends with it.
        done = ended(command, Path(alone), limit_s=math.inf)
    if done.code < 0:
        return f"{done.text}\n{signal_name(-done.code)} ended the converter"
    return done.text


def _quantize(
    target: Path, calibration: Sequence[Mapping[str, np.ndarray]], python: str
) -> str:
    """Quantize a converted file offline, in its place, and return the tool's log."""
    import numpy as np

    _refuse_no_file_names(calibration[0])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for index, inputs in enumerate(calibration):
            sample = folder / "inputs" / f"{index:04}"
            sample.mkdir(parents=True)
            for name, value in inputs.items():
                # Nine digits restore every float32 exactly.
                np.savetxt(sample / f"{name}.txt", value.reshape(1, -1), fmt="%.9g")
            (sample / "input.json").write_text(json.dumps({"inputs": _shapes(inputs)}))
        settings = {
            "path": f"{folder / 'inputs'}/",
            "used_sample_num": len(calibration),
            "input_type": "sequence",
            "inputs": _shapes(calibration[0]),
            "feature_quantize_method": "KL",
            "weight_quantize_method": "MAX_ABS",
            "feature_clamp_value": 127,
            "weight_clamp_value": 127,
            "batch_size": 1,
            "quant_bits": 8,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        made = folder / "quantized.mnn"
        program = "import sys, MNN, _tools; _tools.mnnquant(sys.argv)"
        files = (target.absolute(), made, folder / "settings.json")
        log = _run([python, "-c", program, *map(str, files)])
        # A tool that fails writes no file, and `target` must not pass for its result.
        target.unlink()
        if not made.is_file():
            msg = f"MNN's offline quantization left no file; it says: {_tail(log)}"
            _fail(msg, log)
        shutil.move(made, target)
    return log


def _refuse_no_file_names(inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse inputs whose names cannot name the files that MNN's tool reads."""
    together = Counter(name.casefold() for name in inputs)
    for name in inputs:
        if not _FILE_NAME.fullmatch(name) or together[name.casefold()] > 1:
            msg = (
                "MNN's tool for offline quantization reads a file that is named by the "
                f"input, and {name[:80]!r} can name none of its own: export the model "
                "with another name of this input, or leave the variant out."
            )
            _fail(msg, "")


def _shapes(inputs: Mapping[str, np.ndarray]) -> list[dict[str, object]]:
    return [
        {"name": name, "shape": list(value.shape)} for name, value in inputs.items()
    ]


def _check_loads(target: Path, component: Component, log: str) -> None:
    # A conversion is for any session, so what either API loads is whole.
    from harness.runtimes.mnn.ports import file_ports

    asked = {spec.name: spec.dtype for spec in component.inputs}
    try:
        taken, made = file_ports(target)
    except Exception as error:  # noqa: BLE001  # MNN raises no class of its own
        _fail(f"{component.name}: the converted file does not load ({error}).", log)
    sides = Sides(
        inputs=tuple(_as_asked(port, asked) for port in taken),
        outputs=tuple(Port(name=name, dtype="", shape=None) for name in made),
    )
    # A session has only its current sizes, so no size is checked to be open.
    where = "the converted file"
    if words := breach(component, None, sides, where=where, ordered=False):
        _fail(f"{words} The converter lost or renamed it, or changed it.", log)


def _as_asked(port: Port, asked: Mapping[str, str]) -> Port:
    """Return an input with its promised dtype if MNN has that as float32 or int32."""
    if port.name not in asked:
        return replace(port, dtype="", shape=None)
    dtype = asked[port.name]
    if dtype and dtype.startswith("float") != (port.dtype == "float32"):
        dtype = port.dtype
    return replace(port, dtype=dtype, shape=("",) * len(port.shape or ()))


def _unsupported(
    operators: str,
    component: Component,
    probes: Sequence[Probe],
    log: str,
    source: Path,
) -> None:
    import onnx

    names = sorted(
        {
            name.removeprefix("ONNX::")
            for name in re.split(r"[,|\s]+", operators)
            if name
        }
    )
    forms = _refused_forms(log)
    lacking = [name for name in names if name not in forms]
    graph = onnx.load(source, load_external_data=False).graph
    origin = origin_of([node for node in graph.node if node.op_type in names], probes)
    words = [
        *([f"it has no operator {', '.join(lacking)}."] if lacking else []),
        *(
            f"it has the operator {name}, and does not take this form of it: its "
            f'converter says "{"; ".join(forms[name])}".'
            for name in names
            if name in forms
        ),
        origin,
        _way_out(names, forms, component),
    ]
    msg = (
        f"{component.name} cannot be converted to MNN: {' '.join(filter(None, words))}"
    )
    _fail(msg, log)


def _refused_forms(log: str) -> dict[str, list[str]]:
    """Return the converter's reasons for each operator whose form it refuses."""
    found: dict[str, list[str]] = {}
    before = ""
    for line in map(str.strip, log.splitlines()):
        if refused := _REFUSED_FORM.fullmatch(line):
            said = found.setdefault(refused["op"], [])
            # Without a reason of its own, the refusal is all that the log says.
            reason = before or line
            if reason not in said and len(said) < _MOST_REASONS:
                said.append(reason)
            before = ""
        elif line and not _PROGRESS.match(line):
            before = line
    return found


def _way_out(
    names: Sequence[str], forms: Mapping[str, Sequence[str]], component: Component
) -> str:
    """Return what may avoid operators that MNN refuses, for this component's file."""
    taken = component.foreign is not None
    ways = dict.fromkeys(
        _WAY_OUT[name] for name in names if name in _WAY_OUT and name not in forms
    )
    hints = [
        f"Whoever exports it avoids it by an export {elsewhere}: {why}."
        if taken
        else f"Exporting {here} in [component.{component.name}] avoids it: {why}."
        for here, elsewhere, why in ways
    ]
    if hints:
        return " ".join(hints)
    if taken:
        return (
            "Another export of its model, or another operator in the place of this "
            "one, may avoid it."
        )
    if forms:
        return "Another exporter, or other code in the model, may avoid it."
    return "Another exporter, opset or a rewrite may avoid it."


def _tail(log: str) -> str:
    """Return the last lines of a log without MNN's clock and source line numbers."""
    lines = [_CLOCK.sub("", line.strip()) for line in log.splitlines() if line.strip()]
    return " / ".join(lines[-_TAIL_LINES:]) or "nothing"


def _fail(message: str, log: str) -> None:
    raise StageError(message, outcome=Outcome.CONVERT, log=log)
