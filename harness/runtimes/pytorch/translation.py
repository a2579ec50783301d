"""Keep the dynamo exporter's translation of a network in the store."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from harness.engine.keys import program_key
from harness.runtimes.pytorch.export import TracedNetwork, program_names, translate
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


def translate_once(network: TracedNetwork) -> Translated:
    """Return a network's translation from the store; make it if it is missing.

    A translation takes minutes at full size, and a network may be measured many times.
    All of the program's state is the module's, so the program is kept without it. The
    component's name and its file do not matter.

    Raises:
        Exception: The exporter fails, or its program cannot be written or read. It may
            be any exception, and nothing is kept.

    """
    component, settings = network.component, network.settings
    fresh: list[ExportedProgram] = []

    def build(folder: Path) -> Mapping[str, object]:
        made = translate(network)
        fresh.append(made.exported_program)
        # On a full disk, PyTorch's own writer aborts the process and says nothing.
        written = BytesIO()
        torch.export.save(_bare(made.exported_program), written)
        (folder / _FILE).write_bytes(written.getbuffer())
        return {_OUTPUTS: program_names(made, component)}

    shapes = [list(tensor.shape) for tensor in network.example]
    key = program_key(component, settings, shapes)
    entry = network.store.make("program", key, build)
    if fresh:
        (exported,) = fresh
    else:
        entry.check()
        exported = torch.export.load(entry.file(_FILE))
        weights = network.copy.state_dict(keep_vars=True)
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
