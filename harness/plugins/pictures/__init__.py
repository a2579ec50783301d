"""Pictures of pipelines: their errors and causes, and the verdict over many of them."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    findings=("harness.plugins.pictures.words:pair_finding",),
    gists=("harness.plugins.pictures.words:gist",),
    lines=("harness.plugins.pictures.words:pipeline_lines",),
    tables=("harness.plugins.pictures.tables:markdown",),
)
