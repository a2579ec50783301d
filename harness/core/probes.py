"""Probes: the named values of a PyTorch program, and how each one is used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from harness.core.errors import StoreError
from harness.core.received import DamagedError, read_json

Setting = int | float | str | bool | list[int] | None
"""The value of an operator's constant argument; infinities and NaN are text.

A whole number stays one when it is read: an axis is an index, and a number of groups
divides.
"""


class ValueKind(StrEnum):
    """The kind of a program's value. Coverage counts values by it."""

    COMPUTE = "compute"
    """An operator computed the value from the inputs."""

    MOVE = "move"
    """The value is a view, copy or concatenation of other values; nothing is
    computed."""

    IDENTITY = "identity"
    """An operator passed the value on unchanged: a division by one, dropout in eval."""

    CONSTANT = "constant"
    """The value does not depend on the inputs, so an exporter folds it away."""

    DUPLICATE = "duplicate"
    """An earlier operator computed the same value from the same values. Exporters merge
    the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One named value of a PyTorch program.

    Attributes:
        name: Name in the PyTorch program.
        position: Position in the order of execution, from 0.
        kind: Kind of the value. Coverage counts the kinds that are computed.
        op: Operator, ``aten.conv2d.default``, or the class name of a module.
        module: Module path in the checkpoint's names,
            ``down_blocks.0.resnets.0.conv1``.
        source: Line of the model's code that called it, if it is known,
            ``diffusers/models/resnet.py:345``.
        onnx: Name of the value in the exported graph that holds it; empty if none does.
        parents: Names of the nearest computed values from which it was made.
        settings: Constant arguments of the operator, by name: ``eps``, ``dim``.
        arguments: Tensor arguments of the operator, in order. Each is a pair of the
            argument's name and the name of a value or an input. A name with a dot is
            that of a parameter. The tensors of a list share the argument's name.
        between: Whether a module reads a value that is no probe: operators that have
            no module of their own stand between its parents and its inputs.

    """

    name: str
    position: int
    kind: ValueKind
    op: str = ""
    module: str = ""
    source: str = ""
    onnx: str = ""
    parents: tuple[str, ...] = ()
    settings: tuple[tuple[str, Setting], ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    between: bool = False

    @property
    def is_module(self) -> bool:
        """Whether the value is the output of a module, not of one operator."""
        has_name = bool(self.module) and self.name.endswith(self.module)
        return has_name and "." not in self.op  # as ``aten.linear.default`` has


def save_probes(probes: Sequence[Probe], path: Path) -> None:
    """Write `probes` as JSON."""
    text = json.dumps([asdict(probe) for probe in probes], indent=0)
    path.write_text(text, encoding="utf-8")


def load_probes(path: Path) -> tuple[Probe, ...]:
    """Return the probes that `save_probes` wrote.

    Raises:
        StoreError: The file is not there, or is damaged.

    """
    try:
        return read_json(path, tuple[Probe, ...])
    except (OSError, DamagedError) as error:
        msg = f"{path} holds no readable probes: {error}. Run `parity store verify`."
        raise StoreError(msg) from error
