"""The notes of an exporter beside a graph's values, without personal paths.

An exporter writes the stack of calls beside each node, with the path of each file on
the machine that exported. An exported graph is deployed and sent, so it has them from
the folder of a package, or from the last folder of a module that is in no package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.core.private import public

if TYPE_CHECKING:
    import onnx

_public = lru_cache(maxsize=4096)(public)  # a module's calls stand beside many nodes


def make_public(model: onnx.ModelProto) -> bool:
    """Take personal paths out of the notes of a model, and return whether it had any.

    Names of values, of modules and of scopes stay, because values are aligned by them.
    """
    changed = False
    for noted in _noted(model):
        for entry in noted.metadata_props:
            text = _public(entry.value)
            changed |= text != entry.value
            entry.value = text
        # Some tensors have a location in the place of such a text.
        text = _public(getattr(noted, "doc_string", ""))
        if text != getattr(noted, "doc_string", ""):
            changed, noted.doc_string = True, text
    return changed


def _noted(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield each part of a model that can have notes."""
    yield model
    yield from _in_graph(model.graph)
    for function in model.functions:
        yield function
        yield from function.value_info
        yield from _in_nodes(function.node)


def _in_graph(graph: onnx.GraphProto) -> Iterator[Any]:
    yield graph
    for part in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from part
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            inner = (attribute.g,) if attribute.HasField("g") else attribute.graphs
            for graph in inner:
                yield from _in_graph(graph)
