"""Read ``[source]``, the origin of the weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.core.toml_file import Table
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import shapes_of
from harness.recipes.hub import installed, snapshot
from harness.recipes.lora import layers_of, network_of, networks_of
from harness.recipes.named import check_named
from harness.suite.schema import SuiteFile
from harness.suite.tables import file_beside, path_beside

Recipe = tuple[str, tuple[tuple[str, str | int | bool], ...]]
"""Name and options of a recipe."""

NAMED: Final = ("checkpoint", "hub", "package")
"""Keys that name a checkpoint: one is given, or none for a suite of foreign files."""


def names_checkpoint(table: Table) -> bool:
    """Whether ``[source]`` names a checkpoint by any key."""
    return any(key in table for key in NAMED)


def read_source(table: Table, file: SuiteFile) -> Source:
    """Read ``[source]``; a suite of foreign files may need no checkpoint.

    Raises:
        SuiteError: There is no checkpoint, or more than one, or it cannot be found.

    """
    said, folder = file.source, table.file.path.parent
    given = [name for name in NAMED if getattr(said, name)]
    lora = file_beside(table, "lora", said.lora) if said.lora else None
    if not given and any(one.onnx for one in file.component.values()):
        return Source(path=folder)
    if len(given) != 1:
        got = "has both" if given else "has neither"
        text = (
            "[source] takes a `checkpoint` folder or a `hub` id, or a Python `package` "
            f"that ships one; it {got}."
        )
        raise table.error(text)
    if said.package:
        path = installed(table, said.package)
    elif said.hub:
        path = snapshot(table, said.hub, said.seed)
    else:
        path = path_beside(table, "checkpoint", said.checkpoint).resolve()
    # A scale without a LoRA would make two different sources of the same weights.
    scale = said.lora_scale if lora else 1.0
    return Source(path=path, seed=said.seed, lora=lora, lora_scale=scale)


def check_source(
    table: Table,
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
    if names_checkpoint(table):
        recipes = {part.recipe for part in tested if part.recipe in RECIPES}
        try:
            check_named(source, {*recipes, *roles} if listed else None)
        except SuiteError as error:
            key = next(key for key in NAMED if key in table)
            raise table.error(str(error), key) from None
    if source.lora is not None:
        drawn: list[Recipe] = [(role, ()) for role in roles]
        own = [(one.recipe, one.options) for one in tested if one.source == source]
        _check_lora(table, source, source.lora, [*drawn, *own])


def _check_lora(
    table: Table, source: Source, lora: Path, recipes: Collection[Recipe]
) -> None:
    if any(recipe not in RECIPES for recipe, _ in recipes):
        return  # only a user's own recipe knows what it loads
    networks = {
        network_of(folder)
        for recipe, options in recipes
        for folder in weight_folders(recipe, source, options)
    }
    adapted = layers_of(lora, shapes_of(lora), networks_of(source))
    if networks.isdisjoint(adapted):
        text = (
            f"{lora} adapts {' and '.join(adapted)}, of which nothing is tested "
            "here, so it would change no number; list what it adapts in `components`, "
            "or leave `lora` out."
        )
        raise table.error(text, "lora")
