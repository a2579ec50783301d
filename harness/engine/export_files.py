"""Names of the files that an export leaves in the store."""

from __future__ import annotations

MODEL = "model.onnx"
WEIGHTS = "weights.pb"
PROBES = "probes.json"
GRAPH = "graph.onnx"
"""The graph of a foreign converted file, without weights."""
PROTO_LIMIT_BYTES = 2**31 - 2**24
"""Limit for weights in a protobuf message: 2 GiB less a margin for the graph."""
