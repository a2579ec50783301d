"""Weights and attributes of an exported graph, compared with PyTorch's; none runs."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    graphs=("harness.plugins.weights.graph:differences",),
    differences=("harness.plugins.weights.attributes:differences",),
    findings=("harness.plugins.weights.judged:graph_finding",),
    preload=("harness.plugins.weights.graph",),
    notes=("harness.plugins.weights.judged:graph_notes",),
)
