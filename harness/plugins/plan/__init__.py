"""Which layers keep their precision: `parity plan`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.plan.command:plan",),
)
