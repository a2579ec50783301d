"""`parity explain`: from a case that fails to the operator and the setting at fault.

setting_changes           the settings that can be tried, and the cause each removes
excerpts                  where a case diverges, and the smallest excerpt that shows it
explain, screen           try each setting, measure, and show the results
repro, post               a folder that shows the divergence without the harness
excerpt                   an excerpt as a case of its own, and its stages
cut, redraw, evaluated    what the stages do in a worker process
"""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=(
        "harness.plugins.explain.command:explain",
        "harness.plugins.explain.command:repro",
    ),
)
