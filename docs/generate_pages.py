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
        "BrowserTable": "`[target.NAME]`, kind `browser`",
        "CommandTable": "`[target.NAME]`, kind `command`",
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
    """Return what a key may hold: its type, its allowed values, its limits."""
    if "anyOf" in key:
        return " or ".join(kind(one, places) for one in key["anyOf"])
    if "enum" in key:
        return "one of " + ", ".join(f"`{one}`" for one in key["enum"])
    if "$ref" in key:
        table = key["$ref"].rpartition("/")[2]
        return f"[{places[table]}](#{table})"
    if key.get("format") == "date":
        return "date without quotes, such as 2027-01-31"
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
    limits = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
    }
    stated = [f"{text} {key[at]:g}" for at, text in limits.items() if at in key]
    return ", ".join([name, *stated])


def row(name, key, places, *, required):
    meaning = key.get("description", "").replace("``", "`")
    default = json.dumps(key.get("default", ""), ensure_ascii=False)
    if required:
        meaning += " **Required.**"
    elif default not in {'""', "{}", "[]"}:
        meaning += f" Default: `{default}`."
    cells = (f"`{name}`", kind(key, places), meaning)
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
        about = declared["description"].replace("``", "`")
        lines += [f"## {place} {{#{table}}}", "", about, ""]
        lines += ["| key | value | meaning |", "|---|---|---|"]
        lines += [
            row(key, value, shown, required=key in declared["required"])
            for key, value in declared["properties"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def outcomes():
    """Return the page of all outcomes, made from the docstring below each name."""
    tree = ast.parse(OUTCOMES.read_text("utf-8"))
    (enum,) = (one for one in tree.body if getattr(one, "name", "") == "Outcome")
    about = ast.get_docstring(enum).replace("\n", " ")
    about = re.sub(r"`[A-Z]+`", lambda name: name[0].lower(), about)
    lines = ["# Every outcome", "", about, ""]
    lines += ["| outcome | meaning |", "|---|---|"]
    for name, text in zip(enum.body, enum.body[1:], strict=False):
        if isinstance(name, ast.Assign) and isinstance(text, ast.Expr):
            meaning = " ".join(text.value.value.split())
            lines.append(f"| `{name.value.value}` | {meaning} |")
    return "\n".join(lines) + "\n"


def interface():
    """Return the page of the public names, made from the stub and their docstrings."""
    home = ROOT / "harness"
    lines = ["# The Python interface", ""]
    lines += ["`import harness` loads no framework; a name loads what it needs.", ""]
    for one in ast.parse((home / "__init__.pyi").read_text("utf-8")).body:
        if not isinstance(one, ast.ImportFrom):
            continue
        source = home / f"{one.module.replace('.', '/')}.py"
        name = one.names[0].name
        tree = ast.parse(source.read_text("utf-8"))
        (node,) = (each for each in tree.body if getattr(each, "name", "") == name)
        lines += [f"## harness.{name}", ""]
        if isinstance(node, ast.FunctionDef):
            returns = ast.unparse(node.returns)
            head = f"{name}({ast.unparse(node.args)}) -> {returns}"
            lines += ["```python", head, "```", ""]
        lines += ["```text", ast.get_docstring(node), "```", ""]
    return "\n".join(lines)


def first_page():
    """Return README.md with its links as they are from docs/."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"\]\((?!https?:|#|docs/)([^)]*)\)", r"](../\1)", text)
    return text.replace("](docs/", "](")


COMMANDS = """# Every command and option

The shell can complete commands, options and the ids of cases. For bash, add this line
to `~/.bashrc`; for zsh write `zsh_source`, for fish `fish_source`.

```bash
eval "$(_PARITY_COMPLETE=bash_source parity)"
```

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
        "interface.md": interface(),
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
