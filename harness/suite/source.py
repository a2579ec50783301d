"""Read ``[source]``, the origin of the weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from harness.core.case import LIVE, Component, Source
from harness.recipes import RECIPES, weight_folders
from harness.recipes.adapters import adapter_for
from harness.recipes.hub import installed, snapshot
from harness.recipes.named import check_named
from harness.suite.schema import CHECKPOINTS, ComponentTable, SourceTable, SuiteFile
from harness.suite.tables import file_beside, path_beside

_NAMED: Final = re.compile(r"[\w.]+:[\w.]+")

Recipe = tuple[str, tuple[tuple[str, str | int | bool], ...]]
"""Name and options of a recipe."""


def read_source(file: SuiteFile) -> Source:
    """Read ``[source]``; a suite of foreign files may need no checkpoint.

    Raises:
        SuiteError: There is no checkpoint, or more than one, or it cannot be found.

    """
    table = file.source
    stated = [key for key in CHECKPOINTS if getattr(table, key)]
    lora = file_beside(table, "lora", table.lora) if table.lora else None
    bare = (one.onnx or one.captured for one in file.component.values())
    if not stated and any(bare):
        return Source(path=file.place.file.path.parent)
    if len(stated) != 1:
        got = "has both" if stated else "has neither"
        text = (
            "[source] takes a `checkpoint` folder or a `hub` id, or a Python `package` "
            f"that ships one; it {got}."
        )
        raise table.error(text)
    if table.checkpoint:
        path = path_beside(table, "checkpoint", table.checkpoint).resolve()
    else:
        with table.place.errors_at(*stated):
            path = (
                installed(table.package)
                if table.package
                else snapshot(table.hub, table.seed)
            )
    # A scale without a LoRA would make two different sources of the same weights.
    scale = table.lora_scale if lora else 1.0
    return Source(path=path, seed=table.seed, lora=lora, lora_scale=scale)


def captured_source(
    file: SuiteFile, name: str, table: ComponentTable, source: Source
) -> Source:
    """Return the source of a component whose calls were recorded.

    Raises:
        SuiteError: One of its two keys is missing, or its folder in the checkpoint.

    """
    for key, other in (("captured", "module"), ("module", "captured")):
        if not getattr(table, key):
            text = f"{name!r} names {other!r} and no {key!r}; it takes both."
            raise table.error(text, other)
    if not table.module.startswith(LIVE) and not _NAMED.fullmatch(table.module):
        text = f"{table.module!r} is no name; write it as in 'my_project.nets:make'."
        raise table.error(text, "module")
    weights = None
    if file.source.named_by:
        home = source.path / (table.folder or name)
        weights = home if table.folder or home.is_dir() else source.path
        if not weights.is_dir():
            text = f"there is no folder {weights}."
            raise table.error(text, "folder")
    return Source(
        path=path_beside(table, "captured", table.captured).resolve(),
        seed=source.seed if file.source.named_by else None,
        module=table.module,
        weights=weights,
    )


def check_source(
    table: SourceTable,
    source: Source,
    tested: Collection[Component],
    roles: Collection[str],
    *,
    listed: bool,
) -> None:
    """Refuse a checkpoint that lacks a tested part, or a LoRA that adapts none.

    Args:
        table: ``[source]``.
        source: The source that was read from it.
        tested: Components with cases of their own.
        roles: Recipes of the components of pipelines.
        listed: Whether the suite lists its components. If not, it tests all.

    Raises:
        SuiteError: The checkpoint names a part that is tested and missing, the LoRA
            adapts only other networks, or its keys cannot be read.

    """
    if table.named_by:
        recipes = {part.recipe for part in tested if part.recipe in RECIPES}
        with table.place.errors_at(table.named_by):
            check_named(source, {*recipes, *roles} if listed else None)
    if source.lora is not None:
        drawn: list[Recipe] = [(role, ()) for role in roles]
        own = [(one.recipe, one.options) for one in tested if one.source == source]
        _check_lora(table, source, [*drawn, *own])


def _check_lora(
    table: SourceTable, source: Source, recipes: Collection[Recipe]
) -> None:
    with table.place.errors_at("lora"):
        adapter = adapter_for(source)
    if any(recipe not in RECIPES for recipe, _ in recipes):
        return  # only a user's own recipe knows what it loads
    folders = {
        folder
        for recipe, options in recipes
        for folder in weight_folders(recipe, source, options)
    }
    if text := adapter.refusal(folders):
        raise table.error(text, "lora")
