"""Declare the tables of a TOML file as structs, and read a file into them.

A struct declares the keys of a table, with their types and bounds. `read` lets msgspec
check and convert a table, and gives each struct its place in the file.
`harness.core.toml_json_schema` writes the same declaration for editors.

    class Limits(Keys):
        jobs: Count = 2

    limits = read(TomlFile.load(path).root.table("limits"), Limits)
    raise limits.error("'jobs' is too many.", "jobs")

A check that needs a single table stands in its struct's ``__post_init__`` and raises
`WrongKey`. The docstring of a struct has an ``Attributes:`` section that describes each
of its fields; the JSON Schema repeats those words.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from datetime import date, datetime, time
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, structs

from harness.core.errors import SuiteError
from harness.core.toml_file import KINDS, Table, shown, unknown_word

HUGE: Final = 1e300
"""Bound of numbers that have no other, because TOML also has ``inf``."""

Count = Annotated[int, Meta(ge=1, lt=1 << 31)]
"""A whole number of 1 or more."""

_SOLID: Final = Meta(min_length=1)

Word = Annotated[str, _SOLID]
"""A text that is not blank."""

WORDS: Final = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
"""Marks a list that is not empty and has each item once."""

DISTINCT: Final = Meta(extra_json_schema={"uniqueItems": True})
"""Marks a list that may be empty and has each item once."""


class TableError(ValueError):
    """What is wrong within a table; msgspec catches it while it makes the struct."""

    def __init__(self, text: str, *keys: str | int) -> None:
        super().__init__(text)
        self.keys = keys


class Keys(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True
):
    """Base struct of a table; it refuses a key that is not a field.

    A struct that `read` returned knows its place: the file, and the lines of the table
    and of its keys.

    Attributes:
        OTHERS: Type of keys that are not fields, in a subclass with
            ``forbid_unknown_fields=False``. `others` returns them.

    """

    OTHERS: ClassVar[Any] = Any

    def __post_init__(self) -> None:
        # msgspec has no marks for these, and a pattern beside a table crashes it.
        for name, mark in _text_marks(type(self)):
            value = getattr(self, name)
            items = value if isinstance(value, tuple) else (value,)
            options = (mark.extra_json_schema or {}).get("enum")
            seen: set[str] = set()
            for index, item in enumerate(items):
                at = (index,) if items is value else ()
                if not isinstance(item, str):
                    continue
                if options and item not in options:
                    raise TableError(unknown_word(name, item, options, *at), name, *at)
                if mark in (WORDS, DISTINCT) and item in seen:
                    text = f"{item!r} stands in {name!r} twice."
                    raise TableError(text, name, index)
                seen.add(item)
                if mark is _SOLID and item.isspace():
                    text = f"{name!r} is empty."
                    raise TableError(text, name, *at)

    def __contains__(self, key: str) -> bool:
        return key in self.place

    @property
    def place(self) -> Table:
        """The table of the file that the struct was read from."""
        return cast("Table", vars(self)["place"])

    @property
    def others(self) -> dict[str, Any]:
        """The keys of an open table that are not fields, with their values."""
        fields = self.__struct_encode_fields__
        return {k: value for k, value in self.place.data.items() if k not in fields}

    def error(self, text: str, *keys: str | int) -> SuiteError:
        """Return an error about the table, or about a key in it, ready to raise."""
        return self.place.error(text, *keys)

    def check_options(self, key: str, options: Collection[str]) -> None:
        """Refuse a text, or an item of a list, that is not among `options`."""
        value = getattr(self, key)
        if isinstance(value, str):
            self.place.check_option(key, value, options)
        elif value:
            for index, word in enumerate(value):
                self.place.check_option(key, word, options, index)


S = TypeVar("S", bound=Keys)


def one_of(options: Collection[str]) -> Meta:
    """Return the mark of a text that must be one of `options`."""
    return Meta(extra_json_schema={"enum": list(options)})


def sentence(text: str) -> Meta:
    """Return the mark of a value whose errors begin with a text of its own."""
    return Meta(extra={"sentence": text})


def read(table: Table, kind: type[S]) -> S:
    """Return a table as a struct; it and each struct in it know their places.

    Raises:
        SuiteError: A key is missing, unknown, of another type or out of its bounds.

    """
    try:
        struct = _convert(table.data, kind)
    except msgspec.ValidationError:
        _check(table, kind)
        raise
    _place(struct, table)
    return cast("S", struct)


def _convert(value: object, kind: Any) -> object:  # noqa: ANN401  # a type
    # The text "2027-01-31" is not a date in TOML, so strings are not read as dates.
    return msgspec.convert(value, kind, builtin_types=(date, datetime, time))


def _place(value: object, table: Table) -> None:
    """Give each struct in a value its table; a default becomes a struct of its own."""
    if isinstance(value, Keys):
        vars(value)["place"] = table
        if not value.__struct_config__.forbid_unknown_fields:
            for key in value.others:
                _check(table, value.OTHERS, key)
        fields, keys = value.__struct_fields__, value.__struct_encode_fields__
        for name, key in zip(fields, keys, strict=True):
            part = getattr(value, name)
            if isinstance(part, Keys) and key not in table:
                structs.force_setattr(value, name, part := copy(part))
            _place(part, table.part(key))
    elif isinstance(value, tuple | dict):
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            _place(item, table.part(key))


def _check(table: Table, kind: Any, *keys: str | int) -> None:  # noqa: ANN401
    """Refuse the value at `keys` if msgspec does; the innermost mistake is named."""
    part = table.part(*keys)
    try:
        _convert(part.data, kind)
    except msgspec.ValidationError as error:
        wrong = error.__cause__
    else:
        return
    marks, options = _options(kind)
    option = next((each for each in options if _fits(part.data, each)), None)
    if option is None:
        # If there is a single type, its own sentence is about bounds.
        words = " or ".join(KINDS[_python(each)] for each in options)
        _refuse(table, words, marks if len(options) > 1 else [], *keys)
    more, (option,) = _options(option)
    if get_origin(option) is tuple:
        for index in range(len(part.data)):
            _check(table, get_args(option)[0], *keys, index)
    elif get_origin(option) is dict:
        for key in part.data:
            _check(part, get_args(option)[1], key)
    elif _python(option) is dict:
        _check_struct(part, option)
    if isinstance(wrong, TableError):
        raise part.error(str(wrong), *wrong.keys)
    _refuse(table, KINDS[_python(option)], [*marks, *more], *keys)


def _check_struct(table: Table, kind: type[Keys]) -> None:
    fields = {field.encode_name: field for field in structs.fields(kind)}
    if kind.__struct_config__.forbid_unknown_fields:
        table.check_keys(fields)
    for key, field in fields.items():
        if key in table:
            _check(table, field.type, key)
        elif field.required:
            raise table.missing(key)


def _refuse(
    table: Table, words: str, marks: Iterable[Meta], *keys: str | int
) -> NoReturn:
    """Refuse a value that has nothing wrong within it; `words` is what it must be."""
    value: Any = table.part(*keys).data
    *_, key = (each for each in keys if isinstance(each, str))
    *_, last = keys
    what = f"item {last + 1} of {key!r}" if isinstance(last, int) else repr(key)
    own = ""
    for mark in marks:
        own = own or (mark.extra or {}).get("sentence", "")
        words = _bounds(mark, value) or words
        if value == "" and mark.min_length:
            text = f"{key!r} is empty."
            raise table.error(text, *keys)
        if value == [] and mark.min_length:
            text = f"{key!r} is empty, so there would be nothing to test."
            raise table.error(text, *keys)
    text = f"{own or f'{what} must be {words}'}, got {shown(value)}."
    raise table.error(text, *keys)


def _bounds(mark: Meta, value: object) -> str:
    """Return the bounds of a number that a value does not keep; "" if it has none."""
    if not isinstance(value, int | float):
        return ""
    if mark.lt is not None and value >= mark.lt:
        return f"less than {mark.lt:,}"
    if mark.ge is not None and mark.le is not None:
        return f"from {mark.ge:,} to {mark.le:,}"
    if mark.ge is not None:
        return f"{mark.ge:g} or more"
    return "" if mark.gt is None else f"more than {mark.gt:g}"


def _options(kind: Any) -> tuple[list[Meta], list[Any]]:  # noqa: ANN401  # a type
    """Return the marks of a type, and the types of which it is one."""
    marks: list[Meta] = []
    if get_origin(kind) is Annotated:
        kind, *marks = get_args(kind)
    options = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return marks, [option for option in options if option is not type(None)]


def _python(kind: Any) -> type:  # noqa: ANN401  # a type
    """Return the type of the value that tomllib returns for a type."""
    (_, (plain,)) = _options(kind)
    python_type = get_origin(plain) or plain
    if python_type is tuple:
        return list
    return dict if issubclass(python_type, Keys) else cast("type", python_type)


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401  # a type
    """Whether a value has exactly this type; in Python a bool is also an int."""
    wanted = _python(kind)
    return type(value) is wanted or (type(value) is int and wanted is float)


@functools.cache
def _text_marks(kind: type[Keys]) -> tuple[tuple[str, Meta], ...]:
    """Return the marks of texts and of lists of them, each with its field."""
    return tuple(
        (field.name, part)
        for field in structs.fields(kind)
        for part in parts_of(field.type)
        if isinstance(part, Meta)
    )


def parts_of(kind: Any) -> Iterator[Any]:  # noqa: ANN401  # a type
    """Yield a type, and each type and mark in it."""
    yield kind
    for part in get_args(kind):
        yield from parts_of(part)
