"""Whether recipes know the networks of what `parity init` is given."""

from __future__ import annotations

from pathlib import Path

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.plugins.capture.saved import captured_in
from harness.plugins.start.init.onnx_files import foreign_onnx_files
from harness.recipes.checkpoint import read_config, read_index
from harness.recipes.diffusion import controlnet, transformer, unet, vae
from harness.recipes.named import UNTESTED
from harness.recipes.text.folder import is_encoder

_TEXT = {"CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"}


def is_known(given: Path) -> bool:
    """Whether recipes make a suite of a folder, or say what is wrong with it.

    Recorded calls need no recipe. A pipeline is not known if it names a class of a
    network that no recipe takes.
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
        index = read_index(source)
    except SuiteError:
        return True
    return all(
        _is_taken(source, name, str(entry[-1]))
        for name, entry in index.items()
        if isinstance(entry, list) and entry and isinstance(entry[-1], str)
    )


def _is_taken(source: Source, name: str, kind: str) -> bool:
    """Whether a recipe takes a part of a pipeline, or the part is no network."""
    if name == transformer.FOLDER:
        return transformer.class_of(source) in transformer.CLASSES
    if name in UNTESTED or not (source.path / name / "config.json").is_file():
        return True
    return kind in {
        "unet": {unet.CLASS},
        "controlnet": {controlnet.CLASS},
        "vae": {*vae.STAGES},
        "text_encoder": _TEXT,
        "text_encoder_2": _TEXT,
        "text_encoder_3": _TEXT,
    }.get(name, set())
