"""Runs compared with earlier and accepted ones: `parity diff`, `baseline`, `gate`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=(
        "harness.plugins.release.command:baseline",
        "harness.plugins.release.command:gate",
        "harness.plugins.release.diff_command:diff",
    ),
    baselines=("harness.plugins.release.since:baseline_path",),
    facts=("harness.plugins.release.since:with_since",),
)
