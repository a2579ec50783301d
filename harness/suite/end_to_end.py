"""End-to-end cases of a suite: the tables ``[pipeline.NAME]``, which plug-ins read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

from harness.core.case import Case, Source
from harness.core.end_to_end import EndToEndCase
from harness.core.plugins import added
from harness.core.toml_schema import Keys
from harness.recipes import RECIPES
from harness.suite.schema import EndToEndTable, InputsTable, SuiteFile
from harness.suite.tables import Planned

Siblings = Callable[[str], Case]
"""Returns a case of the component that has a role; both share the exported graph."""


class Reader(Protocol):
    """What a plug-in declares as ``cases``: a reader of tables ``[pipeline.NAME]``."""

    @property
    def tables(self) -> Sequence[type[Keys]]:
        """The struct of each kind of table, for the JSON Schema of parity.toml."""

    def roles(self, kinds: Iterable[str], source: Source) -> set[str]:
        """Return the components that kinds of tables need of a checkpoint."""

    def read(
        self,
        name: str,
        table: EndToEndTable,
        source: Source,
        siblings: Siblings,
        planned: Sequence[Planned],
    ) -> Iterable[EndToEndCase]:
        """Read a table, and yield its cases.

        Raises:
            SuiteError: Something in the table is wrong. The message names file and
                line.

        """

    def calibrated(
        self,
        cases: Sequence[EndToEndCase],
        tested: Iterable[Case],
        inputs: InputsTable,
    ) -> tuple[EndToEndCase, ...]:
        """Return cases whose parts have what their files are calibrated with."""


def roles_of(tables: Mapping[str, EndToEndTable], source: Source) -> set[str]:
    """Return the components of all tables, whether tested alone or not."""
    kinds = {table.kind or name for name, table in tables.items()}
    reader = reader_of_tables() if kinds else None
    return reader.roles(kinds, source) if reader else set()


def end_to_end_cases(
    file: SuiteFile,
    source: Source,
    siblings: Siblings,
    planned: Sequence[Planned],
    cases: Sequence[Case],
) -> tuple[EndToEndCase, ...]:
    """Return the end-to-end cases of a suite, in file order.

    Args:
        file: The suite's file.
        source: The checkpoint.
        siblings: Returns a case of a role's component.
        planned: What runs in which runtime.
        cases: The cases of components.

    Raises:
        SuiteError: A table is wrong, or no installed plug-in reads it.

    """
    if not file.pipeline:
        return ()
    taken, reader = {*RECIPES, *(case.subject for case in cases)}, reader_of_tables()
    end_to_end: list[EndToEndCase] = []
    for name, table in file.pipeline.items():
        if name in taken:
            text = f"{name!r} is a component, and ids must differ; take another name."
            raise table.error(text)
        if reader is None:
            text = "no installed plug-in reads [pipeline.NAME]; remove this table."
            raise table.error(text)
        end_to_end += reader.read(name, table, source, siblings, planned)
    return reader.calibrated(end_to_end, cases, file.inputs) if reader else ()


def reader_of_tables() -> Reader | None:
    """Return the first reader of pipelines that can be loaded, or None."""
    readers = (one.function for one in added("cases"))
    return cast("Reader | None", next(filter(None, readers), None))
