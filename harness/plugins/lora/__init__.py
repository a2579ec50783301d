"""LoRAs: low-rank weights that are merged into networks before the export."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    adapters=("harness.plugins.lora.merge:lora_of",),
)
