"""Tokenizers: the one that a folder holds, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import SuiteError, first_line

FILES = (
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json"),
    *("merges.txt", "spiece.model", "sentencepiece.bpe.model", "spm.model"),
)
"""A folder with one of these is said to have a tokenizer."""


def load_tokenizer(home: Path, kind: str = "AutoTokenizer") -> Any | None:
    """Return the tokenizer in a folder, or None where there are no files of one.

    Args:
        home: The folder.
        kind: Class of transformers that reads it.

    Raises:
        SuiteError: There are, and transformers makes no tokenizer of them.

    """
    have = [name for name in FILES if (home / name).is_file()]
    if not have:
        return None
    import transformers

    try:
        return getattr(transformers, kind).from_pretrained(home, local_files_only=True)
    except Exception as error:  # each file's reader has its own
        msg = (
            f"{home} has {', '.join(have)}, of which transformers makes no tokenizer "
            f"({type(error).__name__}: {first_line(error)}). Fetch it again if it is "
            "damaged; a *.model needs the package sentencepiece to be read, or a "
            "tokenizer.json beside it, as save_pretrained() writes it where that is "
            "installed."
        )
        raise SuiteError(msg) from error
