"""What worker processes do: stages, and other tasks.

The engine names functions and never imports them, so that it loads no framework. A name
is ``module:function``; the worker process resolves it. A `Stage` makes entries of the
store. A task that is only a name makes several entries at once, or none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.core.case import (
    Case,
    Component,
    Device,
    ExportSettings,
    Sample,
)
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.groups import Group, smallest
from harness.core.kinds import PROGRAM as PROGRAM_KIND
from harness.core.outcome import Outcome
from harness.engine import keys
from harness.engine.deployed import Reading
from harness.engine.export_files import PROBES
from harness.engine.stage import Stage

if TYPE_CHECKING:
    from harness.engine.store import Store

WORK: Final = "harness.engine.work:work"
"""Makes an entry of any stage that has a task (the stage's host)."""

INPUTS: Final = Stage(
    kind="inputs",
    takes=("component", "sample"),
    code=keys.DRAWN,
    tools=keys.DRAWING_TOOLS,
)
"""One sample's arrays, of `keys.whole` of a component and the sample."""

GRAPH: Final = Stage(
    kind="onnx",
    takes=("component", "export", "shapes"),
    code=keys.EXPORTED,
    tools=keys.EXPORT_TOOLS,
    plugins="interfaces",
    files=(PROBES,),
)
"""An exported graph, or a foreign one; `graph_of` has what decides it."""

PROGRAM: Final = GRAPH.of(kind=PROGRAM_KIND, plugins="", files=())
"""A network's translation, which serves many runs and files."""

REFERENCE: Final = Stage(
    kind="reference",
    takes=("onnx", "inputs", "device", "layers"),
    code=keys.EXPORTED,
)
"""A recorded reference run, whose program is the exporter's."""

ASKED: Final = Stage(
    kind="asked",
    takes=("component", "name", "sizes", "device"),
    code=keys.EXPORTED,
    tools=keys.EXPORT_TOOLS,
    plugins="questions",
)
"""The reference's answers to the questions of plug-ins."""

CONTRACT: Final = Stage(
    kind="contract",
    takes=("file", "asked", "inputs", "device", "processor", "runtime"),
    code=keys.ANSWERED,
    plugins="replies",
)
"""A deployed file's answers to the questions of its contract.

All samples are in it, because the first one runs again after the others. A shared store
is of several machines, so the processor is in it.
"""

PREPARE: Final = "harness.runtimes.pytorch.prepare:prepare"
"""Draws, exports and records what is missing for one component (`torch`)."""

DRAW_INPUTS: Final = "harness.runtimes.pytorch.prepare:draw_inputs"
"""Draws inputs of one component and runs nothing (`torch`)."""

MEASURE_SELF: Final = "harness.runtimes.pytorch.self_error:measure_self"
"""Measures PyTorch's own error in fewer bits for one component (`torch`)."""

SELF: Final = Stage(
    kind="self", takes=("reference", "dtype", "processor"), notes=("probes", "rows")
)
"""PyTorch's own error in a dtype on one sample, with the reference's key."""

LOSSES: Final = "harness.runtimes.graph.file_values:losses_in"
"""Finds what float16 would lose of a graph's values (ONNX Runtime's own host)."""

CHECKED: Final = Stage(
    kind="checked",
    takes=("component", "onnx"),
    code=keys.EXPORTED,
    tools=keys.EXPORT_TOOLS,
    plugins="graphs",
    task="harness.runtimes.pytorch.prepare:check",
)
"""The differences between a graph and its PyTorch module; neither runs."""

WEIGHTS: Final = Stage(
    kind="weights",
    takes=("component",),
    code=("recipes", "runtimes/pytorch"),
    tools=keys.EXPORT_TOOLS,
    task="harness.runtimes.pytorch.prepare:weigh",
    notes=("bytes",),
)
"""The bytes of a component's weights; none are drawn."""

DEPLOYED: Final = Stage(
    kind="",
    takes=("variant", "onnx", "native", "calibration"),
    code=keys.CONVERTED,
    plugins="interfaces",
    task="harness.runtimes.graph.deploy:deploy",
    failure=Outcome.CONVERT,
    seconds="convert",
)
"""One variant's deployed file; the kind and the host are its runtime's."""

TAKEN: Final = Stage(
    kind="",
    takes=("file", "runtime"),
    code=keys.TAKEN,
    plugins="files",
    failure=Outcome.LOAD,
)
"""A component's foreign file; kind and host are its runtime's, the task a plug-in's."""

COMPARE_REMADE: Final = "harness.runtimes.graph.remade:compare"
"""Compares an entry of a store with the same entry, made anew (`torch`)."""

RUN_CANDIDATE: Final = "harness.runtimes.candidate.candidate:run_candidate"
"""Runs a deployed file and compares it meanwhile (the runtime's own host)."""

RUN_ISOLATED: Final = "harness.runtimes.candidate.operators:run_isolated"
"""Runs operators on the reference's own inputs (the runtime's own host)."""

EFFECTS_FILE: Final = "effects.msgpack"
"""File of an entry of `OUTPUT_EFFECTS`: an `Effects`."""

OUTPUT_EFFECTS: Final = Stage(
    kind="effects",
    takes=("trials", "values"),
    code=keys.EXPORTED,
    tools=keys.DRAWING_TOOLS,
    task="harness.runtimes.pytorch.rounded:output_effects",
    failure=Outcome.REFERENCE,
    files=(EFFECTS_FILE,),
)
"""How far rounded weights of PyTorch's network move its outputs."""


def graph_of(
    component: Component, settings: ExportSettings, group: Group
) -> tuple[object, ...]:
    """Return what decides a group's `GRAPH`; a foreign file serves every group."""
    return component, settings, {} if component.foreign else group


def asked_of(
    component: Component, sizes: tuple[tuple[str, int], ...], device: Device
) -> tuple[object, ...]:
    """Return what decides the answers of `ASKED`; a foreign file does not."""
    bare = replace(component, foreign=None)
    return bare, component.name, dict(sizes), device


def find_graph(store: Store, case: Case, group: Group) -> Entry | None:
    """Return the graph that serves a group of a case, if the store has it."""
    return GRAPH.find(store, *graph_of(case.component, case.export, group))


def find_reading(
    store: Store, case: Case, group: Group, sample: Sample
) -> Reading | None:
    """Return a sample's inputs and reference, if the store has both.

    Inputs that were refused have no reference.
    """
    inputs = INPUTS.find(store, keys.whole(case.component), sample)
    if inputs is None:
        return None
    if inputs.meta.get("refused"):
        return Reading.of(sample, inputs, inputs)
    graph = digest_value(GRAPH.key(*graph_of(case.component, case.export, group)))
    found = REFERENCE.find(store, graph, inputs, case.reference, sample.layers)
    return None if found is None else Reading.of(sample, inputs, found)


def find_asked(store: Store, case: Case, group: Group) -> Entry | None:
    """Return the answers for the smallest sample of a group, if the store has them."""
    sizes = smallest(group)
    return ASKED.find(store, *asked_of(case.component, sizes, case.reference))
