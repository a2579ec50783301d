"""A folder for a bug report upstream: the cut model, its inputs, and a short script.

The script needs only numpy and the runtime. It exits with 1 while the two differ.
"""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, cast

from harness.commands.explain.excerpts import Around, error_in_floors
from harness.core.record import OUTPUTS
from harness.core.runtime import runtime
from harness.core.text import in_floors, operator
from harness.engine import export_files
from harness.engine.engine import Engine
from harness.measure.compare import UNIT_ROUNDOFF

EXPORTED = "exported.onnx"
NOISE = 32.0
"""The script treats two values as equal if they differ by at most so many floors."""

_END = Path(__file__).with_name("repro_end.txt")


def fill(
    folder: Path, engine: Engine, around: Around, about: Mapping[str, str]
) -> None:
    """Write the files of a repro into an empty folder.

    `about` has the ``title`` of the script, and the ``answer`` in ``expected.npy``.
    """
    import numpy as np

    from harness.measure.trace import OUTPUT, open_trace

    excerpt = around.excerpt
    case, entry = excerpt.case, excerpt.entry
    deployed = engine.deploy_excerpt(excerpt)
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
    arrays = {name: np.load(entry.file(f"{name}.npy")) for name in excerpt.given}
    np.savez(folder / "inputs.npz", allow_pickle=False, **arrays)
    (folder / "repro.py").write_text(_script(around, about), encoding="utf-8")


def about_pytorch(around: Around) -> dict[str, str]:
    """Return what the script says of an excerpt with PyTorch's own numbers."""
    where = f"{around.layer.place} ({operator(around.layer.op)})"
    return {
        "title": f"{around.excerpt.case.id} diverges from PyTorch at {where}",
        "answer": "PyTorch's float32 answer",
    }


def _script(around: Around, about: Mapping[str, str]) -> str:
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
    words = {
        **about,
        "looks": f"{layer.looks}. " if layer.looks else "",
        "floors": in_floors(multiple),
        "version": ran.get("version", "?"),
        "device": case.device.device,
        "asked": case.device.device.upper(),
        "precision": case.device.precision,
        "threads": case.device.threads,
        **script.words(case.device, as_deployed=as_deployed),
        "output": output.probe,
        "floor": f"{floor:.6e}",
        "allowed": f"{allowed * floor:.6e}",
        "flags": " ".join((*flags, *case.variant.flags)),
    }
    parts = (declared.home / "repro.txt", _END)
    text = "".join(part.read_text(encoding="utf-8") for part in parts)
    return Template(text).substitute(words)
