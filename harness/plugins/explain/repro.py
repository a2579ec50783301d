"""A folder for a bug report upstream: the cut model, its inputs, and a short script.

The script needs only numpy and the runtime. It exits with 1 while the two differ.
Its text is the same for every divergence. All values are data beside it, in
``repro.json``, so no name from a model's file can become code.
"""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from harness.core.case import GIVEN
from harness.core.private import public
from harness.core.record import OUTPUTS
from harness.core.runtime import runtime
from harness.core.text import operator
from harness.engine import export_files
from harness.engine.engine import Engine
from harness.judge.reference import of_reference
from harness.measure.compare import UNIT_ROUNDOFF
from harness.plugins.explain.excerpt import deployed_file
from harness.plugins.explain.excerpts import Around, error_in_floors, error_words
from harness.suite.places import script_of

EXPORTED = "exported.onnx"
NOISE = 32.0
"""The script treats two values as equal if they differ by at most so many floors."""

SCRIPT: Final = "repro.py"
VALUES: Final = "repro.json"

_END = Path(__file__).with_name("repro_end.txt")


def fill(
    folder: Path, engine: Engine, around: Around, about: Mapping[str, str]
) -> None:
    """Write the files of a repro into an empty folder.

    `about` has the ``title`` of the divergence, and the ``answer`` in ``expected.npy``.
    """
    import numpy as np

    from harness.measure.trace import OUTPUT, arrays_of, open_trace

    excerpt = around.excerpt
    case, entry = excerpt.case, excerpt.entry
    deployed = deployed_file(engine, excerpt)
    exported = entry.file(export_files.MODEL)
    shutil.copyfile(deployed, folder / deployed.name)
    for weights in (*runtime(case.backend).weights, export_files.WEIGHTS):
        if (deployed.parent / weights).is_file():
            shutil.copyfile(deployed.parent / weights, folder / weights)
    if deployed != exported and not runtime(case.backend).as_exported:
        shutil.copyfile(exported, folder / EXPORTED)
    (output,) = case.component.outputs
    trace = open_trace(entry.path)
    np.save(folder / "expected.npy", trace[OUTPUT + output.name])
    arrays = arrays_of(entry)
    np.savez(folder / "inputs.npz", *arrays.values(), allow_pickle=False)
    said = {name: public(text) for name, text in about.items()}
    own = script_of(case.device)
    values = {**said, "inputs": list(arrays), **_values(around)}
    values |= own.values if own else {}
    if "PyTorch" not in about["answer"]:
        values["looks"] = of_reference(str(values["looks"]))
    told = msgspec.json.format(msgspec.json.encode(values), indent=1)
    (folder / VALUES).write_bytes(told + b"\n")
    beginning = _script(case.backend, str(values.get("api", "")))
    script = own.text if own else beginning.read_text(encoding="utf-8")
    end = _END.read_text(encoding="utf-8")
    (folder / SCRIPT).write_text(f"{script}{end}", encoding="utf-8")
    for name, text in own.files.items() if own else ():
        (folder / name).write_text(text, encoding="utf-8")


def _script(backend: str, api: str) -> Path:
    """Return the file with the text that runs a model by one of a runtime's APIs."""
    home = runtime(backend).home
    own = home / f"repro_{api}.txt"
    return own if own.is_file() else home / "repro.txt"


def about_pytorch(around: Around) -> dict[str, str]:
    """Return what is said of an excerpt with PyTorch's own numbers."""
    where = f"{around.layer.place} ({operator(around.layer.op)})"
    said = {
        "title": f"{around.excerpt.case.id} diverges from PyTorch at {where}",
        "answer": "PyTorch's float32 answer",
    }
    if around.excerpt.case.component.recipe != GIVEN:
        return said
    return {name: of_reference(text) for name, text in said.items()}


def _values(around: Around) -> dict[str, object]:
    """Return what the script reads, and what its reader wants to know."""
    case, layer = around.excerpt.case, around.layer
    output = next(row for row in around.record.rows if row.what == OUTPUTS)
    ran = cast("dict[str, Any]", around.record.ran or {})
    declared, kind = runtime(case.backend), case.variant.kind
    built_in = declared.variants.get(kind)
    flags = built_in.flags if built_in and built_in.flags else (kind,)
    multiple = error_in_floors(layer)
    found = layer.comparison
    floor = found.floor_rms or UNIT_ROUNDOFF * found.expected_rms
    # Of another shape nothing is measured, and the script needs a number all the same.
    floor = floor if math.isfinite(floor) else 0.0
    # The script must also fail if a tolerance tighter than noise is exceeded.
    allowed = min(NOISE, multiple / 2) if around.shows else NOISE
    as_deployed = around.what == OUTPUTS or (
        (output.comparison.floor_multiple or 0.0) > multiple / 2
    )
    script: Any = importlib.import_module(f"{declared.package}.repro")
    return {
        "error": error_words(multiple, case),
        "looks": public(layer.looks),
        "output": output.probe,
        "runtime": declared.title,
        "version": ran.get("version", ""),
        "made_with": [public(flag) for flag in (*flags, *case.variant.flags)],
        "device": case.device.device,
        "precision": case.device.precision,
        "threads": case.device.threads,
        **script.words(case.device, as_deployed=as_deployed),
        # Of a runtime with several APIs, the one that ran: a script needs the same.
        **({"api": ran["api"]} if "api" in ran else {}),
        # The error that float32 itself brings here, and what the script allows.
        "floor_rms": float(f"{floor:.6e}"),
        "allowed_rms": float(f"{allowed * floor:.6e}"),
    }
