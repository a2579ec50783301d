"""What runs in the child process "torch": exports kept, and references made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.case import Component, Device, ExportSettings, Group, Sample
from harness.core.entry import Entry
from harness.core.probes import load_probes
from harness.engine.deployed import Reading
from harness.engine.export_files import PROBES
from harness.engine.keys import onnx_key
from harness.engine.store import Store
from harness.measure.name_map import Names
from harness.runtimes.foreign.lineup import NAMES
from harness.runtimes.pytorch.export import Exported
from harness.runtimes.pytorch.prepare import Work, ask_device
from harness.runtimes.pytorch.program import Program
from harness.runtimes.pytorch.submodules import program_of_module
from harness.runtimes.pytorch.translation import translate_once


class Recording(Work):
    """Records references of programs that another process kept."""

    def __init__(self, kept: Path, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]  # as `Work` has them
        self._kept = kept

    def exported(self, group: Group) -> Exported:
        """Return a group's program as it was kept, or as the module shows it."""
        if group in self._exports:
            return self._exports[group]
        graph = Store(root=self._kept).find(
            "onnx", onnx_key(self.component, self.settings, dict(group.shapes))
        )
        assert graph is not None, f"{self.component.name} was not exported"
        made = Exported(
            program=program_of(self, Store(root=self._kept), graph, group),
            probes=tuple(load_probes(graph.file(PROBES))),
        )
        self._exports[group] = made
        return made


def program_of(work: Work, kept: Store, graph: Entry, group: Group) -> Program:
    """Return the program of a graph, translated once for all machines."""
    network = replace(work.network(group), store=kept)
    names = Names.load(graph.path)
    if names is None and work.settings.exporter == "torchscript":
        return program_of_module(network.copy, network.example)
    if names is None or names.by == NAMES:
        return translate_once(network).program
    return program_of_module(network.module, network.example)


def prepare(
    root: Path, component: Component, settings: ExportSettings, group: Group
) -> None:
    """Export a component once, and keep its program (`torch`)."""
    ask_device(Device())
    work = Work(Store(root=root), component, settings, Device())
    program_of(work, work.store, work.export(group), group)


def record(  # noqa: PLR0917  # one job's whole circumstances
    kept: Path,
    root: Path,
    component: Component,
    settings: ExportSettings,
    group: Group,
    device: Device,
) -> list[Reading]:
    """Record a group's references on the machine that this process takes part in."""
    ask_device(device)
    work = Recording(kept, Store(root=root), component, settings, device)
    return [
        Reading(
            sample=sample.id,
            inputs=work.inputs(sample),
            reference=work.reference(group, sample),
            layers=True,
        )
        for sample in group.samples
    ]


def samples(case_samples: Sequence[Sample], seeds: Sequence[int]) -> list[Sample]:
    """Return a sample of each seed, of profiles and sizes in turn."""
    whole = [sample for sample in case_samples if sample.layers] or list(case_samples)
    drawn = []
    for at, seed in enumerate(seeds):
        like = whole[at % len(whole)]
        drawn.append(
            Sample(
                profile=like.profile if like.profile != "varied" else "realistic",
                index=like.index,
                shapes=like.shapes,
                seed=seed,
                label=f"{like.profile}-seed-{seed}",
            )
        )
    return drawn
