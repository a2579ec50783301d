"""A suite for a model and its tokenizer in memory, for example in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.commands.init.write import refuse_written, write_suite
from harness.core.errors import SuiteError
from harness.suite.suite import Suite, load_suite

CHECKPOINT = "checkpoint"


def suite_of_pair(
    model: Any,  # noqa: ANN401  # of transformers, which is not imported here
    tokenizer: Any,  # noqa: ANN401  # idem
    folder: Path,
    *,
    force: bool = False,
) -> Suite:
    """Save a text model and its tokenizer, and write a suite for them.

        suite = suite_of_pair(model, tokenizer, Path("my-suite"))

    `folder` then holds ``checkpoint/``, as `save_pretrained` writes it, and the files
    that ``parity init`` writes. ``parity run --suite my-suite`` runs the suite.

    Args:
        model: A text encoder of transformers, with or without a head.
        tokenizer: The model's tokenizer, or None. Without one, ids are drawn at random.
        folder: The folder to write to.
        force: Whether to write over existing files.

    Raises:
        SuiteError: The model or the tokenizer is of another kind, or the folder cannot
            be used.

    """
    named = {"model": model, "tokenizer": tokenizer}
    for name, thing in named.items():
        if thing is not None and not hasattr(thing, "save_pretrained"):
            msg = (
                f"{name} must be one of transformers, with save_pretrained(); got "
                f"{type(thing).__name__}. The order is model, tokenizer."
            )
            raise SuiteError(msg)
    checkpoint = folder / CHECKPOINT
    if checkpoint.exists() and not force:
        msg = f"{checkpoint} is there already; give force=True, or another folder."
        raise SuiteError(msg)
    refuse_written(folder, force=force)
    for thing in filter(None, named.values()):
        thing.save_pretrained(checkpoint)
    write_suite(checkpoint, folder, force=force)
    return load_suite(folder)
