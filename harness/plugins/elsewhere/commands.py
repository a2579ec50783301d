"""``[target.NAME]`` with a command that starts a Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from harness.core.case import Target
from harness.core.toml_schema import Word
from harness.suite.places import TargetKind
from harness.suite.schema import COMMAND as _KIND
from harness.suite.schema import TargetTable
from harness.suite.tables import path_beside


class CommandTable(TargetTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place other than this process where a runtime runs in a Python.

    Attributes:
        command: Program and arguments that start a Python there, which has numpy and
            the runtime. A path is relative to the suite's folder.

    """

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]


def targets(name: str, table: CommandTable) -> Iterator[Target]:
    """Yield the target of a table."""
    first, *rest = table.command
    if "/" in first:
        first = str(path_beside(table, "command", first))
    yield Target(name=name, command=(first, *rest))


COMMAND = TargetKind(kind=_KIND, table=CommandTable, targets=targets)
