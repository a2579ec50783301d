"""Read how PyTorch becomes ONNX: the keys of ``[export]`` and of a component's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from harness.core.case import EXPORTERS, ExportSettings
from harness.core.toml_file import Table
from harness.suite.tables import read_words

OLDEST_OPSET: Final = 14
ATTENTIONS: Final = ("eager", "sdpa")
EXPORT_KEYS: Final = (
    "exporter",
    "opset",
    "dynamic_axes",
    "external_data",
    "attention",
)


def read_export(
    table: Table, base: ExportSettings, symbols: Collection[str]
) -> ExportSettings:
    """Read export settings where `base` fills in, open sizes kept to `symbols`.

    Raises:
        SuiteError: Naming the setting's line.

    """
    kept = tuple(symbol for symbol in base.dynamic if symbol in symbols)
    exporter = table.choice("exporter", EXPORTERS, base.exporter)
    # What is left out goes with the exporter: dynamo writes no opset as old as 14.
    usual = base.opset if exporter == base.exporter else ExportSettings().opset
    opset = table.take("opset", int, usual)
    if opset < OLDEST_OPSET:
        text = f"opset {OLDEST_OPSET} or newer is needed, got {opset}."
        raise table.error(text, "opset")
    return ExportSettings(
        exporter=exporter,
        opset=opset,
        dynamic=read_words(table, "dynamic_axes", symbols, kept, may_be_empty=True),
        external_data=table.take("external_data", bool, base.external_data),
        attention=table.choice("attention", ATTENTIONS, base.attention),
    )
