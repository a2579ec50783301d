"""What runs in the child process "torch": exports kept, and references made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import torch

from harness import export
from harness.components import recipe_module
from harness.deployed import Reading
from harness.digest import digest_value
from harness.export import Exported
from harness.export_files import PROBES
from harness.groups import Group
from harness.inputs import draw
from harness.keys import onnx_key
from harness.probes import load_probes
from harness.program import program_of_export
from harness.spec import Component, Device, ExportSettings, Sample
from harness.store import Store
from harness.submodules import program_of_module
from harness.taken import lineup
from harness.torch_stage import Work, ask_device


class Kept(Work):
    """Exports as the harness does, and keeps the program for processes to come."""

    def _export(self, group: Group, folder: Path) -> Exported:
        translated = []

        def noted(*given: object) -> object:
            translated.append(export_translate(*given))
            return translated[-1]

        export_translate = export.translate
        with (
            patch.object(export, "translate", noted),
            patch.object(lineup, "translate", noted),
        ):
            made = super()._export(group, folder)
        if translated and not made.program.scopes:
            path = kept_program(self.store.root, self.component, self.settings, group)
            path.parent.mkdir(exist_ok=True)
            torch.export.save(translated[-1].exported_program, path)
        return made


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
        path = kept_program(self._kept, self.component, self.settings, group)
        if path.is_file():
            program = program_of_export(torch.export.load(path))
        else:
            program = program_of_module(self._copy(), self._example(group))
        made = Exported(program=program, probes=tuple(load_probes(graph.file(PROBES))))
        self._exports[group] = made
        return made

    def _copy(self) -> torch.nn.Module:
        attention = self.settings.attention
        recipe = recipe_module(self.component.recipe)
        if not attention:
            return self.module
        copy: torch.nn.Module = recipe.build(self.component, attention=attention)
        return copy

    def _example(self, group: Group) -> tuple[torch.Tensor, ...]:
        traced = Sample(profile="unit-normal", index=0, shapes=group.shapes)
        drawn = draw(self.component, traced)
        return tuple(torch.tensor(value) for value in drawn.values())


def kept_program(
    root: Path, component: Component, settings: ExportSettings, group: Group
) -> Path:
    """Return where a program is kept."""
    key = digest_value(onnx_key(component, settings, dict(group.shapes)))
    return root / "programs" / f"{key}.pt2"


def prepare(
    root: Path, component: Component, settings: ExportSettings, group: Group
) -> None:
    """Export a component once, and keep its program (`torch`)."""
    ask_device(Device())
    work = Kept(Store(root=root), component, settings, Device())
    entry = work.store.find("onnx", onnx_key(component, settings, dict(group.shapes)))
    made = (
        settings.exporter != "dynamo"
        or kept_program(root, component, settings, group).is_file()
    )
    if entry is None or not made:
        if entry is None:
            work.export(group)
        else:
            work.exported(group)


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
