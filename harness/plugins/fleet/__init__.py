"""Several machines: a Ray cluster, shards of a run, and a store that they share."""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    commands=("harness.plugins.fleet.command:merge",),
    executors=("harness.plugins.fleet.ray_executor:executor_on",),
    shards=("harness.plugins.fleet.shards:shard_of",),
    stores=("harness.plugins.fleet.shared:shared_store",),
)
