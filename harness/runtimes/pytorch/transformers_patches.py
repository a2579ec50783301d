"""Export as transformers' exporters do: dynamo, with their patches and translations.

They patch what PyTorch cannot translate. A component is a module around the model, so
PyTorch's own exporter is called within their patches.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.runtimes.pytorch.program import WRAPPER

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

    from harness.runtimes.pytorch.translation import TracedNetwork


def export_patched(
    network: TracedNetwork, export: Callable[..., Any], shapes: object
) -> ONNXProgram:
    """Return what PyTorch's dynamo exporter makes with the patches of transformers.

    `export` is that exporter, with its arguments; `shapes` has the network's open axes.

    Raises:
        StageError: transformers has no such exporter, or the network is none of its
            models.

    """
    try:
        from transformers import PreTrainedModel
        from transformers.exporters import exporter_dynamo as of_programs
        from transformers.exporters import exporter_onnx as of_graphs
        from transformers.exporters.utils import apply_fx_node_fixes, apply_patches
    except ImportError as error:
        _refuse(
            network,
            f"it needs transformers 5.13 or newer, and {version('transformers')} is "
            f"installed ({first_line(error)}).",
        )
    parts = network.copy.modules()
    model = next((part for part in parts if isinstance(part, PreTrainedModel)), None)
    if model is None:
        own = getattr(network.copy, WRAPPER, network.copy)
        _refuse(
            network,
            f"{type(own).__name__} is no model of transformers, and has none inside. "
            'Take exporter = "dynamo".',
        )
    with apply_patches("onnx"):
        of_programs.register_cache_pytrees_for_model(model)
        with apply_patches("dynamo"), of_programs.reset_model_state(network.copy):
            program = torch.export.export(
                network.copy, network.example, dynamic_shapes=shapes, strict=False
            )
        apply_fx_node_fixes("onnx", program.graph_module)
        table = of_graphs._ONNX_TRANSLATION_TABLE  # noqa: SLF001  # no public name
        made: ONNXProgram = export(program, custom_translation_table=table)
    of_graphs.apply_onnx_ir_fixes(made)
    return made


def _refuse(network: TracedNetwork, why: str) -> NoReturn:
    what = f"{network.component.name} cannot be exported by the transformers exporter"
    msg = f"{what}: {why}"
    raise StageError(msg, outcome=Outcome.EXPORT)
