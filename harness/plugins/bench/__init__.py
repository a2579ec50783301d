"""Time and memory: `parity bench`, and benchmarks as pytest tests."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.bench.command:bench",),
    sections=("harness.plugins.bench.section:speeds",),
)
