"""Load the tokenizer of a folder, if it has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from harness.core.errors import SuiteError, first_line
from harness.core.received import DamagedError, read_json

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("merges.txt", "spiece.model", "sentencepiece.bpe.model", "spm.model"),
)
"""A folder with one of these files counts as having a tokenizer."""


NO_TOKENIZER: Final = "no file of a tokenizer"

_TABLES: Final = ("tokenizer.json", "vocab.txt", "vocab.json")
_MODELS: Final = (".model", ".spm", ".tiktoken", ".vocab")
"""Files that hold a vocabulary, and endings of other such files."""

_WITHOUT: Final = ("ByT5", "Canine", "Perceiver")
_MERGED: Final = ("CLIP", "GPT2", "Roberta")
"""Prefixes of classes without a vocabulary, and of classes with merges beside it."""


def lacking_vocabulary(home: Path) -> str:
    """Return what the tokenizer in a folder lacks; empty if it has its vocabulary.

    From a configuration alone, transformers makes a tokenizer that knows no word,
    without an error.
    """
    have = [name for name in FILES if (home / name).is_file()]
    tables = [name for name in _TABLES if name in have]
    models = home.is_dir() and any(p.suffix in _MODELS for p in home.iterdir())
    if not have and not models:
        return NO_TOKENIZER
    kind = _class_of(home)
    if tables == ["vocab.json"] and not models and kind.startswith(_MERGED):
        return "" if "merges.txt" in have else "vocab.json and no merges.txt"
    if tables or models or kind.startswith(_WITHOUT):
        return ""
    return f"{' and '.join(have)}, and no vocabulary"


class _Config(msgspec.Struct):
    """The part of a tokenizer's configuration that is read here."""

    tokenizer_class: str | None = None


def _class_of(home: Path) -> str:
    path = home / "tokenizer_config.json"
    try:
        return read_json(path, _Config).tokenizer_class or ""
    except (OSError, DamagedError):  # loading reports the error
        return ""


def load_tokenizer(home: Path, kind: str = "AutoTokenizer") -> Any | None:
    """Return the tokenizer in a folder, or None if the folder has no tokenizer files.

    `kind` is the class of transformers that reads it.

    Raises:
        SuiteError: There are files, and transformers makes no tokenizer from them.

    """
    have = [name for name in FILES if (home / name).is_file()]
    if not have:
        return None
    if lacks := lacking_vocabulary(home):
        msg = f"{home} has {lacks}, so it makes no tokenizer; fetch it again."
        raise SuiteError(msg)
    import transformers

    try:
        return getattr(transformers, kind).from_pretrained(home, local_files_only=True)
    except Exception as error:  # each reader has its own error classes
        msg = (
            f"{home} has {', '.join(have)}, of which transformers makes no tokenizer "
            f"({type(error).__name__}: {first_line(error)}). Fetch it again if it is "
            "damaged; a *.model needs the package sentencepiece to be read, or a "
            "tokenizer.json beside it, as save_pretrained() writes it where that is "
            "installed."
        )
        raise SuiteError(msg) from error
