"""A run as one HTML file: `report.html`, and `parity report`."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.page.command:report",),
    reports=("harness.plugins.page.page:write_report",),
)
