"""Stages that need PyTorch: draw inputs, export, record the reference.

Runs in a child process. One call makes all that is missing for one component, so that
the network is built and exported once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from harness.core.case import Component, Device, ExportSettings, Sample
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.groups import Group, smallest
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.core.runtime import ONNX
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.engine.keys import (
    asked_key,
    checked_key,
    converted_key,
    inputs_key,
    onnx_key,
    reference_key,
)
from harness.engine.store import Build, Store
from harness.measure.align import wanted_values
from harness.measure.name_map import Names
from harness.measure.trace import load_inputs, save_inputs
from harness.recipes import recipe_module
from harness.recipes.inputs import draw
from harness.runtimes.foreign.lineup import Network
from harness.runtimes.foreign.onnx import line_up_converted, take_onnx
from harness.runtimes.foreign.translated import translate_once
from harness.runtimes.graph.check import check_graph
from harness.runtimes.graph.onnx_graph import unread_inputs
from harness.runtimes.pytorch.contract import ask, effects_at
from harness.runtimes.pytorch.export import Exported, export_onnx
from harness.runtimes.pytorch.export_errors import refuse_adapters
from harness.runtimes.pytorch.program import own_path
from harness.runtimes.pytorch.reference import check_mode, record_reference, run_of


def prepare(
    root: Path,
    component: Component,
    settings: ExportSettings,
    groups: Sequence[Group],
    device: Device,
) -> dict[str, float]:
    """Make every missing input, export and reference; return seconds by stage.

    Raises:
        StageError: PyTorch cannot run on `device`, or a stage ended without a result.

    """
    ask_device(device)
    work = Work(Store(root=root), component, settings, device)
    for group in groups:
        for sample in group.samples:
            work.inputs(sample)
    for group in groups:
        work.check(work.export(group))
        for sample in group.samples:
            work.reference(group, sample)
        if group.samples:
            work.ask(group)
    return work.took_s


def check(
    root: Path,
    component: Component,
    settings: ExportSettings,
    graph: Entry,
    device: Device,
) -> None:
    """Compare a graph that is in the store with its PyTorch module, if nobody has."""
    ask_device(device)
    Work(Store(root=root), component, settings, device).check(graph)


def weigh(component: Component) -> int:
    """Return the bytes of a component's weights in float32.

    On PyTorch's meta device nothing is drawn, so that this costs no memory.
    """
    # Merging a LoRA reads its numbers, which a meta tensor has not; it adds no weight.
    component = replace(component, source=replace(component.source, lora=None))
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is copied there, which is meant
        module = recipe_module(component.recipe).build(component)
    return 4 * sum(weight.numel() for weight in module.parameters())


def ask_device(device: Device) -> None:
    """Set threads and TF32, and see that the device is there.

    Raises:
        StageError: CUDA was asked for and PyTorch has none.

    """
    torch.set_num_threads(device.threads)
    torch.backends.cuda.matmul.allow_tf32 = device.tf32
    torch.backends.cudnn.allow_tf32 = device.tf32
    if device.device == "cuda" and not torch.cuda.is_available():
        msg = (
            f"PyTorch {torch.__version__} was asked for cuda and finds no GPU; install "
            "a build and a driver that fit, or ask for cpu under [backend.pytorch]."
        )
        raise StageError(msg, outcome=Outcome.FELL_BACK)


def refuse_not_finite(component: Component, module: torch.nn.Module) -> None:
    """Refuse weights of NaN or infinity: nothing can be compared with what they make.

    Raises:
        StageError: There is one; names the first weight that holds some.

    """
    counts = {
        name: int(parameter.isfinite().logical_not().sum())
        for name, parameter in module.named_parameters()
    }
    names = [name for name, number in counts.items() if number]
    if not names:
        return
    size = module.get_parameter(names[0]).numel()
    more = f", and so do {len(names) - 1} more weights" if names[1:] else ""
    msg = (
        f"{component.name}: the checkpoint's weight {own_path(names[0])} holds NaN or "
        f"infinity ({counts[names[0]]:,} of {size:,} values){more}. What PyTorch "
        "computes with it is no number either, and nothing can be compared with that: "
        "give a checkpoint whose weights are all finite."
    )
    raise StageError(msg, outcome=Outcome.REFERENCE)


class Work:
    """One component's torch stages; what they share is made when first needed."""

    def __init__(
        self,
        store: Store,
        component: Component,
        settings: ExportSettings,
        device: Device,
    ) -> None:
        self.store = store
        self.component = component
        self.settings = settings
        self.device = device
        self.took_s: dict[str, float] = {}
        self._module: torch.nn.Module | None = None
        self._exports: dict[Group, Exported] = {}

    def inputs(self, sample: Sample) -> Entry:
        """Return a sample's drawn arrays, drawing them if they are missing."""

        def build(folder: Path) -> Mapping[str, object]:
            self._say("drawing", sample.id)
            save_inputs(draw(self.component, sample), folder)
            return {}

        return self._timed("inputs", inputs_key(self.component, sample), build)

    def export(self, group: Group) -> Entry:
        """Return the graph that serves a group, exporting it if it is missing."""

        def build(folder: Path) -> Mapping[str, object]:
            self._exports[group] = self._export(group, folder)
            return {"unread": _unread(folder)}

        key = onnx_key(self.component, self.settings, dict(group.shapes))
        return self._timed("onnx", key, build)

    def check(self, graph: Entry) -> Entry:
        """Return what a graph holds and says otherwise than the module."""

        def build(_: Path) -> Mapping[str, object]:
            if MODEL not in graph.files:  # of a taken MNN file there is no graph
                return {}
            self._say("comparing", "weights and attributes")
            probes = load_probes(graph.file(PROBES))
            return check_graph(self.module, probes, graph.file(MODEL))

        return self._timed("checked", checked_key(self.component, graph), build)

    def reference(self, group: Group, sample: Sample) -> Entry:
        """Return a sample's recorded reference, recording it if it is missing."""
        inputs = self.inputs(sample)

        def build(folder: Path) -> Mapping[str, object]:
            exported = self.exported(group)
            self._say("recording", f"float32 and float64, {sample.id}")
            return record_reference(
                self.module,
                exported.program,
                self.component,
                load_inputs(inputs, self.component),
                folder,
                device=self.device.device,
                layers=sample.layers,
                wanted={p.name for p in wanted_values(exported.probes).values()},
            )

        graph = onnx_key(self.component, self.settings, dict(group.shapes))
        key = reference_key(graph, inputs, self.device, layers=sample.layers)
        return self._timed("reference", key, build)

    def ask(self, group: Group) -> Entry:
        """Return which inputs matter to the module, asking it if it is missing."""
        sizes = smallest(group)

        def build(folder: Path) -> Mapping[str, object]:
            self._say("recording", "each input changed alone")
            run = run_of(self.module, self.component, self.device.device)
            return ask(run, self.component, sizes, folder)

        key = asked_key(self.component, sizes, self.device)
        return self._timed("asked", key, build)

    def exported(self, group: Group) -> Exported:
        """Return a group's program; the graph may be in the store, it is not."""
        if group not in self._exports:
            with TemporaryDirectory() as scratch:
                self._exports[group] = self._export(group, Path(scratch))
        return self._exports[group]

    @property
    def module(self) -> torch.nn.Module:
        """The unmodified module."""
        if self._module is None:
            self._say("building", "PyTorch module")
            recipe = recipe_module(self.component.recipe)
            module = recipe.build(self.component)
            check_mode(module, self.component)  # exporting would fail for odd reasons
            refuse_adapters(self.component, module)
            refuse_not_finite(self.component, module)
            self._module = module
        return self._module

    def _export(self, group: Group, folder: Path) -> Exported:
        module = copy = self.module
        if self.settings.attention:
            # The exported copy may be rewritten; the reference never is.
            recipe = recipe_module(self.component.recipe)
            copy = recipe.build(self.component, attention=self.settings.attention)
        shapes = dict(group.shapes)
        traced = Sample(
            profile="unit-normal", index=0, shapes=tuple(sorted(shapes.items()))
        )
        example = tuple(
            torch.tensor(value) for value in draw(self.component, traced).values()
        )
        taken = self.component.taken
        if taken:
            kind, path = taken.files[0]
            self._say("lining up", str(path))
            network = Network(
                module=module,
                copy=copy,
                component=self.component,
                settings=self.settings,
                example=example,
                translated=partial(translate_once, self.store),
            )
            if kind == ONNX:
                return take_onnx(path, network, folder)
            graph = self.store.find(kind, converted_key(self.component, kind))
            if graph is None:
                msg = f"{self.component.name}: the store lost its file {path.name}."
                raise StageError(msg, outcome=Outcome.LOAD)
            return line_up_converted(graph.path, network, folder)
        how = f"opset {self.settings.opset}, {self.settings.exporter}"
        self._say("exporting", how)
        return export_onnx(
            copy,
            self.component,
            self.settings,
            example,
            folder,
            effects=lambda: effects_at(
                run_of(module, self.component, "cpu"), self.component, traced.shapes
            ),
        )

    def _timed(self, kind: str, key: Mapping[str, object], build: Build) -> Entry:
        found = self.store.find(kind, key)
        if found is not None:
            return found
        start = time.perf_counter()
        entry = self.store.make(kind, key, build)
        self.took_s[kind] = self.took_s.get(kind, 0.0) + time.perf_counter() - start
        return entry

    def _say(self, stage: str, detail: str) -> None:
        report_progress(stage, self.component.name, detail)


def _unread(folder: Path) -> list[str]:
    """Return the component's inputs that no output of an export depends on."""
    model = folder / MODEL
    if not model.is_file():  # a taken MNN file has no graph of its own here
        return []
    names = Names.load(folder)
    ours = {fed.name: fed.given for fed in names.inputs} if names else {}
    return [ours.get(name, name) for name in unread_inputs(model)]
