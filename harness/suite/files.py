"""Files that others exported, which a component's table names and a plug-in reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.core.case import Component, ExportSettings, ForeignModel, Source
from harness.core.errors import SpecError
from harness.core.plugins import added
from harness.core.runtime import formats
from harness.suite.schema import ComponentTable, SuiteFile
from harness.suite.tables import Binding, Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReader:
    """What a plug-in declares as ``files``: it takes files in the place of exports.

    Attributes:
        prepare: Task, ``module:function``, that makes inputs, graphs and references as
            `harness.engine.tasks.PREPARE` does, for a component without PyTorch.
        take: Task that puts a file of a runtime's own format into a folder of the
            store. It gets the folder, the component and the format.
        read: Function of the suite and a component's table. It returns the files that
            the table names, or None, and the reference of a suite without a [source].
        plans: Function of a component's table, its files and what would run without
            them. It returns what runs.
        settings: Function of a component, settings of an export and the sizes to run.
            It returns the settings with the open axes of the component's file.
        lacking: Function of a path and a format. It returns a message about data that
            the file lacks, or an empty text.
        export: Function of a `TracedNetwork` and an empty folder. It puts the
            component's file there and returns an `Exported`, as an export does.

    `read`, `plans` and `settings` raise `SuiteError`, with file and line.

    """

    prepare: str
    take: str
    read: Callable[
        [SuiteFile, ComponentTable], tuple[ForeignModel | None, Source | None]
    ]
    plans: Callable[
        [ComponentTable, ForeignModel, Sequence[Planned]], tuple[Planned, ...]
    ]
    settings: Callable[[Component, ExportSettings, Sequence[Binding]], ExportSettings]
    lacking: Callable[[Path, str], str]
    export: Callable[[Any, Path], Any]


def file_reader() -> FileReader:
    """Return the first reader of files that can be loaded.

    Raises:
        SpecError: There is none.

    """
    msg = "no installed plug-in reads files that others exported"
    for one in added("files"):
        if one.function is not None:
            return cast("FileReader", one.function)
        msg = one.words
    raise SpecError(msg)


def read_files(
    file: SuiteFile, table: ComponentTable
) -> tuple[ForeignModel | None, Source | None]:
    """Return the files that a component's table names; see `FileReader`.

    Raises:
        SuiteError: A file is wrong, or no plug-in reads it.

    """
    keys = ("onnx", "reference", "names", *formats())
    key = next((key for key in keys if key in table), "")
    if not key and (file.source.named_by or table.captured):
        return None, None
    try:
        reader = file_reader()
    except SpecError as error:
        text = f"{error}; take such files out of the suite."
        raise table.error(text, key) from None
    return reader.read(file, table)
