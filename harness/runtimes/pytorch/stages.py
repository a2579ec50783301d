"""The stages that make a component's inputs and reference, for any runtime."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.core.case import (
    Component,
    Device,
    ExportSettings,
    Sample,
)
from harness.core.digest import digest_value
from harness.core.entry import Entry
from harness.core.errors import RefusedError, first_line
from harness.core.groups import Group, smallest
from harness.core.plugins import answers, declared
from harness.engine import keys, tasks
from harness.engine.host import report_progress
from harness.engine.stage import Stage
from harness.engine.store import Build, Store
from harness.measure.named_arrays import Arrays, Run, save_arrays
from harness.recipes.inputs import draw


@dataclass(eq=False)
class Stages(ABC):
    """One component's stages; each makes an entry of the store if it is missing.

    `took_s` has the seconds that were spent to make entries, by their kind.
    """

    store: Store
    component: Component
    settings: ExportSettings
    device: Device
    took_s: dict[str, float] = field(default_factory=dict, init=False)

    @abstractmethod
    def record(
        self, group: Group, sample: Sample, inputs: Entry, folder: Path
    ) -> Mapping[str, object]:
        """Write a sample's reference to `folder`, and return facts about the run."""

    @abstractmethod
    def opened(self, group: Group) -> AbstractContextManager[Run]:
        """Open the reference, to call it with other inputs."""

    def inputs(self, sample: Sample) -> Entry:
        """Return a sample's drawn arrays."""

        def build(folder: Path) -> Mapping[str, object]:
            self.say("drawing", sample.id)
            try:
                drawn = draw(self.component, sample)
            except Exception as error:
                if not sample.added:
                    raise
                return {"refused": first_line(error)}
            save_arrays(drawn, folder)
            return {}

        return self.made(tasks.INPUTS, build, keys.whole(self.component), sample)

    def reference(self, group: Group, sample: Sample) -> Entry:
        """Return a sample's recorded reference; its inputs if these were refused."""
        inputs = self.inputs(sample)
        if inputs.meta.get("refused"):
            return inputs

        def build(folder: Path) -> Mapping[str, object]:
            try:
                return self.record(group, sample, inputs, folder)
            except RefusedError as error:
                if not sample.added:
                    raise
                return {"values": 0, "rewrite_max_abs": 0.0, "refused": error.why}

        graph = digest_value(tasks.GRAPH.key(*self.graph_of(group)))
        decides = graph, inputs, self.device, sample.layers
        return self.made(tasks.REFERENCE, build, *decides)

    def references(self, group: Group) -> None:
        """Record the references of a group's samples, and ask its smallest one.

        A sample whose added sizes the reference refuses is not asked.
        """
        kept = [
            sample
            for sample in group.samples
            if not self.reference(group, sample).meta.get("refused")
        ]
        if kept and declared("questions"):
            self.ask(replace(group, samples=tuple(kept)))

    def ask(self, group: Group) -> Entry:
        """Return the entry of what plug-ins ask the reference."""
        sizes, opened = smallest(group), self.settings.dynamic

        def build(folder: Path) -> Mapping[str, object]:
            self.say("recording", "each input changed alone")
            notes: dict[str, object] = {}
            arrays: Arrays = {}
            with self.opened(group) as run:
                about = (run, self.component, sizes, opened)
                for more, kept in answers("questions", *about):
                    notes, arrays = notes | more, {**arrays, **kept}
            save_arrays(arrays, folder)
            return notes

        decides = tasks.asked_of(self.component, sizes, self.device)
        return self.made(tasks.ASKED, build, *decides)

    def graph_of(self, group: Group) -> tuple[object, ...]:
        """Return what decides the graph that serves a group."""
        return tasks.graph_of(self.component, self.settings, group)

    def made(self, stage: Stage, build: Build, *decides: object) -> Entry:
        """Return an entry; if it has to be made, add up the seconds that this takes."""
        found = stage.find(self.store, *decides)
        if found is not None:
            return found
        start = time.perf_counter()
        entry = stage.make(self.store, build, *decides)
        kind, seconds = stage.kind, time.perf_counter() - start
        self.took_s[kind] = self.took_s.get(kind, 0.0) + seconds
        return entry

    def say(self, stage: str, detail: str) -> None:
        """Report progress."""
        report_progress(stage, self.component.name, detail)
