"""Declare the tables of a TOML file as structs, and read a file into them.

A struct declares the keys of a table, with their types and bounds. `read` reports
everything else with the file, the line and the nearest valid word. `json_schema` writes
the same declaration as a JSON Schema for editors.

    class Limits(Keys):
        jobs: Count = 2

    limits = read(TomlFile.load(path).root.table("limits"), Limits)

The docstring of a struct has an ``Attributes:`` section that describes each of its
fields; the JSON Schema repeats those words.
"""

from __future__ import annotations

import inspect as python
import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast

import msgspec
from msgspec import Meta, inspect

from harness.core.toml_file import KINDS, Table, shown

REFERENCE: Final = "#/$defs/{name}"
DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The JSON Schema draft that TOML language servers know. A schema here uses nothing
from later drafts."""

Count = Annotated[int, Meta(ge=1)]
"""A whole number of 1 or more."""

WORDS: Final = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
"""Marks a list that is not empty and has each item once."""

DISTINCT: Final = Meta(extra_json_schema={"uniqueItems": True})
"""Marks a list that may be empty and has each item once."""

_ATTRIBUTES: Final = "\nAttributes:\n"
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_PYTHON: Final[Mapping[type[inspect.Type], type]] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.DateType: date,
    inspect.VarTupleType: list,
    inspect.DictType: dict,
    inspect.StructType: dict,
}


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base struct of a table; it refuses a key that is not a field.

    Attributes:
        OTHERS: Type of keys that are not fields, in a subclass with
            ``forbid_unknown_fields=False``. Such keys are checked, but the struct does
            not hold them.

    """

    OTHERS: ClassVar[Any] = Any


S = TypeVar("S", bound=Keys)


def one_of(options: Collection[str]) -> Meta:
    """Return the mark of a text that must be one of `options`; `read` checks it."""
    return Meta(extra_json_schema={"enum": list(options)})


def sentence(text: str) -> Meta:
    """Return the mark of a value whose errors begin with a text of its own."""
    return Meta(extra={"sentence": text})


def read(table: Table, kind: type[S]) -> S:
    """Return a table as a struct.

    Raises:
        SuiteError: A key is missing, unknown, of another type or out of its bounds.

    """
    _check_table(table, _info(kind))
    # The text "2027-01-31" is not a date in TOML, so strings are not read as dates.
    return msgspec.convert(table.data, kind, builtin_types=(date, datetime, time))


def others(table: Table, kind: type[Keys]) -> dict[str, Any]:
    """Return the keys of an open table that are not fields; `read` checks them."""
    fields = kind.__struct_encode_fields__
    return {key: value for key, value in table.data.items() if key not in fields}


def _info(kind: type[Keys]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(kind))


def _others(kind: inspect.StructType) -> Any:  # noqa: ANN401  # a type, or one annotated
    return cast("type[Keys]", kind.cls).OTHERS


def _check_table(table: Table, kind: inspect.StructType) -> None:
    fields = {field.encode_name: field for field in kind.fields}
    required = [name for name, field in fields.items() if field.required]
    is_open = not kind.forbid_unknown_fields
    table.check_keys({*table.data, *fields} if is_open else fields, required)
    other = inspect.type_info(_others(kind)) if is_open else None
    for key, value in table.data.items():
        wanted = fields[key].type if key in fields else other
        _check(table, key, value, cast("inspect.Type", wanted))


def _check(
    table: Table, key: str, value: object, kind: inspect.Type, *index: int
) -> None:
    """Refuse a value of another type, or out of its bounds."""
    marks, kind = _marks(kind)
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(one, inspect.AnyType) for one in kinds):
        return
    kinds = tuple(one for one in kinds if not isinstance(one, inspect.NoneType))
    fitting = next((one for one in kinds if _is(value, one)), None)
    if fitting is None:
        what = f"item {index[0] + 1} of {key!r}" if index else repr(key)
        words = " or ".join(KINDS[_PYTHON[type(_marks(one)[1])]] for one in kinds)
        # If there is a single type, its own message is about bounds and not about
        # the type.
        said = marks.get("sentence") if len(kinds) > 1 else ""
        text = f"{said or f'{what} must be {words}'}, got {shown(value)}."
        raise table.error(text, key, *index)
    inner, kind = _marks(fitting)
    marks = {**marks, **inner}
    if isinstance(kind, inspect.StructType):
        parent = table.tables(key)[index[0]] if index else table.table(key)
        _check_table(parent, kind)
    elif isinstance(kind, inspect.DictType):
        named = table.table(key)
        for name, one in named.data.items():
            _check(named, name, one, kind.value_type)
    elif isinstance(kind, inspect.VarTupleType):
        _check_list(table, key, cast("list[object]", value), kind, marks)
    else:
        _check_value(table, key, value, kind, marks, *index)


def _check_value(
    table: Table,
    key: str,
    value: object,
    kind: inspect.Type,
    marks: Mapping[str, Any],
    *index: int,
) -> None:
    """Refuse a text that is not an option, or a number out of its bounds."""
    if isinstance(value, str):
        table.check_option(key, value, marks.get("enum", (value,)), *index)
        if isinstance(kind, inspect.StrType) and kind.min_length and not value.strip():
            text = f"{key!r} is empty."
            raise table.error(text, key, *index)
    elif isinstance(value, int | float) and (bounds := _broken(value, kind)):
        said = marks.get("sentence") or f"{key!r} must be {bounds}"
        text = f"{said}, got {shown(value)}."
        raise table.error(text, key, *index)


def _check_list(
    table: Table,
    key: str,
    items: list[object],
    kind: inspect.VarTupleType,
    marks: Mapping[str, Any],
) -> None:
    if kind.min_length and not items:
        text = f"{key!r} is empty, so there would be nothing to test."
        raise table.error(text, key)
    for index, item in enumerate(items):
        _check(table, key, item, kind.item_type, index)
        if marks.get("uniqueItems") and item in items[:index]:
            text = f"{item!r} stands in {key!r} twice."
            raise table.error(text, key, index)


def _broken(value: float, kind: inspect.Type) -> str:
    """Return the bounds that a number breaks; empty if it keeps them."""
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return ""
    if kind.ge is not None and kind.le is not None:
        # NaN is neither less nor more. Written in this way, the test puts it outside.
        words, kept = f"from {kind.ge:,} to {kind.le:,}", kind.ge <= value <= kind.le
    elif kind.ge is not None:
        words, kept = f"{kind.ge:g} or more", kind.ge <= value < math.inf
    elif kind.gt is not None:
        words, kept = f"more than {kind.gt:g}", kind.gt < value < math.inf
    else:
        return ""
    return "" if kept else words


def _marks(kind: inspect.Type) -> tuple[Mapping[str, Any], inspect.Type]:
    """Return the marks of a type, and the type itself."""
    if isinstance(kind, inspect.Metadata):
        return {**(kind.extra_json_schema or {}), **(kind.extra or {})}, kind.type
    return {}, kind


def _is(value: object, kind: inspect.Type) -> bool:
    """Whether a value has exactly this type; in Python a bool is also an int."""
    wanted = _PYTHON[type(_marks(kind)[1])]
    whole = wanted is float and type(value) is int and abs(value) < 2**53
    return type(value) is wanted or whole


def json_schema(kind: type[Keys], *more: type[Keys]) -> dict[str, Any]:
    """Return the JSON Schema of a file, with the docstrings' descriptions.

    The caller refers to `more` structs by ``#/$defs/`` and their names.
    """
    kinds = (kind, *more)
    (root, *_), defs = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    for one in kinds:
        for struct in _structs(_info(one)):
            _describe(defs[struct.cls.__name__], struct)
    found = {"$schema": DIALECT, **root, "$defs": defs}
    return cast("dict[str, Any]", _as_toml(found))


def _structs(part: object) -> Iterator[inspect.StructType]:
    """Yield each struct that a type contains, itself included."""
    if isinstance(part, inspect.StructType):
        yield part
    if isinstance(part, inspect.Type | inspect.Field):
        part = msgspec.structs.astuple(part)
    if isinstance(part, tuple):
        for one in part:
            yield from _structs(one)


def _describe(schema: dict[str, Any], struct: inspect.StructType) -> None:
    """Copy a struct's docstring into its schema, where an editor shows it."""
    words: dict[str, str] = {}
    for base in reversed(struct.cls.__mro__):
        summary, _, rest = python.cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)
        words |= dict(_ATTRIBUTE.findall(rest))
    schema["description"] = " ".join(summary.split())
    for field in struct.fields:
        text = " ".join(words[field.name].split())
        schema["properties"][field.encode_name]["description"] = text
    if not struct.forbid_unknown_fields:
        schema["additionalProperties"] = msgspec.json.schema(_others(struct))


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
