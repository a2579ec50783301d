"""Read how PyTorch becomes ONNX: the keys of ``[export]`` and of a component's own."""

from __future__ import annotations

from collections.abc import Collection

from harness.core.case import ExportSettings
from harness.core.toml_file import Table
from harness.suite.schema import Export
from harness.suite.tables import read_words


def read_export(
    table: Table, said: Export, base: ExportSettings, symbols: Collection[str]
) -> ExportSettings:
    """Read export settings where `base` fills in, open sizes kept to `symbols`.

    Raises:
        SuiteError: Naming the setting's line.

    """
    kept = tuple(symbol for symbol in base.dynamic if symbol in symbols)
    exporter = said.exporter or base.exporter
    # What is left out goes with the exporter: dynamo writes no opset as old as 14.
    usual = base.opset if exporter == base.exporter else ExportSettings().opset
    external = said.external_data
    return ExportSettings(
        exporter=exporter,
        opset=said.opset or usual,
        dynamic=read_words(table, "dynamic_axes", symbols, kept, may_be_empty=True),
        external_data=base.external_data if external is None else external,
        attention=said.attention or base.attention,
    )
