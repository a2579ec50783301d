"""Recorded calls of a module, which somebody else sent: JSON and safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz import changes
from tests.fuzz.formats import Format


class RecordedFormat(Format):
    """``captured.json`` and ``calls.safetensors``, as suites and workers read them."""

    name = "recorded"

    def begin(self) -> None:
        import torch

        from harness.plugins.capture.calls import capture
        from harness.plugins.capture.saved import save_calls
        from tests.plugins.capture.nets import Batch, Nested

        net = Nested().eval()
        with capture(net=net) as calls, torch.no_grad():
            for size in (2, 3):
                net(Batch(torch.randn(size, 8), 2.0), more=[torch.randn(size, 16)])
        home = self.place / "whole"
        if not home.exists():
            save_calls(calls, home, {})
        self.said = json.loads((home / "net" / "captured.json").read_text())
        self.tensors = (home / "net" / "calls.safetensors").read_bytes()

    def change(self, rng: Random) -> None:
        self.rng = rng
        self.folder: Path = self.anew("net")
        data, tensors = json.dumps(self.said).encode(), self.tensors
        if rng.random() < 0.8:
            data = changes.json_text(rng, self.said).encode("utf-8", "surrogatepass")
        else:
            tensors = changes.flipped(rng, tensors)
        (self.folder / "captured.json").write_bytes(data)
        (self.folder / "calls.safetensors").write_bytes(tensors)

    def call(self) -> None:
        from harness.core.case import Component, Sample, Source
        from harness.plugins.capture.saved import parts_in
        from harness.plugins.capture.suites import CheckSettings, suite_text
        from harness.recipes import captured
        from harness.recipes.calls import read_captured
        from harness.recipes.inputs import generator

        parts = parts_in(self.folder.parent, {"net": "nets:make"})
        suite_text(parts, CheckSettings(), "captured")
        source = Source(path=self.folder, module="nets:make")
        inputs, outputs = captured.signature(source, {})
        component = Component(
            name="net", recipe="captured", source=source, inputs=inputs, outputs=outputs
        )
        sizes = self.rng.choice(read_captured(self.folder).sizes)
        sample = Sample(
            profile="realistic", index=0, shapes=tuple(sorted(sizes.items()))
        )
        captured.recorded(component, sizes, self.rng.choice((0, 1, 5)))
        captured.realistic(component, sizes, 0, generator("net", sample))
        captured.arguments_of(self.folder, read_captured(self.folder), {})
        self.sound = 1
