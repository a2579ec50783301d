"""ONNX Runtime in a browser, as a target: `[target.NAME]` of the kind ``browser``."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    targets=("harness.plugins.browser.targets:BROWSER",),
    makes=("harness.plugins.browser.command:browser",),
    sessions=("harness.plugins.browser.sessions:opened",),
)
