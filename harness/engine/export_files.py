"""Names of the files that an export leaves in the store."""

from __future__ import annotations

MODEL = "model.onnx"
WEIGHTS = "weights.pb"
PROBES = "probes.json"
GRAPH = "graph.onnx"
"""What a converted file of others is made of, without weights."""
PROTO_LIMIT_BYTES = 2**31 - 2**24
"""A protobuf message ends at 2 GiB; a margin is left for the graph itself."""
