"""Whether recipes know the networks of what `parity init` is given."""

from __future__ import annotations

from pathlib import Path

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.plugins.capture.saved import captured_in
from harness.plugins.start.init.onnx_files import foreign_onnx_files
from harness.recipes import describe, discover
from harness.recipes.checkpoint import read_config
from harness.recipes.text.folder import is_encoder


def is_known(given: Path) -> bool:
    """Whether recipes make a suite of a folder, or say what is wrong with it.

    Recorded calls need no recipe. A checkpoint is not known if it is complete and no
    recipe takes one of its networks.
    """
    if captured_in(given):
        return False
    if not given.is_dir() or foreign_onnx_files(given):
        return True
    is_pipeline = (given / "model_index.json").is_file()
    if not is_pipeline and not (given / "config.json").is_file():
        return True  # it is no checkpoint, and the recipes say so
    source = Source(path=given)
    if not is_pipeline:  # a recipe of texts reads token ids
        return is_encoder(source) and "vocab_size" in read_config(source, "")
    try:
        for name in discover(source):
            describe(name, name, source)
    except SuiteError:
        return False
    return True
