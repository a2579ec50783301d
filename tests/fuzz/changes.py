"""Change healthy data into what a damaged or a hostile file may hold.

JSON and TOML are changed by their structure: a value becomes one of another type, keys
are removed, added and doubled. Other formats are changed by their bytes, and by the
numbers in them. All of it is drawn from one `random.Random`, so a seed tells the input.
"""

from __future__ import annotations

import copy
import io
import json
import math
import zipfile
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

MARK = "</script><img src=x onerror=alert(1)>"
"""A text that must not stand like this in a page."""

NAMES = (
    *("", ".", "..", "../x", "../../outside/x", "a/b", "a\\b", "/", "//x", "C:\\x"),
    *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x07", "\u202eabc", "a\nb", "a\x00b"),
    *("x" * 300, "é", "ä" * 130, "\ud83d\ude00", '"', "'''", '"""', "{{7*7}}", "${x}"),
    *(MARK, "$(touch x)", "-", "--help", "-i", "NaN", "None", "true", "0", "-1"),
    *("numpy.py", "run.py", "bundle.json", "entry.json", "about", "con", "~", "%s%n"),
    *("~nobody-of-this-name/x", "a/" * 3000),
)
NUMBERS = (
    *(0, -0.0, 1, -1, 2, 3, 0.5, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**45, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(-(2**63), 1e-320, 1e308, 10**30),
)
FLAGS = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x01")


@dataclass(frozen=True)
class Raw:
    """JSON as text, for what Python's own writer would not write."""

    text: str


@dataclass
class Pairs:
    """An object whose keys may stand twice."""

    items: list[list[Any]]


def _tree(value: object) -> Any:
    if isinstance(value, dict):
        return Pairs([[key, _tree(one)] for key, one in value.items()])
    if isinstance(value, list | tuple):
        return [_tree(one) for one in value]
    return value


def _text(tree: Any) -> str:
    if isinstance(tree, Raw):
        return tree.text
    if isinstance(tree, Pairs):
        items = (f"{json.dumps(str(key))}:{_text(one)}" for key, one in tree.items)
        return "{" + ",".join(items) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(_text, tree)) + "]"
    return json.dumps(tree)


def _slots(tree: Any) -> list[tuple[Any, int]]:
    """Every place of a value: what holds it, and its position there."""
    found, todo = [], [tree]
    while todo:
        one = todo.pop()
        held = one.items if isinstance(one, Pairs) else one
        for at, item in enumerate(held):
            inner = item[1] if isinstance(one, Pairs) else item
            found.append((one, at))
            if isinstance(inner, Pairs | list):
                todo.append(inner)
    return found


def _get(slot: tuple[Any, int]) -> Any:
    holder, at = slot
    return holder.items[at][1] if isinstance(holder, Pairs) else holder[at]


def _set(slot: tuple[Any, int], value: object) -> None:
    holder, at = slot
    if isinstance(holder, Pairs):
        holder.items[at][1] = value
    else:
        holder[at] = value


def atom(rng: Random) -> Any:
    """Any value, whatever was there."""
    return rng.choice(
        [
            *(None, True, False, [], Pairs([]), [[]], [None], Pairs([["", None]])),
            *(Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e999")),
            *(Raw("1" + "0" * 400), Raw("-1" + "0" * 5000)),
            Raw("[" * 2000 + "]" * 2000),
            Raw('{"a":' * 1500 + "0" + "}" * 1500),
            [0] * 3000,
            "y" * 200_000,
            *(rng.choice(NUMBERS) for _ in range(8)),
            *(rng.choice(NAMES) for _ in range(8)),
        ]
    )


def _near(rng: Random, value: Any) -> Any:
    """A value near one of a type that has such, or else any."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float) and math.isfinite(value):
        return rng.choice([value + 1, value - 1, -value, value * 1000, str(value)])
    if isinstance(value, str):
        name = rng.choice(NAMES)
        return rng.choice([value + name, name + value, value[:-1], value * 50, [value]])
    if isinstance(value, list) and value:
        return rng.choice([value * 2, value[1:], value[::-1], value[0], value * 100])
    if isinstance(value, Pairs) and value.items:
        return rng.choice([value.items[0][1], [value], list(value.items)])
    return atom(rng)


def _other(rng: Random, value: Any, slots: list[tuple[Any, int]]) -> Any:
    """A value in place of one: near it, from elsewhere, or of another type."""
    way = rng.randrange(8)
    if way < 3:
        return _near(rng, value)
    return _get(rng.choice(slots)) if way == 3 else atom(rng)


def json_text(rng: Random, value: object) -> str:
    """JSON of a value after one to four changes of its structure."""
    top = Pairs([["", _tree(value)]])
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        slots = _slots(top)
        slot = rng.choice(slots)
        # Deep values are many; a change near the top matters as much.
        if rng.random() < 0.4:
            slot = rng.choice(slots[: max(1, len(slots) // 20)])
        holder, at = slot
        way = rng.randrange(10)
        if way < 6 or holder is top:
            # A copy, because a value inside itself would have no end.
            _set(slot, copy.deepcopy(_other(rng, _get(slot), slots)))
        elif isinstance(holder, Pairs):
            key, one = holder.items[at]
            if way == 6:
                del holder.items[at]
            elif way == 7:
                holder.items.append([key, atom(rng)])
            elif way == 8:
                holder.items[at][0] = rng.choice((*NAMES, key.upper(), f"{key}_"))
            else:
                holder.items.append([rng.choice(NAMES), copy.deepcopy(one)])
        elif way == 6:
            del holder[at]
        else:
            holder.insert(at, copy.deepcopy(rng.choice([holder[at], atom(rng)])))
    return _text(top.items[0][1])


def toml_text(rng: Random, text: str, value: object) -> str:
    """TOML after changes: of its lines, or of its structure."""
    if rng.random() < 0.5:
        return _toml_lines(rng, text)
    try:
        changed = json.loads(json_text(rng, value))
    except (ValueError, RecursionError):
        return _toml_lines(rng, text)
    if not isinstance(changed, dict):
        return f"{_toml_key(rng.choice(NAMES))} = {_toml(changed)}\n"
    return "".join(f"{_toml_key(k)} = {_toml(v)}\n" for k, v in changed.items())


def _toml_lines(rng: Random, text: str) -> str:
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines)) if lines else 0
        way = rng.randrange(6)
        if not lines or way == 0:
            lines.insert(at, rng.choice(("[", "]]", "= 1", "a.b.c = 1", "[[shapes]]")))
        elif way == 1:
            del lines[at]
        elif way == 2:
            lines.insert(at, lines[at])
        elif way == 3 and "=" in lines[at]:
            key = lines[at].partition("=")[0]
            lines[at] = f"{key}= {_toml_atom(rng)}"
        elif way == 4:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        else:
            lines[at] = f"[{_toml_key(rng.choice(NAMES))}]"
    return "\n".join(lines) + "\n"


def _toml_atom(rng: Random) -> str:
    more = ("nan", "inf", "-inf", "1979-05-27", "07:32:00", "0x10", "''", "1e400")
    deep = "[" * 400 + "]" * 400
    tables = "{a=" * 300 + "1" + "}" * 300
    return rng.choice(
        [*more, deep, tables, _toml(rng.choice(NAMES)), _toml(rng.choice(NUMBERS))]
    )


def _toml_key(key: str) -> str:
    return json.dumps(key)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '""'
    if isinstance(value, float):
        return repr(value)  # nan and inf are TOML's words too
    return json.dumps(value)


def flipped(rng: Random, data: bytes) -> bytes:
    """Bytes after one to eight changes."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(made)) if made else 0
        # The beginning of a file says how the rest is read.
        if made and rng.random() < 0.4:
            at = rng.randrange(min(len(made), 256))
        way = rng.randrange(7)
        if not made or way == 0:
            made[at:at] = rng.randbytes(rng.choice((1, 2, 4, 64)))
        elif way == 1:
            made[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            made[at : at + 1] = rng.choice(FLAGS)
        elif way == 3:
            size = rng.choice((2, 4, 8))
            number = int(rng.choice(NUMBERS)) % (1 << (8 * size))
            order = rng.choice(("little", "big"))
            made[at : at + size] = number.to_bytes(size, order)
        elif way == 4:
            del made[at : at + rng.choice((1, 4, 100, len(made)))]
        elif way == 5:
            there = rng.randrange(len(made))
            made[at:at] = made[there : there + rng.choice((1, 8, 200))]
        else:
            del made[at:]
    return bytes(made)


def npy(rng: Random, array: np.ndarray) -> bytes:
    """An ``.npy`` file whose header, shape or dtype is changed."""
    file = io.BytesIO()
    np.save(file, array)
    data = file.getvalue()
    way = rng.randrange(6)
    if way == 0:
        return flipped(rng, data)
    if way == 1:
        file = io.BytesIO()
        other = rng.choice(
            [
                array.astype(np.float16),
                array.astype(np.complex64),
                array.astype(str)[:4] if array.ndim else array.astype(str),
                array.reshape(-1),
                array[None],
                np.full_like(array, np.nan) if array.dtype.kind == "f" else array,
                np.empty(0, array.dtype),
                np.zeros((0, 2**20), array.dtype),
                np.array(["2020-01-01"], "datetime64[D]"),
                np.zeros(3, [("a", "<f4"), ("b", "<i8")]),
            ]
        )
        np.save(file, other)
        return file.getvalue()
    head = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    shapes = [(2**45,), (2**20, 2**20), (-1,), (2**63,), (1,) * 65, (0, 2**40), "x"]
    key = rng.choice(list(head))
    head[key] = {
        "descr": rng.choice(["|O", "<f8", "<U8", "|S99999999", "|V8", "<m8", ">f4", 3]),
        "fortran_order": rng.choice([True, 1, "x"]),
        "shape": rng.choice(
            [*shapes, (*array.shape, 2), tuple(map(float, array.shape))]
        ),
    }[key]
    words = repr(head)
    if way == 2:
        words = rng.choice(
            ["(" * 300 + ")" * 300, "{" * 90, "9" * 5000, "[" * 60_000, words[:-3], ""]
        )
    text = words.encode("latin1", "replace") + b"\n"
    size = len(text).to_bytes(2, "little") if len(text) < 65_536 else b"\xff\xff"
    return b"\x93NUMPY\x01\x00" + size + text + array.tobytes()


def stored_name(rng: Random) -> str:
    """A name that an archive can store."""
    name = rng.choice(NAMES).encode("utf-8", "replace").decode()
    return name.replace("\x00", "_") or "empty"


def npz(
    rng: Random, arrays: dict[str, np.ndarray], texts: dict[str, bytes] | None = None
) -> bytes:
    """An ``.npz`` file with a changed array, a changed name, or changed bytes.

    `texts` are members that are written as they are, in place of an array.
    """
    file = io.BytesIO()
    names = [*arrays]
    picked = rng.choice(names)
    way = rng.randrange(8)
    packed = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", packed) as made:
        for name in names:
            if name == picked and way == 0:
                continue
            one = io.BytesIO()
            np.save(one, arrays[name])
            data = (texts or {}).get(name, one.getvalue())
            if name == picked and way in {1, 2, 3}:
                data = npy(rng, arrays[name])
            called = name
            if name == picked and way == 4:
                called = stored_name(rng)
            made.writestr(f"{called}.npy", data)
        if way == 5:
            bomb = io.BytesIO()
            np.save(bomb, np.zeros(1 << 21, np.uint8))
            made.writestr(f"{stored_name(rng)}.npy", bomb.getvalue())
    data = file.getvalue()
    return flipped(rng, data) if way == 6 else data
