"""A folder for a bug report upstream: the cut model, its inputs, and a short script.

The script needs only numpy and the runtime. It exits with 1 while the two differ.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any, cast

from harness.commands.explain.excerpts import (
    Around,
    blamed,
    smallest_excerpt,
    with_local_errors,
)
from harness.core.case import Case, Sample
from harness.core.errors import SuiteError
from harness.core.record import LAYERS, OUTPUTS, CaseRecord
from harness.core.runtime import runtime
from harness.core.text import in_floors, operator
from harness.engine import export_files
from harness.engine.engine import Engine
from harness.suite.judge import Judge
from harness.suite.schema import Limits

EXPORTED = "exported.onnx"
NOISE = 32.0
"""The script treats two values as equal if they differ by at most so many floors."""

Telling = Callable[[Around], dict[str, str]]

_END = Path(__file__).with_name("repro_end.txt")


def write_repro(
    engine: Engine,
    judge: Judge,
    case: Case,
    into: Path,
    *,
    probe: str = "",
    post: Limits | None = None,
    say: Callable[[str], None],
) -> Around:
    """Cut out a case's first divergence and write the folder `into`, in one move.

    Args:
        engine: The engine that runs cases.
        judge: The judge that applies the tolerances.
        case: The case with the divergence.
        into: A folder that does not exist yet.
        probe: The value to cut at; without it, the first divergence.
        post: The suite's limits, where the folder must have nothing of the user's:
            every weight and input is drawn then.
        say: Receives the name of the next step.

    Raises:
        SuiteError: The folder exists, the case agrees, or it has no such value.
        ParityError: No drawn weights show the divergence; the message says why.

    """
    if into.exists():
        msg = f"{into} is there already; give another with --out, or remove it."
        raise SuiteError(msg)
    say("as it is")
    record = engine.run(case)
    if record.failure is not None:
        raise SuiteError(record.failure.message)
    sample, name = _place(engine, judge, case, record, probe)
    narrow = replace(case, samples=(sample,))
    say(f"cutting at {name}")
    around = smallest_excerpt(engine, judge, narrow, record, name)
    into.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=into.parent, prefix=".parity-") as scratch:
        folder = Path(scratch) / into.name
        folder.mkdir()
        if post:
            from harness.commands.explain.post import write_post

            around = write_post(post, judge, around, folder, say)
        else:
            say("writing")
            fill(folder, engine, around, _about_pytorch)
        folder.rename(into)
    return around


def _place(
    engine: Engine, judge: Judge, case: Case, record: CaseRecord, probe: str
) -> tuple[Sample, str]:
    """Return the sample and the value to cut at."""
    rows = [row for row in record.rows if row.what == LAYERS]
    if probe:
        there = [row for row in rows if probe in {row.probe, row.module}]
        if not there:
            msg = f"{case.id} compares no value {probe!r}; `parity show` lists them."
            raise SuiteError(msg)
        worst = max(there, key=lambda row: row.comparison.floor_multiple or 0.0)
        return _sample(case, worst.sample), worst.probe
    verdict = judge.check(record, LAYERS)
    if verdict.first is None:
        msg = (
            f"{case.id} agrees in every layer ({verdict.reason}); name a value with "
            "--probe, or give a tighter --tier."
        )
        raise SuiteError(msg)
    sample = _sample(case, verdict.first.row.sample)
    _, verdict = with_local_errors(engine, judge, case, record, sample)
    return sample, blamed(verdict)[0]


def _sample(case: Case, name: str) -> Sample:
    return next(sample for sample in case.samples if sample.id == name)


def fill(folder: Path, engine: Engine, around: Around, told: Telling) -> None:
    """Write the files of a repro into an empty folder.

    Args:
        folder: The folder.
        engine: The engine that deploys the excerpt.
        around: The excerpt and its run.
        told: Returns the title of the script, and what ``expected.npy`` is.

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
    (folder / "repro.py").write_text(_script(around, told), encoding="utf-8")


def _about_pytorch(around: Around) -> dict[str, str]:
    """Return what the script says of an excerpt with PyTorch's own numbers."""
    layer = next(row for row in around.record.rows if row.what == LAYERS)
    where = f"{layer.place} ({operator(layer.op)})"
    return {
        "title": f"{around.excerpt.case.id} diverges from PyTorch at {where}",
        "answer": "PyTorch's float32 answer",
    }


def _script(around: Around, told: Telling) -> str:
    case, rows = around.excerpt.case, around.record.rows
    layer = next(row for row in rows if row.what == LAYERS)
    output = next(row for row in rows if row.what == OUTPUTS)
    ran = cast("dict[str, Any]", around.record.ran or {})
    declared, kind = runtime(case.backend), case.variant.kind
    built_in = declared.variants.get(kind)
    flags = built_in.flags if built_in and built_in.flags else (kind,)
    floor = layer.comparison.floor_rms or 0.0
    multiple = layer.comparison.floor_multiple or 0.0
    # The script must also fail if a tolerance tighter than noise is exceeded.
    allowed = min(NOISE, multiple / 2) if around.shows else NOISE
    as_deployed = (output.comparison.floor_multiple or 0.0) > multiple / 2
    script: Any = importlib.import_module(f"{declared.package}.repro")
    words = {
        **told(around),
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
