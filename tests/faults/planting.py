"""Plant a fault and run its case: one function for each place that a fault goes in."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from harness.core.case import Case
from harness.core.digest import digest_value
from harness.core.probes import load_probes
from harness.core.record import LAYERS
from harness.engine import export_files
from harness.engine.artifacts import Artifacts
from harness.engine.deployed import Deployed
from harness.engine.store import Store
from harness.measure.align import wanted_values
from tests.faults.catalogue.fault import (
    Fault,
    InConverter,
    InFiles,
    InGraph,
    InModule,
    InSession,
)
from tests.faults.stand import Stand
from tests.faults.trial import Trial, visible

CATALOGUE = Path(__file__).with_name("catalogue")
FAULTY_RECIPE = "tests.faults.catalogue.faulty_recipe"
FEW = 2
"""Samples of what is exported for one fault alone: of a batch of one, and of two."""


def plant(stand: Stand, fault: Fault, backend: str) -> Trial:
    """Run a fault's case with the fault in it."""
    case = stand.case(fault.component, backend, fault.variant)
    match fault.plant:
        case InGraph() as plant:
            if plant.exporter:
                export = replace(case.export, exporter=plant.exporter)
                case = replace(case, export=export)
            return _in_graph(stand, case, fault.name, plant)
        case InModule():
            # A stand of its own: a workshop keeps the failure of a component's export.
            with Stand(
                stand.store.root, peers=stand.peers, isolate=stand.isolate
            ) as own:
                return own.run(_with_faulty_module(case, fault.name))
        case InSession(wrap=wrap, place=place):
            return replace(stand.run(case, wrap=wrap), places=(place,) if place else ())
        case InFiles() as plant:
            with TemporaryDirectory() as folder:
                return stand.run(case, lambda: _altered(stand, case, plant, folder))
        case InConverter(script=script):
            with TemporaryDirectory() as folder:
                return stand.run(case, lambda: _converted(stand, case, script, folder))
    msg = f"{fault.name} is in a rule of the harness and has no case to run."
    raise ValueError(msg)


def _in_graph(stand: Stand, case: Case, name: str, plant: InGraph) -> Trial:
    graph, _ = stand.exported(case)
    model = onnx.load(graph.file(export_files.MODEL))
    value = plant.change(model)
    del model.graph.value_info[:]  # shapes that held for the right graph

    def build(folder: Path) -> Mapping[str, object]:
        onnx.save(model, folder / export_files.MODEL)
        shutil.copy(graph.file(export_files.PROBES), folder)
        return {}

    how = [path.read_text() for path in sorted(CATALOGUE.glob("*.py"))]
    key = {"fault": name, "graph": graph.key_digest, "how": digest_value(how)}
    entry = stand.store.make("onnx", key, build)
    trial = stand.run(case, lambda: stand.deployed(case, entry), altered=entry)
    if value is None or not trial.record.rows:  # none, or refused before it was made
        return trial
    wanted = wanted_values(load_probes(graph.file(export_files.PROBES)))
    seen = {row.probe for row in trial.record.rows if row.what == LAYERS}
    shown = {name for name, probe in wanted.items() if probe.name in seen}
    places = visible(value, shown, model.graph) or (value,)
    return replace(trial, places=tuple(wanted[name].name for name in places))


def _with_faulty_module(case: Case, name: str) -> Case:
    options = {"recipe": case.component.recipe, "fault": name}
    component = replace(
        case.component,
        recipe=FAULTY_RECIPE,
        options=(*case.component.options, *sorted(options.items())),
    )
    return replace(case, component=component, samples=case.samples[:FEW])


def _altered(stand: Stand, case: Case, plant: InFiles, folder: str) -> Deployed:
    """Return the deployed file with its folder changed, in a store of its own."""
    right = stand.deployed(case)
    other = right.artifact
    if plant.other:
        twin = stand.case(case.subject, case.backend, plant.other)
        other = stand.deployed(twin).artifact

    def build(target: Path) -> Mapping[str, object]:
        for name in right.artifact.files:
            shutil.copy(right.artifact.file(name), target / name)
        if not plant.sealed:
            plant.change(target, other.path)
        return {}

    entry = Store(root=Path(folder)).make(case.backend, {"fault": 1}, build)
    if plant.sealed:
        plant.change(entry.path, other.path)
    return replace(right, artifact=entry)


def _converted(stand: Stand, case: Case, script: str, folder: str) -> Deployed:
    """Return what another converter makes, in a store of its own."""
    program = Path(folder) / "converter"
    program.write_text(f"#!{sys.executable}\n{script}\n", encoding="utf-8")
    program.chmod(0o700)
    graph, readings = stand.exported(case)
    store, pool = Store(root=Path(folder) / "s"), stand.artifacts.worker_pool
    return Artifacts(store, pool, str(program)).deployed(case, graph, readings)
