"""Pages that mkdocs makes from the code when the site is built (plugin gen-files).

The first page is README.md. The reference pages are made from the JSON Schemas, from
click's commands, and from the docstrings of `Outcome`.
"""

import ast
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTCOMES = ROOT / "harness" / "core" / "outcome.py"
FILES = {  # of each schema: where each table stands in the file
    "parity": {
        "SuiteFile": "the top of the file",
        "SourceTable": "`[source]`",
        "ExportTable": "`[export]`",
        "ShapesTable": "`[[shapes]]`, `[[component.NAME.shapes]]`",
        "InputsTable": "`[inputs]`",
        "BackendTable": "`[backend.RUNTIME]`",
        "OwnVariantTable": "`[variant.RUNTIME.NAME]`",
        "ComponentTable": "`[component.NAME]`",
        "TextToImageT5": "`[pipeline.NAME]`, kind `text2img`",
        "ImageToImage": "`[pipeline.NAME]`, kind `img2img`",
        "Inpaint": "`[pipeline.NAME]`, kind `inpaint`",
        "ControlNet": "`[pipeline.NAME]`, kind `controlnet`",
        "AppTable": "`[pipeline.NAME.app]`",
        "Limits": "`[limits]`",
        "FilesTable": "`[files]`",
    },
    "tolerances": {
        "Stated": "`[RUNTIME.VARIANT]`",
        "StatedOfComponent": "`[COMPONENT.RUNTIME.VARIANT]`",
        "Bounds": "a tolerance, such as `outputs = { … }`",
    },
    "known_gaps": {
        "GapsFile": "the top of the file",
        "GapEntry": "`[[gap]]`",
    },
}


def kind(key):
    """Return the type of a key in words, with its options and bounds."""
    if "anyOf" in key:
        return " or ".join(kind(one) for one in key["anyOf"])
    if "enum" in key:
        return "one of " + ", ".join(f"`{one}`" for one in key["enum"])
    if "$ref" in key:
        return f"table {key['$ref'].rpartition('/')[2]}"
    name = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
    }.get(key.get("type"), key.get("type", "any value"))
    if name == "array":
        name = f"list of: {kind(key['items'])}"
    elif name == "object":
        inside = key.get("additionalProperties")
        name = f"by name: {kind(inside)}" if isinstance(inside, dict) else "table"
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
    }
    bounds = [f"{said} {key[word]:g}" for word, said in words.items() if word in key]
    return ", ".join([name, *bounds])


def row(name, key, required):
    default = "required" if required else ""
    if "default" in key:
        text = json.dumps(key["default"], ensure_ascii=False)
        default = f"`{text}`" if text not in ('""', "{}", "[]") else ""
    said = key.get("description", "").replace("``", "`")
    cells = (f"`{name}`", kind(key), default, said)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def keys(name):
    """Return the page of one TOML file, made from its JSON Schema."""
    schema = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text("utf-8"))
    lines = [f"# Every key of {name}.toml", ""]
    if "description" in schema:
        lines += [schema["description"].replace("``", "`"), ""]
    shown = FILES[name]
    if missing := set(schema["$defs"]) ^ set(shown):
        sys.exit(f"docs/generate_pages.py and {name}.schema.json differ: {missing}")
    for table, place in shown.items():
        declared = schema["$defs"][table]
        said = declared["description"].replace("``", "`")
        lines += [f"## {table}", "", f"Place: {place}. {said}", ""]
        lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        lines += [
            row(key, about, key in declared["required"])
            for key, about in declared["properties"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def outcomes():
    """Return the page of all outcomes, made from the docstring below each name."""
    tree = ast.parse(OUTCOMES.read_text("utf-8"))
    (enum,) = (one for one in tree.body if getattr(one, "name", "") == "Outcome")
    lines = ["# Every outcome", "", ast.get_docstring(enum).replace("\n", " "), ""]
    lines += ["| outcome | meaning |", "|---|---|"]
    for name, said in zip(enum.body, enum.body[1:], strict=False):
        if isinstance(name, ast.Assign) and isinstance(said, ast.Expr):
            meaning = " ".join(said.value.value.split())
            lines.append(f"| `{name.value.value}` | {meaning} |")
    return "\n".join(lines) + "\n"


def first_page():
    """Return README.md with its links as they are from docs/."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"\]\((?!https?:|#|docs/)([^)]*)\)", r"](../\1)", text)
    return text.replace("](docs/", "](")


COMMANDS = """# Every command and option

::: mkdocs-click
    :module: harness.commands.cli
    :command: cli
    :prog_name: parity
    :depth: 1
    :style: table
"""


def pages():
    """Return the text of each page, by its file."""
    return {
        "index.md": first_page(),
        "commands.md": COMMANDS,
        "outcomes.md": outcomes(),
        **{f"{name.replace('_', '-')}-toml.md": keys(name) for name in FILES},
    }


def write():
    import mkdocs_gen_files

    for name, text in pages().items():
        with mkdocs_gen_files.open(name, "w") as file:
            file.write(text)


if __name__ == "<run_path>":  # as the plugin runs it
    write()
