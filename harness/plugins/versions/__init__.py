"""Versions of a runtime, each in a Python of its own: `parity versions`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.versions.command:versions",),
    pythons=("harness.plugins.versions.environments:python_of",),
)
