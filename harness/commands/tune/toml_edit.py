"""Change tables of a TOML text and leave every other byte of it alone.

A parser that writes TOML back moves tables whose parents stand elsewhere; here lines
are replaced, and the outcome is parsed and held against what was meant.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.core.errors import SuiteError
from harness.core.toml_file import dotted

MARK: Final = "# tuned "
"""Begins the lines above a table that say where its numbers come from."""

_HEADER = re.compile(r"\s*\[(?!\[)(.+)\]\s*(#.*)?$")
_ENTRY = re.compile(r"\s*\[\[(.+)\]\]\s*(#.*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One table as it is to be.

    Attributes:
        path: Its keys.
        values: Key to TOML value; those left out stay as they are.
        provenance: Lines put above the header, in place of earlier ones.

    """

    path: tuple[str, ...]
    values: Mapping[str, str]
    provenance: tuple[str, ...]


def changed(text: str, changes: Sequence[TableChange], name: str) -> str:
    """Return a TOML text with tables changed, added where there are none.

    Raises:
        SuiteError: A table cannot be changed line by line; `name` is the file's.

    """
    lines = text.splitlines()
    for change in changes:
        lines = _one(lines, change)
    # Windows' line ends stay; a parser reads both.
    end = "\r\n" if "\r\n" in text else "\n"
    result = end.join(lines) + end
    meant = tomllib.loads(text)
    for change in changes:
        table = meant
        for key in change.path:
            table = table.setdefault(key, {})
        table.update(tomllib.loads(_body(change.values)))
    try:
        is_meant = tomllib.loads(result) == meant
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        tables = ", ".join(f"[{dotted(change.path)}]" for change in changes)
        msg = (
            f"{name}: {tables} cannot be changed line by line; write each as a table "
            "with a header of its own, a key on each line, and tune again."
        )
        raise SuiteError(msg)
    return result


def without(text: str, lines: Collection[int], name: str) -> str:
    """Return a TOML text without the tables whose headers stand at `lines`, from 1.

    A comment directly above a header goes with its table; one that begins the file
    stays. Every other byte stays too.

    Raises:
        SuiteError: There is no header at one of the lines; `name` is the file's.

    """
    kept = text.splitlines(keepends=True)
    bare = text.splitlines()
    headers = _headers(bare) | dict.fromkeys(_entries(bare), ())
    for line in sorted(lines, reverse=True):
        place = line - 1
        if place not in headers:
            msg = (
                f"{name}:{line}: this cannot be taken out line by line; give it a "
                "header of its own, or take it out by hand."
            )
            raise SuiteError(msg)
        end = _end(bare, headers, place)
        start = place
        while start and bare[start - 1].startswith("#"):
            start -= 1
        if start == 0:  # what begins the file speaks of the file, but for a tuning's
            while start < place and not bare[start].startswith(MARK):
                start += 1
        # Of the empty lines around a table one gap is left.
        while end < len(bare) and not bare[end].strip():
            end += 1
        del kept[start:end]
    while kept and not kept[-1].strip():
        kept.pop()
    return "".join(kept)


def value_of(tier: str, bounds: Mapping[str, float]) -> str:
    """Return what a group of a table is set to.

    >>> value_of("strict", {}), value_of("standard", {"floors": 5.5})
    ('"strict"', '{ tier = "standard", floors = 5.5 }')
    """
    pairs = [f'tier = "{tier}"'] if tier else []
    pairs += [f"{name} = {float(bound)!r}" for name, bound in bounds.items()]
    return f'"{tier}"' if tier and not bounds else f"{{ {', '.join(pairs)} }}"


def quoted(text: str) -> str:
    """Return a TOML string; JSON's escapes are TOML's."""
    import json

    return json.dumps(text, ensure_ascii=False)


def _body(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in values.items())


def _one(lines: list[str], change: TableChange) -> list[str]:
    headers = _headers(lines)
    place = next((at for at, path in headers.items() if path == change.path), None)
    if place is None:
        end = _place_for(lines, headers, change.path)
        added = [
            "",
            *change.provenance,
            f"[{dotted(change.path)}]",
            *_body(change.values).splitlines(),
        ]
        return [*lines[:end], *added, *lines[end:]]
    end = _end(lines, headers, place)
    body = lines[place + 1 : end]
    for key, value in change.values.items():
        body = _set(body, key, value)
    before = lines[:place]
    while before and before[-1].startswith(MARK):
        before = before[:-1]
    before = [*before, *change.provenance]
    return [*before, lines[place], *body, *lines[end:]]


def _headers(lines: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return the line of each table's header and the keys that it names."""
    found = {}
    for at, line in enumerate(lines):
        match = _HEADER.match(line)
        if match is None or not _is_whole("\n".join(lines[:at])):  # within a text
            continue
        try:
            data: Any = tomllib.loads(f"[{match[1]}]")
        except tomllib.TOMLDecodeError:
            continue
        path = []
        while data:
            ((key, data),) = data.items()
            path.append(key)
        found[at] = tuple(path)
    return found


def _entries(lines: Sequence[str]) -> list[int]:
    """Return the line of each header of an entry of ``[[several]]``."""
    return [
        at
        for at, line in enumerate(lines)
        if _ENTRY.match(line) and _is_whole("\n".join(lines[:at]))
    ]


def _end(lines: Sequence[str], headers: Mapping[int, Any], place: int) -> int:
    """Return the line after a table's last; comments before the next are the next's."""
    end = min((at for at in headers if at > place), default=len(lines))
    while end > place + 1 and (not lines[end - 1].strip() or lines[end - 1][0] == "#"):
        end -= 1
    return end


def _place_for(
    lines: Sequence[str], headers: Mapping[int, tuple[str, ...]], path: tuple[str, ...]
) -> int:
    """Return where a new table goes: after the last of its kin, or at the end."""
    for kin in (path[:2], path[:1]):
        if places := [at for at, known in headers.items() if known[: len(kin)] == kin]:
            return _end(lines, headers, places[-1])
    return len(lines)


def _set(body: list[str], key: str, value: str) -> list[str]:
    """Replace a key's value, keeping what comment follows it; or add the key."""
    starts = re.compile(rf"\s*{re.escape(key)}\s*=")
    place = next((at for at, line in enumerate(body) if starts.match(line)), None)
    if place is None:
        groups = [at for at, line in enumerate(body) if re.match(r"\s*why\s*=", line)]
        at = groups[0] if groups and key != "why" else len(body)
        return [*body[:at], f"{key} = {value}", *body[at:]]
    end = place + 1
    while end <= len(body) and not _is_whole("\n".join(body[place:end])):
        end += 1
    comment = _comment(body[end - 1]) if end == place + 1 else ""
    return [*body[:place], f"{key} = {value}{comment}", *body[end:]]


def _is_whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _comment(line: str) -> str:
    """Return the comment after a value, with the blanks before it."""
    for match in re.finditer(r"\s*#", line):
        if _is_whole(line[: match.start()]):
            return line[match.start() :]
    return ""
