"""Compare a graph of the store with its module, in the process that exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.case import Component
from harness.core.entry import Entry
from harness.core.probes import load_probes
from harness.engine.export_files import MODEL, PROBES
from harness.engine.host import report_progress
from harness.plugins.weights.causes import Lora
from harness.plugins.weights.check import check_graph
from harness.recipes import recipe_module

if TYPE_CHECKING:
    import torch


def differences(
    component: Component, module: torch.nn.Module, graph: Entry
) -> Mapping[str, object]:
    """Return where a graph differs from a component's module, as `check_graph` does.

    It is empty for a file that has no graph.
    """
    if MODEL not in graph.files:  # a foreign MNN file has no graph
        return {}
    report_progress("comparing", component.name, "weights and attributes")
    probes = load_probes(graph.file(PROBES))
    return check_graph(module, probes, graph.file(MODEL), _lora_of(component))


def _lora_of(component: Component) -> Lora | None:
    """Return the LoRA that a component's weights have, if the suite names one."""
    source = component.source
    if source.lora is None:
        return None
    bare = replace(component, source=replace(source, lora=None))
    return Lora(
        name=source.lora.name,
        scale=source.lora_scale,
        without=lambda: recipe_module(bare.recipe).build(bare),
    )
