"""Kinds of ``[target.NAME]``, which plug-ins declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.case import Device, Target
from harness.core.plugins import added
from harness.core.toml_schema import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKind:
    """What a plug-in declares as ``targets``: a kind of table ``[target.NAME]``.

    Attributes:
        kind: Name of the kind.
        table: The struct of its tables, a subclass of
            `harness.suite.schema.TargetTable`.
        targets: Function of a table's name and the table, which yields its targets.
        bundle: Function of a case's id, its device, and the folder of its bundle, which
            has the recorded calls and the deployed files. It writes what makes the
            calls on such a target, and a README.md. Without it a Python makes them.

    """

    kind: str
    table: type[Keys]
    targets: Callable[[str, Any], Iterable[Target]]
    bundle: Callable[[str, Device, Path], None] | None = None


def target_kinds() -> Mapping[str, TargetKind]:
    """Return the kinds of the installed plug-ins that can be loaded, by name."""
    found: Iterable[Any] = (one.function for one in added("targets"))
    return {one.kind: one for one in found if one is not None}


def bundle_writer(target: Target | None) -> Callable[[str, Device, Path], None] | None:
    """Return what a target's kind declares as `TargetKind.bundle`; None for none."""
    kind = target_kinds().get(target.kind) if target else None
    return kind.bundle if kind else None
