"""The first suite of a folder that has foreign ONNX files, and no weights.

The folder has Optimum's layout (``unet/model.onnx`` with a configuration beside it), or
files side by side. There is no PyTorch model to compare them with. So each ONNX file is
its own reference, and a file converted from it is the candidate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.case import GIVEN, LONGEST, ONNX, Component, Source
from harness.core.errors import SpecError, SuiteError
from harness.core.runtime import EXACT, formats, onnx_runtime
from harness.plugins.start.init.bits import computes_in
from harness.plugins.start.init.render import first_runtimes, path_from, render
from harness.recipes import describe
from harness.recipes.checkpoint import WEIGHTS
from harness.recipes.onnx_file import names_of_axes
from harness.suite.files import file_reader
from harness.suite.tables import symbols_of

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
"""Words in an axis' name, to a size that is divisible by no larger power of two than
needed.

Other sizes are tried in steps of the largest power of two that divides this one. A UNet
halves its latents three times.
"""
_OTHER_SIZE = 16


_FEWER = {
    "float16": ("relaxed", "the file computes in float16, with 11 bits for a number"),
    "int8": ("quantized", "the file computes with integers of 8 bits or fewer"),
}
"""Bits that a file computes in, to the tier of its values, and the reason."""


def foreign_onnx_files(folder: Path) -> list[Path]:
    """Return the ONNX files of a folder without weights; none where it has weights."""
    return [] if _found(folder, _WEIGHTS) else _found(folder, ("*.onnx",))


def refuse_converted_alone(folder: Path) -> None:
    """Refuse a folder that has only converted files.

    Raises:
        SuiteError: The folder has a converted file and no reference for it.

    """
    beside = (*_WEIGHTS, "*.onnx", "config.json", "model_index.json")
    for one in formats().values():
        if _found(folder, (f"*.{one.reads}",)) and not _found(folder, beside):
            msg = (
                f"{folder} has {one.title} files alone, and nothing to compare them "
                "with: put the ONNX file that each was made from beside it, under the "
                f'same name, or give the checkpoint and write `{one.reads} = "path"` '
                "under its [component.*]."
            )
            raise SuiteError(msg)


def texts_of_files(
    root: Path, paths: Sequence[Path], folder: Path
) -> tuple[tuple[str, str], list[str]]:
    """Return both TOML files for ONNX files under `root`, to be written to `folder`.

    A file is left out that is no ONNX file, lacks weights, or has an input that cannot
    be drawn.

    Returns:
        The texts, and a sentence for the user about each file that is left out.

    Raises:
        SuiteError: No file is left, or two would be one component.

    """
    components = {}
    tables = {}
    notices = []
    for name, path in _named(root, paths).items():
        try:
            components[name] = _described(name, path)
        except (SuiteError, SpecError) as error:
            if len(paths) == 1:
                msg = f"{path}: {error}"
                raise SuiteError(msg) from None
            notices.append(f"left out {path.relative_to(root)}: {error}")
            continue
        files = {ONNX: path} | _converted(path)
        tables[name] = {kind: path_from(folder, file) for kind, file in files.items()}
    if not components:
        msg = f"{root} has no ONNX file that can be tested: {'; '.join(notices)}"
        raise SuiteError(msg)
    bits = {name: computes_in(one.source.path) for name, one in components.items()}
    return _rendered(components, tables, bits), notices


def _rendered(
    components: Mapping[str, Component],
    tables: Mapping[str, Mapping[str, str]],
    bits: Mapping[str, str],
) -> tuple[str, str]:
    symbols = symbols_of(*components.values())
    called: dict[str, str] = {}
    for component in components.values():
        called |= names_of_axes(component.source)
    as_exported = [f"{onnx_runtime().name}.{GIVEN}"]
    converted = {}
    for one in first_runtimes():
        made = [one.reads in table for table in tables.values()]
        if one.own_format and not all(made):
            as_exported.append(f"{one.name}.{EXACT}")
        if one.own_format and any(made):
            converted[f"{one.name}.{GIVEN}"] = one.title
    return render(
        "onnx_files",
        components=tables,
        sizes={symbol: _size(called.get(symbol, symbol)) for symbol in symbols},
        called=called,
        as_exported=as_exported,
        fewer={name: _FEWER[said] for name, said in bits.items() if said},
        is_pair=any("reference" in table for table in tables.values()),
        converted=converted,
    )


def texts_of_pair(before: Path, after: Path, folder: Path) -> tuple[str, str]:
    """Return both TOML files that compare one ONNX file with the one before it.

    Raises:
        SuiteError: One is no ONNX file or lacks weights, or has an input that cannot
            be drawn.

    """
    for path in (before, after):
        if not path.is_file():
            msg = f"{path} is no file: give two ONNX files, the one before first."
            raise SuiteError(msg)
    ((name, _),) = _named(after.parent, [after]).items()
    component = _described(name, before)
    _described(name, after)
    files = {ONNX: after, "reference": before}
    return _rendered(
        {name: component},
        {name: {key: path_from(folder, file) for key, file in files.items()}},
        {name: computes_in(before) or computes_in(after)},
    )


def _found(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the matching files of a folder and of its direct subfolders."""
    return sorted(
        path
        for pattern in patterns
        for depth in ("", "*/")
        for path in folder.glob(depth + pattern)
    )


def _named(root: Path, paths: Sequence[Path]) -> dict[str, Path]:
    """Name each file by its folder, or by its own name if the folder has two."""
    folders = [path.parent for path in paths]
    named: dict[str, Path] = {}
    for path in paths:
        alone = folders.count(path.parent) == 1 and path.parent != root
        inside = path.parent.name if path.parent != root else ""
        words = [inside] if alone else [word for word in (inside, path.stem) if word]
        name = re.sub(r"[^a-z0-9_-]+", "_", "-".join(words).lower()).strip("_-")
        name = name[:LONGEST].strip("_-") or "model"
        if name in named:
            msg = (
                f"{named[name]} and {path} would both be the component {name!r}; "
                "rename one of them, or move it elsewhere."
            )
            raise SuiteError(msg)
        named[name] = path
    return named


def _described(name: str, path: Path) -> Component:
    for kind, file in ({ONNX: path} | _converted(path)).items():
        if words := file_reader().lacking(file, kind):
            raise SuiteError(words)
    return describe(name, GIVEN, Source(path=path))


def _converted(path: Path) -> dict[str, Path]:
    """Return the files that runtimes' converters made of an ONNX file, by format."""
    found = {kind: path.with_suffix(f".{kind}") for kind in formats()}
    return {kind: file for kind, file in found.items() if file.is_file()}


def _size(symbol: str) -> int:
    """Return a size that most networks take for an axis of this name."""
    lowered = symbol.lower()
    return next((size for word, size in _SIZES if word in lowered), _OTHER_SIZE)
