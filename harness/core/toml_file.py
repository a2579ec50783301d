"""Read a TOML file strictly; messages name the line and the nearest valid word.

This module knows TOML. It does not know what the files mean.

    root = TomlFile.load(path).root
    limits = root.table("limits")
    raise limits.error("'jobs' is too many.", "jobs")

`harness.core.toml_schema` reads a table into a struct and checks types and bounds.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Self

from harness.core.errors import SpecError, SuiteError
from harness.core.received import DamagedError, read_bytes

KeyPath = tuple[str | int, ...]
MOST_BYTES: Final = 4 << 20
"""Largest size of a file; its reader takes a hundred times as much memory."""

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
    """Return the end of a message about an unknown `word`.

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


def unknown_word(key: str, word: str, options: Collection[str], *index: int) -> str:
    """Return the message that a text, or an item of a list, is not among `options`."""
    what = f"{word!r} in {key!r}" if index else f"{key} {shown(word)}"
    return f"unknown {what}; {did_you_mean(word, options)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlFile:
    """A parsed file that knows the line of each key.

    Attributes:
        path: Path as the caller gave it. Each message begins with it.
        data: Data that `tomllib` returned.
        lines: Line number, from 1, of each table, key and list item, by its key path.

    """

    path: Path
    data: Mapping[str, object] = field(repr=False)
    lines: Mapping[KeyPath, int] = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read and parse `path`.

        Raises:
            SuiteError: The file is not there, not text, or not TOML.

        """
        return cls.parsed(path, read_text(path))

    @classmethod
    def parsed(cls, path: Path, text: str) -> Self:
        """Parse the text of a file; `path` is only what messages call it.

        Raises:
            SuiteError: The text is not TOML.

        """
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise _syntax_error(path, text, error) from None
        return cls(path=path, data=data, lines=_Lines(text).found)

    @property
    def root(self) -> Table:
        """The whole file as a table."""
        return Table(file=self, data=self.data, at=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a file, which knows the line of each of its keys.

    Its methods raise `SuiteError` if the file has something else.

    Attributes:
        file: File that has the table.
        data: Keys and values of the table.
        at: Path of the table in the file. A number in it selects one of several
            ``[[tables]]``.

    """

    file: TomlFile = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    at: KeyPath

    def __contains__(self, key: str) -> bool:
        return key in self.data

    @property
    def name(self) -> str:
        """The table's header, ``[unet.mnn.fp32]``; empty for the whole file."""
        return f"[{dotted(self.at)}]" if self.at else ""

    def part(self, *keys: str | int) -> Table:
        """Return what is at some keys, of whatever type; empty if it is missing."""
        data: Any = self.data
        for key in keys:
            data = data.get(key, {}) if isinstance(data, dict) else data[key]
        return Table(file=self.file, data=data, at=(*self.at, *keys))

    def table(self, key: str) -> Table:
        """Return the table at `key`, or an empty table if the key is missing."""
        part = self.part(key)
        if not isinstance(part.data, dict):
            text = f"{key!r} must be {KINDS[dict]}, got {shown(part.data)}."
            raise self.error(text, key)
        return part

    def children(self) -> tuple[tuple[str, Table], ...]:
        """Return every key with its table, for tables whose names the user chooses."""
        return tuple((name, self.table(name)) for name in self.data)

    def check_keys(self, known: Collection[str]) -> None:
        """Refuse a table with an unknown key."""
        for key in self.data:
            if key not in known:
                place = f" in {self.name}" if self.at else ""
                hint = did_you_mean(key, known)
                text = f"unknown key {key!r}{place}; {hint}"
                raise self.error(text, key)

    def check_option(
        self, key: str, word: str, options: Collection[str], *index: int
    ) -> None:
        """Refuse a text, or an item of a list, that is not among `options`."""
        if word not in options:
            raise self.error(unknown_word(key, word, options, *index), key, *index)

    def line(self, *keys: str | int) -> int:
        """Return the line of a key, or of the nearest element that contains it."""
        path = (*self.at, *keys)
        while path and path not in self.file.lines:
            path = path[:-1]
        return self.file.lines.get(path, 1)

    def where(self, *keys: str | int) -> str:
        """Return ``path:line`` of the table, or of a key in it."""
        return f"{self.file.path}:{self.line(*keys)}"

    def error(self, text: str, *keys: str | int) -> SuiteError:
        """Return an error about the table, or about a key in it, ready to raise."""
        return SuiteError(f"{self.where(*keys)}: {text}")

    def missing(self, key: str) -> SuiteError:
        """Return the error that a required key is missing, ready to raise."""
        place = self.name or "the file"
        text = f"{place} has no {key!r}, which it must have."
        return self.error(text)

    @contextmanager
    def errors_at(self, *keys: str | int) -> Iterator[None]:
        """Give the errors that are raised within the place of a key of the table."""
        try:
            yield
        except (SpecError, SuiteError) as error:
            raise self.error(str(error), *keys) from None


def dotted(path: KeyPath) -> str:
    """Return a key path as TOML writes it.

    >>> dotted(("unet", "probes", "*.attn"))
    'unet.probes."*.attn"'
    """
    keys = [key for key in path if isinstance(key, str)]
    return ".".join(key if _BARE.fullmatch(key) else json.dumps(key) for key in keys)


def shown(value: object) -> str:
    """Return a value for a message: as TOML writes it, if that is short."""
    if type(value) in {list, dict}:
        return KINDS[type(value)]
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def read_text(path: Path) -> str:
    """Return the text of a TOML file, with line feeds as its line ends.

    Raises:
        SuiteError: The file is not there, cannot be read, or is not text.

    """
    try:
        # Editors on Windows may put a byte-order mark first. It has no meaning here.
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        msg = f"{path}: there is no such file."
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})."
    except DamagedError as error:
        msg = f"{path}: cannot be read: {error}."
        if path.is_dir():
            msg = f"{path}: this is a folder; a TOML file is needed."
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        msg = f"{path}:{line}: not UTF-8 text, which TOML must be."
    else:
        return text.replace("\r\n", "\n")
    raise SuiteError(msg)


def _syntax_error(path: Path, text: str, error: Exception) -> SuiteError:
    # Before Python 3.14 only the end of the message gives the position.
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

    The text has already been parsed, so this class need not detect invalid TOML.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._counted, self._line_there = 0, 1
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
        # The header's own line counts, even if an earlier [a.b] mentioned [a].
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
            keys += tomllib.loads(f"{key} = 0")  # it reads quotes and escapes
            self._match(_BLANK)
            if not self._eat("."):
                return keys

    def _line(self) -> int:
        # From the beginning it would take seconds in a file of many values.
        self._line_there += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line_there

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
