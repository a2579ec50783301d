"""Diffusion pipelines, drawn with deployed files: ``[pipeline.NAME]``."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    cases=("harness.plugins.pipelines.read:PIPELINES",),
    preload=("harness.plugins.pipelines.drawing.worker",),
)
