"""Read a TOML file strictly: each complaint names its line and the nearest right word.

Knows TOML, and nothing of what the files mean.

    table = TomlFile.load(path).root
    name = table.take("name", str)              # required
    floors = table.take("floors", float, None)  # optional
    tier = table.choice("tier", ("exact", "strict"))
    table.done()                                # refuses every key not asked for
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast

from harness.core.errors import SuiteError

KeyPath = tuple[str | int, ...]
T = TypeVar("T")
D = TypeVar("D")

_REQUIRED: Final[Any] = object()
_ABSENT: Final = object()
KINDS: Final[Mapping[type, str]] = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    date: "a date such as 2027-01-31",
    list: "a list in [ ]",
    dict: "a table",
}


def did_you_mean(word: str, options: Collection[str]) -> str:
    """Return the end of a sentence that complains about `word`.

    >>> did_you_mean("strikt", ("exact", "strict"))
    "did you mean 'strict'?"
    >>> did_you_mean("zebra", ())
    'there is none to choose from.'
    """
    lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower(), lower, n=1)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    if not options:
        return "there is none to choose from."
    return f"it can be {', '.join(map(repr, options))}."


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A parsed file that remembers where each key stands.

    Attributes:
        path: As given; begins each complaint.
        data: What `tomllib` made of it.
        lines: Path of a table, key or list item → its line, from 1.

    """

    path: Path
    data: Mapping[str, object] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and parse `path`.

        Raises:
            SuiteError: It is not there, not text, or not TOML.

        """
        text = _read(path)
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise _syntax_error(path, text, error) from None
        return cls(path=path, data=data, lines=_Lines(text).found)

    @property
    def root(self) -> Table:
        """The whole file as a table of which nothing has been taken."""
        return Table(file=self, data=self.data, at=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Typed access to one table; remembers what was asked for, so `done` can tell.

    Attributes:
        file: The file it stands in.
        data: Its keys and values.
        at: Its path in the file; a number picks one of ``[[several]]``.

    """

    file: TomlFile = field(repr=False)
    data: Mapping[str, object] = field(repr=False)
    at: KeyPath
    _asked: dict[str, None] = field(default_factory=dict, repr=False)

    def __contains__(self, key: str) -> bool:
        return key in self.data

    @property
    def name(self) -> str:
        """As a header: ``[unet.mnn.fp32]``; the empty string for the whole file."""
        return f"[{dotted(self.at)}]" if self.at else ""

    def take(self, key: str, kind: type[T], default: D = _REQUIRED) -> T | D:
        """Return the value of `key`; a whole number will do for a ``float``.

        Raises:
            SuiteError: It is missing and has no default, or is of another kind.

        """
        value = self._ask(key, default)
        return default if value is _ABSENT else self._typed(key, value, kind)

    def take_list(
        self, key: str, kind: type[T], default: D = _REQUIRED
    ) -> tuple[T, ...] | D:
        """Return the list at `key`, each item of one kind.

        Raises:
            SuiteError: As `take`.

        """
        value = self._ask(key, default)
        if value is _ABSENT:
            return default
        items = self._typed(key, value, list)
        return tuple(self._typed(key, item, kind, n) for n, item in enumerate(items))

    def choice(
        self, key: str, options: Collection[str], default: D = _REQUIRED
    ) -> str | D:
        """Return the text at `key`, which must be one of `options`.

        Raises:
            SuiteError: As `take`, or it is none of them.

        """
        value = self._ask(key, default)
        if value is _ABSENT:
            return default
        word = self._typed(key, value, str)
        if word not in options:
            text = f"unknown {key} {shown(word)}; {did_you_mean(word, options)}"
            raise self.error(text, key)
        return word

    def table(self, key: str) -> Table:
        """Return the table at `key`; an empty one stands in for a missing one."""
        value = self._ask(key, default=None)
        data = {} if value is _ABSENT else self._typed(key, value, dict)
        return Table(file=self.file, data=data, at=(*self.at, key))

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return each ``[[key]]`` in file order; none if there is none."""
        return tuple(
            Table(file=self.file, data=item, at=(*self.at, key, index))
            for index, item in enumerate(self.take_list(key, dict, ()))
        )

    def children(self) -> tuple[tuple[str, Table], ...]:
        """Return every key not taken yet with its table, for freely named tables.

        Raises:
            SuiteError: One of them is not a table.

        """
        names = [key for key in self.data if key not in self._asked]
        return tuple((name, self.table(name)) for name in names)

    def done(self) -> None:
        """Refuse what nobody asked for: a key that is ignored is a key misspelt.

        Raises:
            SuiteError: A key was never taken.

        """
        self.check_keys(self._asked)

    def check_keys(self, known: Collection[str], required: Iterable[str] = ()) -> None:
        """Refuse a table that lacks a required key, or has one that is not known.

        Raises:
            SuiteError: It does.

        """
        for key in required:
            if key not in self.data:
                raise self.missing(key, known)
        for key in self.data:
            if key not in known:
                place = f" in {self.name}" if self.at else ""
                hint = did_you_mean(key, known)
                text = f"unknown key {key!r}{place}; {hint}"
                raise self.error(text, key)

    def line(self, *keys: str | int) -> int:
        """Return the line of a key, or of the nearest thing around it."""
        path = (*self.at, *keys)
        while path and path not in self.file.lines:
            path = path[:-1]
        return self.file.lines.get(path, 1)

    def where(self, *keys: str | int) -> str:
        """Return ``path:line`` of the table, or of a key in it."""
        return f"{self.file.path}:{self.line(*keys)}"

    def error(self, text: str, *keys: str | int) -> SuiteError:
        """Return a complaint about the table, or a key in it, ready to raise."""
        return SuiteError(f"{self.where(*keys)}: {text}")

    def missing(self, key: str, known: Collection[str]) -> SuiteError:
        """Return the complaint that a required key is not there, ready to raise."""
        place = self.name or "the file"
        # A near miss is likelier than an omission, and its line is the one to mend.
        spare = [name for name in self.data if name not in known]
        if close := difflib.get_close_matches(key, spare, n=1):
            text = f"unknown key {close[0]!r} in {place}; did you mean {key!r}?"
            return self.error(text, close[0])
        text = f"{place} has no {key!r}, which it must have."
        return self.error(text)

    def _ask(self, key: str, default: object) -> object:
        self._asked[key] = None
        if key in self.data or default is not _REQUIRED:
            return self.data.get(key, _ABSENT)
        raise self.missing(key, self._asked)

    def _typed(self, key: str, value: object, kind: type[T], *index: int) -> T:
        if kind is float and type(value) is int and abs(value) < 2**53:
            return cast("T", float(value))
        # Exactly this type: to Python a bool is an int and a datetime is a date.
        if type(value) is not kind:
            what = f"item {index[0] + 1} of {key!r}" if index else repr(key)
            text = f"{what} must be {KINDS[kind]}, got {shown(value)}."
            raise self.error(text, key, *index)
        return value


def dotted(path: KeyPath) -> str:
    """Return a key path as TOML writes it.

    >>> dotted(("unet", "probes", "*.attn"))
    'unet.probes."*.attn"'
    """
    keys = [key for key in path if isinstance(key, str)]
    return ".".join(key if _BARE.fullmatch(key) else json.dumps(key) for key in keys)


def shown(value: object) -> str:
    """Return a value as a complaint quotes it: as TOML writes it, if it is short."""
    if type(value) in {list, dict}:
        return KINDS[type(value)]
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _read(path: Path) -> str:
    try:
        # Editors on Windows put a byte-order mark first; it means nothing.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        msg = f"{path}: there is no such file."
    except IsADirectoryError:
        msg = f"{path}: this is a folder; a TOML file is needed."
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})."
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        msg = f"{path}:{line}: not UTF-8 text, which TOML must be."
    else:
        return text.replace("\r\n", "\n")
    raise SuiteError(msg)


def _syntax_error(path: Path, text: str, error: Exception) -> SuiteError:
    # Until Python 3.14 the position stands at the end of the message only.
    what, _, place = str(error).rpartition(" (at ")
    if not what:
        return SuiteError(f"{path}: cannot be read: {error}.")
    found = re.match(r"line (\d+)", place)  # or "end of document"
    line = int(found[1]) if found else text.rstrip().count("\n") + 1
    return SuiteError(f"{path}:{line}: not valid TOML: {what[0].lower()}{what[1:]}.")


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLANK: Final = re.compile(r"[ \t]*")
_GAP: Final = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\]|\\.)*"' r"|'''.*?'{3,5}|'[^']*'", re.DOTALL
)
_SCALAR: Final = re.compile(r"[^,\]}#\n]+")


class _Lines:
    """Map each table, key and list item to its line, which tomllib does not keep.

    The text has already been parsed, so this need not tell valid TOML from invalid.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[KeyPath, int] = {}
        self._last: dict[KeyPath, int] = {}  # [[name]] → index of its latest item
        self._walk()

    def _walk(self) -> None:
        base: KeyPath = ()
        self._match(_GAP)
        while self.at < len(self.text):
            line = self._line()
            if self._eat("[["):
                base = self._header(line, several=True)
                self._eat("]]")
            elif self._eat("["):
                base = self._header(line, several=False)
                self._eat("]")
            else:
                self._pair(base)
            self._match(_GAP)

    def _header(self, line: int, *, several: bool) -> KeyPath:
        *parents, name = self._keys()
        path: KeyPath = ()
        for key in parents:
            path = self._latest((*path, key))
            self.found.setdefault(path, line)
        path = (*path, name)
        if several:
            self._last[path] = self._last.get(path, -1) + 1
            self.found.setdefault(path, line)
            path = self._latest(path)
        # The header itself, even where [a.b] mentioned [a] before.
        self.found[path] = line
        return path

    def _latest(self, path: KeyPath) -> KeyPath:
        return (*path, self._last[path]) if path in self._last else path

    def _pair(self, base: KeyPath) -> None:
        line = self._line()
        path = base
        for key in self._keys():
            path = (*path, key)
            self.found.setdefault(path, line)
        self._eat("=")
        self._match(_BLANK)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self.found.setdefault(path, self._line())
        if self._eat("["):
            for index in self._until("]"):
                self._value((*path, index))
        elif self._eat("{"):
            for _ in self._until("}"):
                self._pair(path)
        elif not self._match(_STRING):
            self._match(_SCALAR)

    def _until(self, end: str) -> Iterator[int]:
        for index in itertools.count():
            self._match(_GAP)
            if self._eat(end):
                return
            yield index
            self._match(_GAP)
            self._eat(",")

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._match(_BLANK)
            key = self._match(_STRING) or self._match(_BARE)
            keys += tomllib.loads(f"{key} = 0")  # quotes and escapes are its business
            self._match(_BLANK)
            if not self._eat("."):
                return keys

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _eat(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found.group()
