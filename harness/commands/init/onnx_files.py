"""Write the first suite for a folder that has files of others, and no weights.

Optimum's layout, ``unet/model.onnx`` with a configuration beside it, or files side by
side. There is no PyTorch model to hold them against, so each ONNX file is its own
reference, and MNN's file of it the candidate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from harness.commands.init.text import noted, path_from
from harness.commands.init.variants import first_runtimes
from harness.core.case import GIVEN, Component, Source
from harness.core.errors import SuiteError
from harness.core.foreign_files import lacking
from harness.core.runtime import EXACT, ONNX, Runtime, formats, onnx_runtime
from harness.recipes import describe
from harness.recipes.checkpoint import WEIGHTS
from harness.suite.tables import symbols_of

_HEAD = """\
# How far a value may be from what ONNX Runtime makes of the same ONNX file with every
# rewrite off. There is no run in float64, so no noise floor, and layers are held in
# decibels.
"""
_AS_EXPORTED = """\
[{variant}]
outputs = "standard"
layers = {{ sqnr_db = 80.0 }}
allow_nonfinite = true
why = "no float64 run, so no noise floor; masks may be of minus infinity"
"""
_CONVERTED = """\
# Of a file that {title}'s converter made already, perhaps with rounded weights.
[{variant}]
outputs = "relaxed"
layers = "relaxed"
"""

_WEIGHTS = tuple(f"*{suffix}" for suffix in WEIGHTS)
_SIZES = (
    ("batch", 2),
    ("height", 24),
    ("width", 40),
    ("step", 1),
    ("channel", 4),
    ("sequence", 13),
    ("token", 13),
)
"""Words in an axis' name, and a size that is no more even than it must be.

Other sizes are tried in steps of the largest power of two that this is a multiple of,
and a UNet halves its latents three times.
"""
_OTHER_SIZE = 16


def files_of_others(folder: Path) -> list[Path]:
    """Return the ONNX files of a folder without weights; none where it has weights."""
    if _found(folder, _WEIGHTS):
        return []
    return _found(folder, ("*.onnx",))


def converted_alone(folder: Path) -> Runtime | None:
    """Return whose converted files a folder has, if nothing else is there.

    There is nothing that such a file could be compared with.
    """
    beside = _found(folder, (*_WEIGHTS, "*.onnx", "config.json", "model_index.json"))
    if beside:
        return None
    found = (one for one in formats().values() if _found(folder, (f"*.{one.reads}",)))
    return next(found, None)


def suite_of_files(root: Path, files: Sequence[Path], folder: Path) -> str:
    """Return parity.toml for the ONNX files under `root`, as it stands in `folder`.

    Raises:
        SuiteError: One is no ONNX file, lacks weights, or takes what cannot be drawn.

    """
    named = _named(root, files)
    for path in named.values():
        _refuse_short(path)
    components = [_described(name, path) for name, path in named.items()]
    tables = chain.from_iterable(
        ["", *_table(name, path, folder)] for name, path in named.items()
    )
    lines = [
        "# What is tested, and how. `parity run` and `pytest -m parity` run it.",
        "# There are no PyTorch weights: each ONNX file is its own reference, as ONNX",
        "# Runtime runs it with every rewrite off. With a [source] that has weights,",
        "# each would be held against PyTorch instead.",
        "",
        noted("[[shapes]]", "the files' own names of their open axes"),
        *(f"{symbol} = {_size(symbol)}" for symbol in symbols_of(*components)),
        "",
        "[inputs]",
        'profiles = ["realistic"]',
        noted("realistic = 2", "drawn by kind and name"),
        "seed = 0",
        "",
        *chain.from_iterable(_backend(one) for one in first_runtimes()),
        *tables,
        "",
        "[limits]",
        noted("timeout_s = 900", "of one stage of one case"),
    ]
    return "\n".join(lines) + "\n"


def _backend(one: Runtime) -> list[str]:
    listed = [f'"{name}"' for name, made in one.variants.items() if name != EXACT]
    others = f"or {', '.join(listed[:2])}, ..."
    words = others if one.own_format else "the files as they are"
    variants = noted(f'variants = ["{EXACT}"]', words)
    return [f"[backend.{one.name}]", variants, "threads = 2", ""]


def tolerances_of_files(files: Sequence[Path]) -> str:
    """Return tolerances.toml with a table for each variant that the files have."""
    tables = [_HEAD + _AS_EXPORTED.format(variant=f"{onnx_runtime().name}.{GIVEN}")]
    for one in first_runtimes():
        if one.own_format is None:
            continue
        converted = [_converted(path, one).is_file() for path in files]
        if not all(converted):
            tables.append(_AS_EXPORTED.format(variant=f"{one.name}.{EXACT}"))
        if any(converted):
            tables.append(
                _CONVERTED.format(title=one.title, variant=f"{one.name}.{GIVEN}")
            )
    return "\n".join(tables)


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return files of a folder, and of those in it."""
    return sorted(
        path
        for pattern in patterns
        for depth in ("", "*/")
        for path in folder.glob(depth + pattern)
    )


def _named(root: Path, files: Sequence[Path]) -> dict[str, Path]:
    """Name each file by its folder, or by itself where that would name two."""
    folders = [path.parent for path in files]
    named = {}
    for path in files:
        alone = folders.count(path.parent) == 1 and path.parent != root
        inside = path.parent.name if path.parent != root else ""
        words = [inside] if alone else [word for word in (inside, path.stem) if word]
        named["-".join(words).replace(".", "_").replace(" ", "_")] = path
    return named


def _refuse_short(path: Path) -> None:
    """Refuse a model of which files beside it do not hold all weights."""
    words = lacking(path, ONNX)
    for kind, one in formats().items():
        if not words and _converted(path, one).is_file():
            words = lacking(_converted(path, one), kind)
    if words:
        msg = f"{path.parent}: {words} Or move the model elsewhere to test the others."
        raise SuiteError(msg)


def _described(name: str, path: Path) -> Component:
    try:
        return describe(name, GIVEN, Source(path=path))
    except SuiteError as error:
        msg = f"{path}: {error} Move it elsewhere to test the others."
        raise SuiteError(msg) from None


def _table(name: str, path: Path, folder: Path) -> list[str]:
    lines = [f"[component.{json.dumps(name)}]", f"onnx = {_quoted(folder, path)}"]
    for kind, one in formats().items():
        if (converted := _converted(path, one)).is_file():
            lines.append(f"{kind} = {_quoted(folder, converted)}")
    return lines


def _converted(path: Path, one: Runtime) -> Path:
    """Return where a runtime's own file of an ONNX file lies, if there is one."""
    return path.with_suffix(f".{one.reads}")


def _quoted(folder: Path, path: Path) -> str:
    return json.dumps(path_from(folder, path), ensure_ascii=False)


def _size(symbol: str) -> int:
    """Return a size that most networks take, by what an axis is called."""
    lowered = symbol.lower()
    return next((size for word, size in _SIZES if word in lowered), _OTHER_SIZE)
