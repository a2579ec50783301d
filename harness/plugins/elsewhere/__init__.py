"""Runtimes elsewhere: targets, bundles and the traces that they write."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=(
        "harness.plugins.elsewhere.command:bundle",
        "harness.plugins.elsewhere.command:judge",
        "harness.plugins.elsewhere.emulated:target",
    ),
    targets=("harness.plugins.elsewhere.commands:COMMAND",),
    sessions=("harness.plugins.elsewhere.sessions:opened",),
)
