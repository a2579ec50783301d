"""The dynamo exporter's program of a network, kept for every file lined up with it.

A translation takes minutes at full size, and many files may come from one network. The
store keeps the program without its weights, which the module has.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.core.case import Component, ExportSettings
from harness.engine.keys import program_key
from harness.engine.store import Store
from harness.runtimes.pytorch.export import program_names, translate
from harness.runtimes.pytorch.program import Program, program_of_export

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_FILE = "program.pt2"
_OUTPUTS = "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A network's program, and the program's value behind each output, by its name."""

    program: Program
    outputs: Mapping[str, str]


def translate_now(
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
) -> Translated:
    """Translate a network, without a look into the store.

    Raises:
        Exception: The exporter fails; it may raise any exception.

    """
    made = translate(module, component, settings, example)
    program = program_of_export(made.exported_program)
    return Translated(program=program, outputs=program_names(made, component))


def translate_once(
    store: Store,
    module: torch.nn.Module,
    component: Component,
    settings: ExportSettings,
    example: tuple[torch.Tensor, ...],
) -> Translated:
    """Return a network's translation from the store; make it if it is missing.

    Args:
        store: The store that keeps the program.
        module: The module that an exporter would get; gives the program its weights.
        component: The network's component; its name and its file do not matter.
        settings: Settings of the export.
        example: Inputs to trace with.

    Raises:
        Exception: The exporter fails; it may raise any exception, and nothing is kept.

    """
    # All of the program's state is the module's, so the program is kept without it.
    weights = module.state_dict(keep_vars=True)
    fresh: list[ExportedProgram] = []

    def build(folder: Path) -> Mapping[str, object]:
        made = translate(module, component, settings, example)
        fresh.append(made.exported_program)
        torch.export.save(_bare(made.exported_program), folder / _FILE)
        return {_OUTPUTS: program_names(made, component)}

    shapes = [list(tensor.shape) for tensor in example]
    entry = store.make("program", program_key(component, settings, shapes), build)
    exported = fresh[0] if fresh else torch.export.load(entry.file(_FILE))
    if not fresh:
        exported._state_dict = {name: weights[name] for name in exported.state_dict}  # noqa: SLF001  # no public way
    outputs = entry.meta[_OUTPUTS]
    assert isinstance(outputs, dict)  # noqa: S101  # as `build` returned it
    return Translated(program=program_of_export(exported), outputs=outputs)


def _bare(exported: ExportedProgram) -> ExportedProgram:
    """Return a program with zeros for weights, which need no memory: one, repeated."""
    bare = copy.copy(exported)
    zeros: dict[str, torch.Tensor] = {}
    for name, value in exported.state_dict.items():
        zero = torch.zeros((), dtype=value.dtype).expand(value.shape)
        if isinstance(value, torch.nn.Parameter):
            zero = torch.nn.Parameter(zero, requires_grad=False)
        zeros[name] = zero
    bare._state_dict = zeros  # noqa: SLF001  # no public way
    bare._example_inputs = None  # noqa: SLF001  # they are drawn again
    return bare
