"""A run that other people check: `parity card` and `parity verify`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=(
        "harness.plugins.card.command:card",
        "harness.plugins.card.command:verify",
    ),
)
