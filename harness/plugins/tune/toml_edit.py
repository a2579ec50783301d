"""Change tables of a TOML file; the text around them and its comments stay.

A new key that tomlkit adds to a table comes after the comment above the next table, and
a table that it removes takes that comment along. So the file is cut into its tables,
and tomlkit changes one of them at a time. The new text is parsed and compared with the
intended values.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomlkit

from harness.core.errors import ParityError, SuiteError
from harness.core.toml_file import KeyPath, TomlFile, dotted
from harness.core.whole_file import write_whole, writing

MARK: Final = "# tuned "
"""The prefix of the lines above a table that explain where its numbers come from."""

BOM: Final = "\ufeff"
"""The mark of byte order with which some editors begin a file; it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file's current text and its new text."""

    path: Path
    old: str
    new: str

    @property
    def diff(self) -> list[str]:
        """The lines of a unified diff."""
        return list(
            difflib.unified_diff(
                self.old.splitlines(),
                self.new.splitlines(),
                fromfile=self.path.name,
                tofile=f"{self.path.name} (tuned)",
                lineterm="",
                n=2,
            )
        )

    def write(self) -> None:
        """Replace the old text by the new one, in one move.

        Raises:
            ParityError: The file has changed since it was read, or cannot be written.

        """
        if text_of(self.path) != self.old:
            msg = f"{self.path} has changed since it was read; run the command again."
            raise SuiteError(msg)
        with writing(self.path, "nothing changed"):
            write_whole(self.path, self.new)


def write_all(edits: Iterable[Edit]) -> None:
    """Write each file that has changes: all of them, or none.

    Raises:
        ParityError: A file has changed since it was read, or cannot be written.

    """
    written: list[Edit] = []
    try:
        for edit in edits:
            if edit.diff:
                edit.write()
                written.append(edit)
    except ParityError:
        for done in written:
            if done.old:
                write_whole(done.path, done.old)
            else:
                done.path.unlink()
        raise


def text_of(path: Path) -> str:
    """Return a file's text with its own line ends; empty if there is no file."""
    return path.read_bytes().decode() if path.is_file() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The new content of one table.

    Attributes:
        path: The keys that lead to the table.
        values: New values by key; other keys stay as they are.
        provenance: Lines above the header, which replace earlier ones.

    """

    path: tuple[str, ...]
    values: Mapping[str, Any]
    provenance: tuple[str, ...] = ()


@dataclass(slots=True)
class _Block:
    """The lines of one table.

    Attributes:
        line: Line of the table's header in the file; 0 for a new table.
        comment: The comment directly above the header.
        lines: The header and all lines up to the next block.

    """

    path: KeyPath
    line: int
    comment: list[str]
    lines: list[str]

    def change(self, change: TableChange) -> None:
        """Set the values of the table, and the lines that explain them."""
        self.comment = [line for line in self.comment if not line.startswith(MARK)]
        self.comment += change.provenance
        end = len(self.lines)  # without the empty lines and comments at the end
        while end > 1 and self.lines[end - 1].strip()[:1] in {"", "#"}:
            end -= 1
        document = tomlkit.parse("\n".join([*self.lines[:end], ""]))
        table: Any = document
        for key in self.path:
            table = table[key]
        table.update(change.values)
        self.lines[:end] = _lines(tomlkit.dumps(document))


def changed(path: Path, changes: Sequence[TableChange]) -> str:
    """Return a TOML file's text with tables changed, and missing tables at its end.

    Raises:
        SuiteError: A table cannot be changed alone.

    """
    head, blocks = _blocks(path)
    found = {block.path: block for block in blocks}
    meant = tomllib.loads(text_of(path).removeprefix(BOM))
    for change in changes:
        block = found.get(change.path)
        if block is None:
            above = blocks[-1].lines if blocks else head
            space = [""] if above and above[-1].strip() else []
            block = _Block(change.path, 0, space, [f"[{dotted(change.path)}]"])
            blocks.append(block)
        block.change(change)
        table = meant
        for key in change.path:
            table = table.setdefault(key, {})
        table.update(tomlkit.item(change.values).unwrap())
    result = _joined(path, head, blocks)
    try:
        is_meant = tomllib.loads(result.removeprefix(BOM)) == meant
    except tomllib.TOMLDecodeError:
        is_meant = False
    if not is_meant:
        tables = ", ".join(f"[{dotted(change.path)}]" for change in changes)
        msg = (
            f"{path.name}: {tables} cannot be changed one by one; write each as a "
            "table with a header of its own, and tune again."
        )
        raise SuiteError(msg)
    return result


def without(path: Path, lines: Collection[int]) -> str:
    """Return a TOML file's text without the tables whose headers are at `lines`.

    A comment directly above a header is removed with its table. A comment that begins
    the file stays.

    Raises:
        SuiteError: One of the lines, counted from 1, has no header.

    """
    head, blocks = _blocks(path)
    if unknown := set(lines) - {block.line for block in blocks}:
        msg = (
            f"{path.name}:{min(unknown)}: this cannot be taken out by itself; give it "
            "a header of its own, or take it out by hand."
        )
        raise SuiteError(msg)
    first = blocks[0]
    if not head and first.line in lines:
        # A comment that begins the file is about the file, except a tuning's lines.
        head = [line for line in first.comment if not line.startswith(MARK)]
    text = _joined(path, head, [b for b in blocks if b.line not in lines])
    return text if text.strip() else ""


def inline(values: Mapping[str, object]) -> Any:  # noqa: ANN401  # tomlkit's item
    """Return a table on one line, with spaces inside the braces."""
    table = tomlkit.inline_table()
    table.update(values)
    return tomlkit.value(f"{{ {table.as_string()[1:-1]} }}")


def _blocks(path: Path) -> tuple[list[str], list[_Block]]:
    """Return the lines above the first table, and the tables."""
    file = TomlFile.load(path)
    lines = _lines(text_of(path).removeprefix(BOM))
    headers: dict[int, KeyPath] = {}
    for keys, line in file.lines.items():
        # A line that begins with "[" can also be an item of a list, and no table.
        is_table = lines[line - 1].lstrip().startswith("[") and _is_table(file, keys)
        if is_table and len(keys) >= len(headers.get(line, ())):
            headers[line] = keys
    head: list[str] = []
    blocks: list[_Block] = []
    for line, text in enumerate(lines, start=1):
        before = blocks[-1].lines if blocks else head
        if line not in headers:
            before.append(text)
            continue
        comment: list[str] = []
        while before and before[-1].startswith("#"):
            comment.insert(0, before.pop())
        blocks.append(_Block(headers[line], line, comment, [text]))
    return head, blocks


def _is_table(file: TomlFile, keys: KeyPath) -> bool:
    value: Any = file.data
    for key in keys:
        value = value[key]
    return isinstance(value, dict)


def _joined(path: Path, head: Sequence[str], blocks: Iterable[_Block]) -> str:
    lines = [*head]
    for block in blocks:
        lines += [*block.comment, *block.lines]
    while lines and not lines[-1].strip():
        lines.pop()
    # Windows' line ends stay, because a TOML parser reads both kinds.
    end = "\r\n" if "\r\n" in text_of(path) else "\n"
    start = BOM if text_of(path).startswith(BOM) else ""
    return start + "".join(line + end for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of TOML, where other separators of lines are text."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]
