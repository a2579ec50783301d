"""Conversions that go wrong, and files that are not what was converted."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.catalogue.fault import Fault, InConverter, InFiles, fault

_REAL = """
import subprocess, sys, pathlib
program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
subprocess.run([sys.executable, "-c", program, *sys.argv[1:]], check=False)
model = pathlib.Path(sys.argv[sys.argv.index("--MNNModel") + 1])
weights = model.with_name(model.name + ".weight")
"""
"""What a converter here begins with: a conversion that is right."""

LIES = "print('Converted Success!')"
CRASHES = "import os; os.abort()"
HANGS = "import time; time.sleep(3600)"
LOSES_WEIGHTS = _REAL + "weights.unlink()"
HALF_OF_THE_MODEL = _REAL + "model.write_bytes(model.read_bytes()[:2000])"
HALF_OF_THE_WEIGHTS = (
    _REAL + "data = weights.read_bytes(); weights.write_bytes(data[: len(data) // 2])"
)
OFF_BY_FOUR_BYTES = (
    _REAL + "data = weights.read_bytes(); weights.write_bytes(data[4:] + data[:4])"
)


def _truncated(folder: Path, _: Path) -> None:
    file = _largest(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _one_bit(folder: Path, _: Path) -> None:
    file = _largest(folder)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _lost(folder: Path, _: Path) -> None:
    _largest(folder).unlink()


def _other(folder: Path, other: Path) -> None:
    for file in other.iterdir():
        if file.name != "entry.json":
            shutil.copyfile(file, folder / file.name)


def _largest(folder: Path) -> Path:
    files = [file for file in folder.iterdir() if file.suffix != ".json"]
    return max(files, key=lambda file: file.stat().st_size)


def _file(
    name: str,
    change: Callable[[Path, Path], None],
    *expects: str,
    other: str = "",
    sealed: bool = True,
    **rest: Any,
) -> Fault:
    plant = InFiles(change=change, other=other, sealed=sealed)
    return fault("conversion", plant, name, "text_encoder", *expects, **rest)


def _converter(name: str, script: str, *expects: str, **rest: Any) -> Fault:
    plant, rest["backends"] = InConverter(script=script), ("mnn",)
    return fault("conversion", plant, name, "text_encoder", *expects, **rest)


ORT, MNN = ("onnxruntime",), ("mnn",)

FAULTS = (
    _converter("converter-says-success-and-leaves-nothing", LIES, "left no file"),
    _converter("converter-crashes", CRASHES, "SIGABRT"),
    _converter("converter-hangs", HANGS, "timed-out", hangs=True),
    _converter("converter-loses-weights", LOSES_WEIGHTS, "left no model.mnn.weight"),
    _converter(
        "converter-truncates-the-model", HALF_OF_THE_MODEL, "does not load", "crashed"
    ),
    _converter(
        "converter-truncates-weights", HALF_OF_THE_WEIGHTS, "wrote too few weights"
    ),
    _converter("weights-off-by-four-bytes", OFF_BY_FOUR_BYTES, "shifted by one along"),
    _file(
        "stale-file",
        _other,
        "was changed after it was made",
        "changed:",
        other="fp16-weights",
        backends=MNN,
    ),
    _file("truncated-weights", _truncated, "truncated"),
    _file("one-bit-flipped", _one_bit, "was changed after it was made"),
    _file("weights-lost", _lost, "missing"),
    _file(
        "truncated-and-recorded-so",
        _truncated,
        "truncated",
        "refuses",
        "crashed",
        sealed=False,
        backends=ORT,
    ),
    _file(
        "float16-served-as-float32",
        _other,
        "rounded to float16",
        also=("its weights have fewer bits in the file: 16",),
        other="fp16",
        sealed=False,
        backends=ORT,
    ),
    _file(
        "float16-weights-served-as-float32",
        _other,
        "rounded to float16",
        other="fp16-weights",
        sealed=False,
        backends=MNN,
    ),
    _file(
        "int8-served-as-float32",
        _other,
        "fewer bits",
        other="int8-weights",
        sealed=False,
    ),
    _file(
        "int4-served-as-int8",
        _other,
        "SQNR",
        also=("weights of fewer bits", "more than float32 rounds"),
        other="int4-weights",
        sealed=False,
        backends=MNN,
        variant="int8-weights",
    ),
)
