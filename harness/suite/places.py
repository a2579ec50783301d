"""Kinds of ``[target.NAME]``, which plug-ins declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.case import Target
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

    """

    kind: str
    table: type[Keys]
    targets: Callable[[str, Any], Iterable[Target]]


def target_kinds() -> Mapping[str, TargetKind]:
    """Return the kinds of the installed plug-ins that can be loaded, by name."""
    found: Iterable[Any] = (one.function for one in added("targets"))
    return {one.kind: one for one in found if one is not None}
