"""A case in many versions of its runtime: `parity versions`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.versions.command:versions",),
)
