"""The stages that need PyTorch: draw inputs, export, record the reference.

They run in a child process. One call makes every missing entry of one component, so
that the network is built and exported once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from harness.core.case import (
    Component,
    Device,
    ExportSettings,
    Sample,
)
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.groups import Group
from harness.core.outcome import Outcome
from harness.core.plugins import merged
from harness.core.probes import load_probes
from harness.engine import tasks
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.engine.store import Store
from harness.measure.align import wanted_values
from harness.measure.name_map import BY_NAMES, Names
from harness.measure.named_arrays import Run
from harness.measure.trace import load_inputs
from harness.recipes import recipe_module
from harness.recipes.inputs import draw
from harness.runtimes.graph.onnx_graph import unread_inputs
from harness.runtimes.pytorch.export import Exported, export_onnx, quiet
from harness.runtimes.pytorch.export_errors import refuse_adapters
from harness.runtimes.pytorch.patch import patched
from harness.runtimes.pytorch.program import Program, own_path
from harness.runtimes.pytorch.reference import (
    check_mode,
    check_reference,
    record_reference,
    run_of,
)
from harness.runtimes.pytorch.stages import Stages
from harness.runtimes.pytorch.submodules import program_of_module
from harness.runtimes.pytorch.translation import TracedNetwork, translate_once
from harness.suite.files import file_reader


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
        work.references(group)
    return work.took_s


def draw_inputs(root: Path, component: Component, samples: Sequence[Sample]) -> None:
    """Draw the inputs of one component that the store lacks; build no network."""
    work = Work(Store(root=root), component, ExportSettings(), Device())
    for sample in samples:
        work.inputs(sample)


def check(
    folder: Path, component: Component, graph: Entry, device: Device
) -> Mapping[str, object]:
    """Return where a graph of the store differs from its PyTorch module.

    The `folder` stays empty.
    """
    del folder
    ask_device(device)
    return differences(component, built(component), graph)


def differences(
    component: Component, module: torch.nn.Module, graph: Entry
) -> Mapping[str, object]:
    """Return where plug-ins say that a graph differs from a component's module."""
    return merged("graphs", component, module, graph)


def weigh(folder: Path, component: Component) -> Mapping[str, object]:
    """Return the ``bytes`` of a component's weights in float32.

    The `folder` stays empty. On PyTorch's meta device no weights are drawn, so this
    costs no memory.
    """
    del folder
    # To merge a LoRA is to read its numbers, which a meta tensor lacks. A merged LoRA
    # adds no weight.
    component = replace(component, source=replace(component.source, lora=None))
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it copies nothing, as intended
        module = recipe_module(component.recipe).build(component)
    return {"bytes": 4 * sum(weight.numel() for weight in module.parameters())}


def built(component: Component) -> torch.nn.Module:
    """Return a component's unmodified module.

    Raises:
        StageError: It cannot be a reference: its mode, an adapter or its weights.

    """
    report_progress("building", component.name, "PyTorch module")
    module = recipe_module(component.recipe).build(component)
    check_mode(module, component)  # the exporter's own error is unclear
    refuse_adapters(component, module)
    refuse_not_finite(component, module)
    return module


def ask_device(device: Device) -> None:
    """Set threads and TF32, and check that the device is there.

    Raises:
        StageError: CUDA was requested and PyTorch has none.

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
    """Refuse weights of NaN or infinity: no output of theirs can be compared.

    Raises:
        StageError: A weight has such a number; the message names the first.

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


def program_of(network: TracedNetwork, graph: Entry) -> Program:
    """Return the program whose values a graph of the store carries.

    Raises:
        Exception: The exporter fails, or its program cannot be written or read.

    """
    names = Names.load(graph.path)
    if names is None and network.settings.exporter == "torchscript":
        return program_of_module(network.copy, network.example)
    if names is None or names.by == BY_NAMES:
        with quiet():
            return translate_once(network).program
    return program_of_module(network.module, network.example)


@dataclass(eq=False)
class Work(Stages):
    """One component's PyTorch stages; shared objects are made when first needed."""

    _exports: dict[Group, Exported] = field(default_factory=dict, init=False)

    def export(self, group: Group) -> Entry:
        """Return the graph that serves a group, exporting it if it is missing."""

        def build(folder: Path) -> Mapping[str, object]:
            try:
                self._exports[group] = self._export(group, folder)
            except StageError as error:
                self._refuse(group, error)
                raise
            return {"unread": _unread(folder)}

        return self.made(tasks.GRAPH, build, *self.graph_of(group))

    def _refuse(self, group: Group, error: StageError) -> None:
        """Refuse a network that is no reference, in the place of a failed export.

        No exporter and no runtime can then do better.
        """
        self.say("running", "PyTorch, for the export failed")
        drawn = draw(self.component, _traced(group))
        try:
            check_reference(self.module.to("cpu"), self.component, drawn)
        except StageError as refused:
            raise refused from error

    def check(self, graph: Entry) -> Entry:
        """Return the entry that says where a graph differs from the module."""

        def build(_: Path) -> Mapping[str, object]:
            return differences(self.component, self.module, graph)

        return self.made(tasks.CHECKED, build, self.component, graph)

    def record(
        self, group: Group, sample: Sample, inputs: Entry, folder: Path
    ) -> Mapping[str, object]:
        """Record the module's outputs, and its program's values and floors."""
        exported = self.exported(group)
        wanted = wanted_values(exported.probes).values()
        self.say("recording", f"float32 and float64, {sample.id}")
        return record_reference(
            self.module,
            exported.program,
            self.component,
            load_inputs(inputs, self.component),
            folder,
            device=self.device.device,
            wanted={p.name for p in wanted} if sample.layers else (),
            patch=self.settings.patch,
        )

    def opened(self, group: Group) -> AbstractContextManager[Run]:
        """Return the module, which serves every group."""
        del group
        return nullcontext(run_of(self.module, self.component, self.device.device))

    def exported(self, group: Group) -> Exported:
        """Return a group's program, also where the store had its graph."""
        if group not in self._exports:
            self._exports[group] = self._exported_before(group)
        return self._exports[group]

    def _exported_before(self, group: Group) -> Exported:
        """Return the program and the probes of an export of an earlier run."""
        graph = tasks.GRAPH.find(self.store, *self.graph_of(group))
        if graph is not None and not self.component.foreign:
            probes = tuple(load_probes(graph.file(PROBES)))
            network = self.network(group)
            if self.settings.exporter == "dynamo":
                self.say("translating", "PyTorch's program")
            # The error may be of any kind; a further export says what is wrong.
            with suppress(Exception):
                return Exported(program=program_of(network, graph), probes=probes)
        with TemporaryDirectory() as scratch:
            return self._export(group, Path(scratch))

    @cached_property
    def module(self) -> torch.nn.Module:
        """The unmodified module."""
        return built(self.component)

    def network(self, group: Group) -> TracedNetwork:
        """Return the network as an export for a group sees it."""
        # A reference on another device may have left it there.
        module = copy = self.module.to("cpu")
        if self.settings.attention or self.settings.patch:
            # The exported copy may be rewritten; the reference never is.
            recipe = recipe_module(self.component.recipe)
            copy = recipe.build(self.component, attention=self.settings.attention)
        drawn = draw(self.component, _traced(group)).values()
        if self.settings.patch:
            self.say("patching", self.settings.patch)
            given = tuple(map(torch.tensor, drawn))
            copy = patched(self.settings, self.component, module, copy, given)
        return TracedNetwork(
            module=module,
            copy=copy,
            component=self.component,
            settings=self.settings,
            example=tuple(map(torch.tensor, drawn)),
            store=self.store,
        )

    def _export(self, group: Group, folder: Path) -> Exported:
        network = self.network(group)
        if self.component.foreign:
            taken: Exported = file_reader().export(network, folder)
            return taken
        self.say("exporting", f"opset {self.settings.opset}, {self.settings.exporter}")
        return export_onnx(
            network,
            folder,
            run=run_of(network.module, self.component, "cpu"),
            sizes=tuple(sorted(group.shapes)),
        )


def _traced(group: Group) -> Sample:
    """Return the sample with which a network is traced."""
    shapes = tuple(sorted(group.shapes))
    return Sample(profile="unit-normal", index=0, shapes=shapes)


def _unread(folder: Path) -> list[str]:
    """Return the component's inputs that no output of an export depends on."""
    model = folder / MODEL
    if not model.is_file():  # a foreign MNN file has no graph here
        return []
    names = Names.load(folder)
    ours = {fed.name: fed.given for fed in names.inputs} if names else {}
    return [ours.get(name, name) for name in unread_inputs(model)]
