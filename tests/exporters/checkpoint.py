"""A small seeded Stable Diffusion with its weights written out, for an exporter."""

import json
import shutil
from pathlib import Path

from harness.core.case import Source
from harness.recipes.checkpoint import load_network
from tests.places import DIGITS, EXPORTED

SOURCE = EXPORTED / "sd"
OLDER = "text_model."
"""What transformers up to 4 begins the names of CLIP's weights with."""


def write_checkpoint(folder: Path, *, older_names: bool) -> Path:
    """Write the folder that `SOURCE` describes, with the weights of seed 0.

    With `older_names` the text encoder's weights are named as by the exporter's
    transformers, which takes this one's names for no weights at all, and draws others.
    """
    from safetensors.numpy import load_file, save_file
    from transformers import CLIPTextModel

    shutil.copytree(SOURCE, folder)
    shutil.copytree(DIGITS / "tokenizer", folder / "tokenizer")
    index = folder / "model_index.json"
    parts = json.loads(index.read_text())  # the fixture has no tokenizer, and says so
    parts["tokenizer"] = ["transformers", "CLIPTokenizer"]
    index.write_text(json.dumps(parts))
    source = Source(path=SOURCE, seed=0)
    for name, network in (
        ("unet", "UNet2DConditionModel"),
        ("text_encoder", CLIPTextModel),
        ("vae", "AutoencoderKL"),
    ):
        load_network(source, name, network).save_pretrained(folder / name)
    if older_names:
        weights = folder / "text_encoder" / "model.safetensors"
        named = {OLDER + name: value for name, value in load_file(weights).items()}
        save_file(named, weights, metadata={"format": "pt"})
    return folder
