"""Tolerances from measured errors: `parity tune`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.tune.command:tune",),
)
