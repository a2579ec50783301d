"""Declare the tables of a TOML file as structs, and read a file into them.

A struct says which keys a table may have, of which type, within which bounds. `read`
complains about everything else with the file, the line and the nearest right word.
`json_schema` writes the same declaration out for editors.

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

from harness.core.toml_file import KINDS, Table, did_you_mean, shown

REFERENCE: Final = "#/$defs/{name}"
DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""What a language server of TOML knows; a schema here has nothing of later drafts."""

Count = Annotated[int, Meta(ge=1)]
"""A whole number of 1 or more."""

WORDS: Final = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
"""Marks a list that is not empty, and has each item once."""

DISTINCT: Final = Meta(extra_json_schema={"uniqueItems": True})
"""Marks a list that may be empty, and has each item once."""

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
    """Base of the struct of a table; a key that is no field of it is refused.

    Attributes:
        OTHERS: Type of keys that are no field, where a subclass has
            ``forbid_unknown_fields=False``. They are checked, and not in the struct.

    """

    OTHERS: ClassVar[Any] = Any


S = TypeVar("S", bound=Keys)


def one_of(options: Collection[str]) -> Meta:
    """Return what marks a text as one of `options`, which `read` checks."""
    return Meta(extra_json_schema={"enum": list(options)})


def read(table: Table, kind: type[S]) -> S:
    """Return a table as a struct.

    Raises:
        SuiteError: A key is missing, unknown, of another type or out of its bounds.

    """
    _check_table(table, _info(kind))
    # The text "2027-01-31" is no date in TOML, so strings are not read as dates.
    return msgspec.convert(table.data, kind, builtin_types=(date, datetime, time))


def _info(kind: type[Keys]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(kind))


def _others(kind: inspect.StructType) -> Any:  # noqa: ANN401  # a type, or one annotated
    return cast("type[Keys]", kind.cls).OTHERS


def _check_table(table: Table, kind: inspect.StructType) -> None:
    fields = {field.encode_name: field for field in kind.fields}
    required = [name for name, field in fields.items() if field.required]
    is_open = not kind.forbid_unknown_fields
    table.check_keys({*table.data, *fields} if is_open else fields, required)
    others = inspect.type_info(_others(kind)) if is_open else None
    for key, value in table.data.items():
        wanted = fields[key].type if key in fields else others
        _check(table, key, value, cast("inspect.Type", wanted))


def _check(
    table: Table, key: str, value: object, kind: inspect.Type, *index: int
) -> None:
    """Refuse a value that is not of its type, or out of its bounds."""
    marks, kind = _marks(kind)
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if any(isinstance(one, inspect.AnyType) for one in kinds):
        return
    kinds = tuple(one for one in kinds if not isinstance(one, inspect.NoneType))
    fitting = next((one for one in kinds if _is(value, one)), None)
    if fitting is None:
        what = f"item {index[0] + 1} of {key!r}" if index else repr(key)
        words = " or ".join(KINDS[_PYTHON[type(_marks(one)[1])]] for one in kinds)
        # With a single type, an own sentence is about the bounds and not the type.
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
    elif text := _complaint(key, value, kind, marks, *index):
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


def _complaint(
    key: str, value: object, kind: inspect.Type, marks: Mapping[str, Any], *index: int
) -> str:
    """Return what is wrong with a text or a number; empty if nothing is."""
    if isinstance(value, str):
        options = marks.get("enum", (value,))
        if value not in options:
            what = f"{value!r} in {key!r}" if index else f"{key} {shown(value)}"
            return f"unknown {what}; {did_you_mean(value, options)}"
        least = kind.min_length if isinstance(kind, inspect.StrType) else None
        return f"{key!r} is empty." if least and not value.strip() else ""
    if (
        isinstance(kind, inspect.IntType | inspect.FloatType)
        and isinstance(value, int | float)
        and (bounds := _broken(value, kind))
    ):
        said = marks.get("sentence") or f"{key!r} must be {bounds}"
        return f"{said}, got {shown(value)}."
    return ""


def _broken(value: float, kind: inspect.IntType | inspect.FloatType) -> str:
    """Return the bounds that a number does not keep; empty if it keeps them."""
    if kind.ge is not None and kind.le is not None:
        # NaN is neither less nor more, so it is outside as this is written.
        words, kept = f"from {kind.ge:g} to {kind.le:g}", kind.ge <= value <= kind.le
    elif kind.ge is not None:
        words, kept = f"{kind.ge:g} or more", kind.ge <= value < math.inf
    elif kind.gt is not None:
        words, kept = f"more than {kind.gt:g}", kind.gt < value < math.inf
    else:
        return ""
    return "" if kept else words


def _marks(kind: inspect.Type) -> tuple[Mapping[str, Any], inspect.Type]:
    """Return what a type is marked with, and the type itself."""
    if isinstance(kind, inspect.Metadata):
        return {**(kind.extra_json_schema or {}), **(kind.extra or {})}, kind.type
    return {}, kind


def _is(value: object, kind: inspect.Type) -> bool:
    """Whether a value is exactly of a type: to Python a bool is an int."""
    wanted = _PYTHON[type(_marks(kind)[1])]
    whole = wanted is float and type(value) is int and abs(value) < 2**53
    return type(value) is wanted or whole


def json_schema(kind: type[Keys], *more: type[Keys]) -> dict[str, Any]:
    """Return the JSON Schema of a file, with the docstrings' descriptions.

    Args:
        kind: The struct of the whole file.
        more: Structs that the caller refers to by ``#/$defs/`` and their names.

    """
    kinds = (kind, *more)
    (root, *_), defs = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    for one in kinds:
        for struct in _structs(_info(one)):
            _describe(defs[struct.cls.__name__], struct)
    found = {"$schema": DIALECT, **root, "$defs": defs}
    return cast("dict[str, Any]", _as_toml(found))


def _structs(kind: inspect.Type) -> Iterator[inspect.StructType]:
    """Yield each struct that a type is made of."""
    kind = _marks(kind)[1]
    if isinstance(kind, inspect.StructType):
        yield kind
        inner = [field.type for field in kind.fields]
    elif isinstance(kind, inspect.UnionType):
        inner = list(kind.types)
    elif isinstance(kind, inspect.VarTupleType):
        inner = [kind.item_type]
    elif isinstance(kind, inspect.DictType):
        inner = [kind.value_type]
    else:
        inner = []
    for one in inner:
        yield from _structs(one)


def _describe(schema: dict[str, Any], struct: inspect.StructType) -> None:
    """Put the words of a struct's docstring where an editor shows them."""
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
    """Return a schema without the null of keys that may be left out: TOML has none.

    A default that is empty, or a table, would be written out by an editor.
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
