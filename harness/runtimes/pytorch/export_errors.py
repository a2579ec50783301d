"""Find where an exporter stopped: the operator, and the line that called it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence

import torch

from harness.core.case import Component, ExportSettings
from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.recipes.adapters import HOW_TO_MERGE, adapter_of

_OF_DYNAMO = "18 to 25, and often 15 to 17"
_OPSETS = {
    "dynamo": _OF_DYNAMO,
    "torchscript": "14 to 23",
    "transformers": _OF_DYNAMO,
}
"""Measured with torch 2.13 and onnxscript 0.7; other versions may differ."""

_MISSING_OPS = (
    re.compile(r"OpOverload\(op='([^']+)'"),
    re.compile(r"No ONNX function found for (\S+)"),
    re.compile(r"(?:operator|namespace) '?(\w+::\w+)"),
)
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_TORCHSCRIPT_LINE = re.compile(r"(\S+)\((\d+)\):")
_LONGEST = 300
"""Largest number of characters quoted from an exporter's message.

An exporter may print a graph on one line.
"""

_NOT_THE_USERS = ("/torch/", "/onnxscript/", "/onnx/", "/harness/", "<")


def refusal(
    component: Component, settings: ExportSettings, error: Exception
) -> StageError:
    """Return an error that states the cause of an exporter's exception."""
    chain = list(_causes(error))
    text = "\n".join(str(cause) for cause in chain)
    if "opset" in text.lower() and "support" in text.lower() and "::" not in text:
        return wrong_opset(component, settings, None)
    found = (pattern.search(text) for pattern in _MISSING_OPS)
    operator = next((match[1] for match in found if match), "")
    place = place_of(chain, text, operator)
    what = f" at {operator}" if operator else ""
    where = f" ({place})" if place else ""
    other = "torchscript" if settings.exporter == "dynamo" else "dynamo"
    reason = "" if operator else f": {first_line(chain[-1])[:_LONGEST]}"
    # Without a line, no operator stops the exporter: the requested sizes do.
    ways = [f'exporter = "{other}"']
    if where or operator:
        ways.append("rewrite that line")
    elif settings.dynamic:
        ways += ["leave axes out of dynamic_axes", "give other [[shapes]]"]
    return StageError(
        f"{component.name} cannot be exported by the {settings.exporter} exporter: it "
        f"stops{what}{where}{reason}. Try {', or '.join(ways)}.",
        outcome=Outcome.EXPORT,
        log=text,
    )


def wrong_opset(
    component: Component, settings: ExportSettings, given: int | None
) -> StageError:
    """Return the error about an opset that an exporter does not write."""
    wrote = f" (it wrote {given})" if given else ""
    return StageError(
        f"{component.name}: the {settings.exporter} exporter cannot write opset "
        f"{settings.opset}{wrote}; it takes {_OPSETS[settings.exporter]}. "
        "Change `opset` or `exporter` under [export] in parity.toml.",
        outcome=Outcome.EXPORT,
    )


def refuse_adapters(component: Component, module: torch.nn.Module) -> None:
    """Refuse a module with a LoRA's layers beside its own.

    They would be exported as separate operators, which nobody deploys, and the result
    would pass for the network.

    Raises:
        StageError: The module has such a layer.

    """
    names = (name for name, _ in module.named_parameters())
    if adapter := adapter_of(names):
        msg = f"{component.name} has a LoRA that is not merged ({adapter}). "
        raise StageError(msg + HOW_TO_MERGE, outcome=Outcome.EXPORT)


def place_of(chain: Sequence[BaseException], text: str = "", operator: str = "") -> str:
    """Return the innermost line outside the frameworks, if it is known.

    Args:
        chain: An exception, and what caused it.
        text: Their messages, which may name lines.
        operator: The operator at which an exporter stopped.

    """
    lines: list[tuple[str, str]] = []
    for cause in chain:
        lines += _lines_of_operator(cause, operator)
    lines += reversed(_LINE.findall(text))
    for cause in reversed(chain):
        frames = traceback.extract_tb(cause.__traceback__)
        lines += [(frame.filename, str(frame.lineno)) for frame in reversed(frames)]
    for file, line in lines:
        if not any(part in file for part in _NOT_THE_USERS):
            return f"{file.rpartition('site-packages/')[2]}:{line}"
    return ""


def _lines_of_operator(error: BaseException, operator: str) -> list[tuple[str, str]]:
    """Return the lines that called an operator, which the exporters' frames hold."""
    place = error.__traceback__
    while place is not None:
        known = place.tb_frame.f_locals
        node, graph = known.get("node"), known.get("graph")
        if isinstance(node, torch.fx.Node):
            return _LINE.findall(node.meta.get("stack_trace") or "")[::-1]
        if isinstance(graph, torch.Graph):
            for call in graph.nodes():
                if call.kind() == operator:
                    return _TORCHSCRIPT_LINE.findall(call.sourceRange())
        place = place.tb_next
    return []


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
