"""Error patterns: rules over two arrays that name the usual cause of an error."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    patterns=("harness.plugins.patterns.pattern:pattern",),
)
