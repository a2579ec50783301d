"""What runs in the child process "torch": exports kept, and references made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.case import (
    Component,
    Device,
    ExportSettings,
    Sample,
)
from harness.core.groups import Group
from harness.core.probes import load_probes
from harness.engine import tasks
from harness.engine.deployed import Reading
from harness.engine.export_files import PROBES
from harness.engine.store import Store
from harness.runtimes.pytorch.export import Exported
from harness.runtimes.pytorch.prepare import Work, ask_device, program_of


class Recording(Work):
    """Records references of programs that another process kept."""

    def __init__(self, kept: Path, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]  # as `Work` has them
        self._kept = kept

    def _exported_before(self, group: Group) -> Exported:
        """Return the program that a group's graph was exported from, and its probes."""
        kept = Store(root=self._kept)
        graph = tasks.GRAPH.find(kept, *self.graph_of(group))
        assert graph is not None, f"{self.component.name} was not exported"
        return Exported(
            program=program_of(replace(self.network(group), store=kept), graph),
            probes=tuple(load_probes(graph.file(PROBES))),
        )


def prepare(
    root: Path, component: Component, settings: ExportSettings, group: Group
) -> None:
    """Export a component once, and keep its program (`torch`)."""
    ask_device(Device())
    work = Work(Store(root=root), component, settings, Device())
    program_of(work.network(group), work.export(group))


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
