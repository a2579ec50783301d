"""Write the declared tables of a TOML file as a JSON Schema, for editors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from itertools import chain
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from harness.core.toml_schema import Keys, parts_of

REFERENCE: Final = "#/$defs/{name}"
DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The JSON Schema draft that TOML language servers know. A schema here uses nothing
from later drafts."""

_ATTRIBUTES: Final = "\nAttributes:\n"
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def json_schema(kind: type[Keys], *more: type[Keys]) -> dict[str, Any]:
    """Return the JSON Schema of a file, with the docstrings' descriptions.

    The caller refers to `more` structs by ``#/$defs/`` and their names.
    """
    kinds = (kind, *more)
    (root, *_), defs = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    for struct in chain.from_iterable(map(_structs, kinds)):
        _describe(defs[struct.__name__], struct)
    schema = {"$schema": DIALECT, **root, "$defs": defs}
    return cast("dict[str, Any]", _as_toml(schema))


def _structs(kind: type[Keys]) -> Iterator[type[Keys]]:
    """Yield each struct that a struct contains, itself included."""
    yield kind
    for field in structs.fields(kind):
        for part in parts_of(field.type):
            if isinstance(part, type) and issubclass(part, Keys):
                yield from _structs(part)


def _describe(schema: dict[str, Any], kind: type[Keys]) -> None:
    """Copy a struct's docstring into its schema, where an editor shows it."""
    words: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        summary, _, rest = cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)
        words |= dict(_ATTRIBUTE.findall(rest))
    schema["description"] = " ".join(summary.split())
    for field in structs.fields(kind):
        text = " ".join(words[field.name].split())
        schema["properties"][field.encode_name]["description"] = text
    if not kind.__struct_config__.forbid_unknown_fields:
        schema["additionalProperties"] = msgspec.json.schema(kind.OTHERS)


def _as_toml(node: object) -> object:
    """Return a schema in which keys cannot be null, because TOML has no null.

    Defaults that are empty, or that are tables, are left out, because an editor would
    write them into the file.
    """
    if isinstance(node, list):
        return [_as_toml(one) for one in node if one != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    kept: dict[str, Any] = {
        key: _as_toml(one)
        for key, one in node.items()
        if key != "default" or not (isinstance(one, dict) or one in (None, "", [], ()))
    }
    if len(kept.get("anyOf", ())) == 1:
        (only,) = kept.pop("anyOf")
        kept = {**only, **kept}
    return kept
