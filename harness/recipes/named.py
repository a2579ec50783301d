"""Compare the parts that a checkpoint names with the parts that exist.

``model_index.json`` names a folder for each part of a pipeline. Without this check, a
named part that is missing would be left out silently, or replaced by a drawn one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.core.received import leads_inside
from harness.recipes.checkpoint import SAFETENSORS, read_config, read_index
from harness.recipes.text.folder import is_encoder, sentence_modules
from harness.recipes.tokenizer import NO_TOKENIZER, lacking_vocabulary

UNTESTED = ("feature_extractor", "image_encoder", "safety_checker")
"""Parts that no recipe tests and no tested part reads. Many checkpoints name them and
do not have them."""

_NETWORKS = (
    "controlnet",
    "text_encoder",
    "text_encoder_2",
    "transformer",
    "unet",
    "vae",
)
"""Folders where a recipe finds its network, whether they are named or not."""

_NOTHING = ("", "none", "null")

_ALONE = {
    "text_encoder": ("text_encoder", "tokenizer"),
    "text_encoder_2": ("text_encoder_2", "tokenizer_2"),
    "vae_encoder": ("vae",),
    "vae_decoder": ("vae",),
}
"""Recipes that read only these parts; other recipes may read every part."""


def check_named(source: Source, recipes: Iterable[str] | None = None) -> None:
    """Refuse a checkpoint that names a missing part.

    Only the parts that `recipes` read count, if these are given.

    Raises:
        SuiteError: A named part is missing. The message names each part and what it
            lacks.

    """
    read = None
    if recipes is not None:
        parts = [_ALONE.get(recipe) for recipe in recipes]
        read = {p for part in parts for p in part or ()} if None not in parts else None
    missing = [
        f"{name} ({what})"
        for name in _parts(source)
        if read is None or name in read
        for what in [_lacks(source, name)]
        if what
    ]
    if missing:
        msg = (
            f"{source.path} lacks {', '.join(missing)}: its model_index.json names "
            "this, or weights lie there. Fetch the checkpoint again; of a part that is "
            "meant to be absent, write [null, null] in model_index.json."
        )
        raise SuiteError(msg)
    if source.path.is_dir() and is_encoder(source):
        _check_encoder(source)


def untested(source: Source) -> list[str]:
    """Return the parts that a checkpoint names and that no recipe tests."""
    return [name for name in _named(source) if name in UNTESTED]


def _named(source: Source) -> list[str]:
    """Return the parts that ``model_index.json`` names a class for."""
    index = read_index(source)
    return [
        name
        for name, entry in index.items()
        if isinstance(entry, list)
        and not name.startswith("_")
        and leads_inside(name)  # no pipeline calls a part otherwise
        and len(entry) == 2  # noqa: PLR2004  # a library and a class
        and all(
            isinstance(word, str) and word.lower() not in _NOTHING for word in entry
        )
    ]


def _parts(source: Source) -> Collection[str]:
    """Return the parts that must be complete: named ones, and folders with weights."""
    home = source.path
    held = [name for name in _NETWORKS if any((home / name).glob(f"*{SAFETENSORS}"))]
    named = [name for name in _named(source) if name not in UNTESTED]
    return dict.fromkeys((*named, *held))


def _lacks(source: Source, name: str) -> str:
    """Return what a part lacks; empty if it can be read."""
    home = source.path / name
    if not home.is_dir():
        return "no such folder"
    if name.startswith("tokenizer"):
        return lacking_vocabulary(home)
    needed = "scheduler_config.json" if name == "scheduler" else "config.json"
    return "" if (home / needed).is_file() else f"no {needed}"


def _check_encoder(source: Source) -> None:
    """Refuse a text model that names a missing tokenizer or pooling."""
    path = source.path
    kind = read_config(source, "").get("tokenizer_class")
    lacks = lacking_vocabulary(path)
    if lacks and (kind or lacks != NO_TOKENIZER):
        msg = (
            f"{path} lacks its tokenizer ({lacks}), which a configuration of it names; "
            "fetch it again."
        )
        raise SuiteError(msg)
    for module, folder in sentence_modules(source):
        if module == "Pooling" and not (path / folder / "config.json").is_file():
            msg = (
                f"{path / 'modules.json'} names {folder}, and "
                f"{path / folder / 'config.json'} is not there; fetch it again."
            )
            raise SuiteError(msg)
