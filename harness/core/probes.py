"""Probes: the named values of a PyTorch program, and what each one is for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

Setting = float | str | bool | list[int] | None
"""What an operator may be told beside tensors."""


class Kind(StrEnum):
    """What a value of the program is, seen by someone who compares numbers."""

    COMPUTE = "compute"
    """An operator computed it from the inputs."""

    MOVE = "move"
    """A view, copy or concatenation of other values; it computes nothing."""

    IDENTITY = "identity"
    """An operator that changes nothing here: a division by one, dropout in eval."""

    CONSTANT = "constant"
    """It does not depend on the inputs, so an exporter folds it away."""

    DUPLICATE = "duplicate"
    """The same operator on the same values as an earlier one; exporters merge them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One named value.

    Attributes:
        name: The value's name in the PyTorch program.
        position: Order of execution, from 0.
        kind: What it is; coverage counts what computes.
        op: Operator, ``aten.conv2d.default``, or a module's class name.
        module: Path in the checkpoint's own names, ``down_blocks.0.resnets.0.conv1``.
        source: The model's line that called it, ``diffusers/models/resnet.py:345``.
        onnx: Name of the value in the exported graph that carries it; empty if none.
        parents: Names of the nearest computed values it was made from.
        settings: The operator's constant arguments, by name: ``eps``, ``dim``.
        arguments: Its tensors in order: the argument's name, and the value, the input
            or, with a dot in it, the parameter. A list repeats the name.

    """

    name: str
    position: int
    kind: Kind
    op: str
    module: str
    source: str
    onnx: str = ""
    parents: tuple[str, ...] = ()
    settings: tuple[tuple[str, Setting], ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()


def save_probes(probes: Sequence[Probe], path: Path) -> None:
    """Write `probes` as JSON."""
    text = json.dumps([asdict(probe) for probe in probes], indent=0)
    path.write_text(text, encoding="utf-8")


def load_probes(path: Path) -> tuple[Probe, ...]:
    """Read what `save_probes` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Probe(
            **{
                **row,
                "kind": Kind(row["kind"]),
                "parents": tuple(row["parents"]),
                "settings": tuple((name, value) for name, value in row["settings"]),
                "arguments": tuple(
                    (name, value) for name, value in row.get("arguments", ())
                ),
            }
        )
        for row in rows
    )
