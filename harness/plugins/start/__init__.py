"""The steps before the first run: `parity init` and `parity doctor`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=(
        "harness.plugins.start.command:doctor",
        "harness.plugins.start.command:init",
    ),
)
