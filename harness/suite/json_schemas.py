"""The JSON Schema of each TOML file of a suite, for editors.

    python -m harness.suite.json_schemas docs

This command writes the schemas beside the documentation. In a suite's file, the first
line ``#:schema ./parity.schema.json`` names the schema for a TOML language server.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness.core.toml_schema import json_schema
from harness.judge.known_gaps import GapsFile
from harness.judge.policy import tolerances_schema
from harness.suite.schema import suite_schema


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


if __name__ == "__main__":
    for name, text in schemas().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
