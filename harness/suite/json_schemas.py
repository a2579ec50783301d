"""The JSON Schema of each TOML file of a suite, for editors.

    python -m harness.suite.json_schemas docs

This command writes the schemas beside the documentation. In a suite's file, the first
line ``#:schema ./parity.schema.json`` names the schema for a TOML language server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.core.case import AT
from harness.core.toml_json_schema import json_schema
from harness.judge.known_gaps import GapsFile
from harness.judge.policy import Stated, StatedOfComponent
from harness.suite.end_to_end import reader_of_tables
from harness.suite.places import target_kinds
from harness.suite.schema import EndToEndTable, SuiteFile, TargetTable


def schemas() -> dict[str, str]:
    """Return the text of each file's JSON Schema, by the schema's file name."""
    found = {
        "parity": suite_schema(),
        "tolerances": tolerances_schema(),
        "known_gaps": json_schema(GapsFile),
    }
    return {
        f"{name}.schema.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for name, schema in found.items()
    }


def suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of parity.toml."""
    reader = reader_of_tables()
    kinds = {
        "pipeline": (EndToEndTable, tuple(reader.tables if reader else ())),
        "target": (TargetTable, tuple(one.table for one in target_kinds().values())),
    }
    schema = json_schema(SuiteFile, *(one for _, own in kinds.values() for one in own))
    keys = schema["$defs"][SuiteFile.__name__]["properties"]
    for key, (base, own) in kinds.items():
        del schema["$defs"][base.__name__]
        keys[key]["additionalProperties"] = {
            "anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in own]
        }
    return schema


def tolerances_schema() -> dict[str, Any]:
    """Return the JSON Schema of tolerances.toml.

    Its top-level names are backends or components. A schema cannot distinguish them.
    """
    schema = json_schema(Stated, StatedOfComponent)
    wide, narrow = (
        {"$ref": f"#/$defs/{kind.__name__}"} for kind in (Stated, StatedOfComponent)
    )
    narrower = {"type": "object", "additionalProperties": narrow}
    tables = {"type": "object", "additionalProperties": {"anyOf": [wide, narrower]}}
    del schema["$ref"]
    for kind, ref in ((Stated, wide), (StatedOfComponent, narrow)):
        schema["$defs"][kind.__name__]["patternProperties"] = {f"^{AT}": ref}
    return {
        **schema,
        "description": "Tolerances: tables [backend.variant], and narrower ones "
        "[component.backend.variant].",
        "type": "object",
        "additionalProperties": tables,
    }


if __name__ == "__main__":
    for name, text in schemas().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
