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
FILES = {  # the place of each table of a schema in its file, which is its heading
    "parity": {
        "SuiteFile": "The top of the file",
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
        "Bounds": "A tolerance, such as `outputs = { … }`",
    },
    "known_gaps": {
        "GapsFile": "The top of the file",
        "GapEntry": "`[[gap]]`",
    },
}


def kind(key, places):
    """Return the type of a key in words, with its options and bounds."""
    if "anyOf" in key:
        return " or ".join(kind(one, places) for one in key["anyOf"])
    if "enum" in key:
        return "one of " + ", ".join(f"`{one}`" for one in key["enum"])
    if "$ref" in key:
        table = key["$ref"].rpartition("/")[2]
        return f"[{places[table]}](#{table})"
    name = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
    }.get(key.get("type"), key.get("type", "any value"))
    if name == "array":
        name = f"list of: {kind(key['items'], places)}"
    elif name == "object":
        inside = key.get("additionalProperties")
        name = (
            f"by name: {kind(inside, places)}" if isinstance(inside, dict) else "table"
        )
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
    }
    bounds = [f"{said} {key[word]:g}" for word, said in words.items() if word in key]
    return ", ".join([name, *bounds])


def row(name, key, places, *, required):
    said = key.get("description", "").replace("``", "`")
    default = json.dumps(key.get("default", ""), ensure_ascii=False)
    if required:
        said += " **Required.**"
    elif default not in {'""', "{}", "[]"}:
        said += f" Default: `{default}`."
    cells = (f"`{name}`", kind(key, places), said)
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
        lines += [f"## {place} {{#{table}}}", "", said, ""]
        lines += ["| key | value | meaning |", "|---|---|---|"]
        lines += [
            row(key, about, shown, required=key in declared["required"])
            for key, about in declared["properties"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def outcomes():
    """Return the page of all outcomes, made from the docstring below each name."""
    tree = ast.parse(OUTCOMES.read_text("utf-8"))
    (enum,) = (one for one in tree.body if getattr(one, "name", "") == "Outcome")
    said = ast.get_docstring(enum).replace("\n", " ")
    said = re.sub(r"`[A-Z]+`", lambda name: name[0].lower(), said)
    lines = ["# Every outcome", "", said, ""]
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
    :style: plain
    :list_subcommands: true
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
