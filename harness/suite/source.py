"""Read where weights come from: ``[source]``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.core.toml_file import Table
from harness.recipes import RECIPES, weight_folders
from harness.recipes.checkpoint import shapes_of
from harness.recipes.hub import installed, snapshot
from harness.recipes.lora_names import layers_of, network_of, networks_of
from harness.recipes.named import check_named
from harness.suite.schema import SuiteFile

NAMED: Final = ("checkpoint", "hub", "package")
"""Ways to name a checkpoint; one of them, or none where files of others are tested."""


def names_checkpoint(table: Table) -> bool:
    """Whether ``[source]`` names a checkpoint in any way."""
    return any(key in table for key in NAMED)


def read_source(table: Table, file: SuiteFile) -> Source:
    """Read ``[source]``.

    Args:
        table: The table itself.
        file: The whole suite, whose files of others may need no checkpoint.

    Raises:
        SuiteError: There is no checkpoint, or more than one, or it cannot be had.

    """
    said, folder = file.source, table.file.path.parent
    given = [name for name in NAMED if getattr(said, name)]
    lora = (folder / Path(said.lora).expanduser()).resolve() if said.lora else None
    if lora is not None and not lora.is_file():
        text = f"there is no file {lora}."
        raise table.error(text, "lora")
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
        path = (folder / Path(said.checkpoint).expanduser()).resolve()
    # The scale of no LoRA would make two sources of one.
    scale = said.lora_scale if lora else 1.0
    return Source(path=path, seed=said.seed, lora=lora, lora_scale=scale)


def check_whole(
    table: Table,
    source: Source,
    tested: Iterable[Component],
    seats: Iterable[str],
    *,
    listed: bool,
) -> None:
    """Refuse a checkpoint that lacks a part which it names and which is tested here.

    Args:
        table: ``[source]``.
        source: What it says.
        tested: Components with cases of their own.
        seats: Recipes that pipelines are made of.
        listed: Whether the suite lists its components; it tests all there are else.

    Raises:
        SuiteError: Naming the parts, and the line of the checkpoint.

    """
    if not names_checkpoint(table):
        return
    recipes = {part.recipe for part in tested if part.recipe in RECIPES}
    try:
        check_named(source, {*recipes, *seats} if listed else None)
    except SuiteError as error:
        key = next(key for key in NAMED if key in table)
        raise table.error(str(error), key) from None


def check_lora(
    table: Table, source: Source, tested: Iterable[Component], seats: Iterable[str]
) -> None:
    """Refuse a LoRA that adapts nothing of what is tested.

    Args:
        table: ``[source]``.
        source: What it says.
        tested: Components with cases of their own.
        seats: Recipes that pipelines are made of.

    Raises:
        SuiteError: It adapts other networks alone, or its keys cannot be read.

    """
    if source.lora is None:
        return
    recipes = [(seat, ()) for seat in seats] + [
        (component.recipe, component.options)
        for component in tested
        if component.source == source
    ]
    if any(recipe not in RECIPES for recipe, _ in recipes):
        return  # what somebody's own recipe loads, only that recipe knows
    networks = {
        network_of(folder)
        for recipe, options in recipes
        for folder in weight_folders(recipe, source, options)
    }
    adapted = layers_of(source.lora, shapes_of(source.lora), networks_of(source))
    if networks.isdisjoint(adapted):
        text = (
            f"{source.lora} adapts {' and '.join(adapted)}, of which nothing is tested "
            "here, so it would change no number; list what it adapts in `components`, "
            "or leave `lora` out."
        )
        raise table.error(text, "lora")
