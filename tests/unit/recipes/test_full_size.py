"""Fixtures of full size have the published sizes, and their pages say so."""

import json

import diffusers
import pytest
import torch
import transformers

from tests.places import FIXTURES


@pytest.mark.parametrize(
    ("network", "count"),
    [
        ("sd15/unet", 859_520_964),
        ("sd15/controlnet", 361_279_120),
        ("sd15/text_encoder", 123_060_480),
        ("sd15/vae", 83_653_863),
        ("full_size/sdxl_base/unet", 2_567_463_684),
        ("full_size/sdxl_base/text_encoder", 123_060_480),
        ("full_size/sdxl_base/text_encoder_2", 694_659_840),
        ("full_size/sdxl_base/vae", 83_653_863),
        ("full_size/sd3_medium/transformer", 2_028_328_000),
        ("full_size/sd3_medium/vae", 83_819_683),
        ("full_size/flux_width/transformer", 1_310_154_816),
        ("full_size/flux_width/text_encoder_2", 903_387_136),
        ("full_size/flux_width/vae", 2_458_899),
        ("full_size/pixart_xl/transformer", 611_349_152),
        ("full_size/dit_xl/transformer", 749_826_464),
        ("full_size/sd15_inpaint/unet", 859_535_364),
        ("full_size/sdxl_controlnet/controlnet", 1_251_014_160),
    ],
)
def test_a_full_size_fixture_has_the_published_size(network, count):
    home = FIXTURES / network
    config = json.loads((home / "config.json").read_text())
    with torch.device("meta"):  # shapes without memory
        if "text_encoder" in home.name:
            cls = getattr(transformers, config["architectures"][0])
            made = cls(cls.config_class.from_pretrained(home))
        else:
            cls = getattr(diffusers, config["_class_name"])
            made = cls.from_config(cls.load_config(home))

    assert sum(weight.numel() for weight in made.parameters()) == count
    page = home.parents[1] if network.startswith("full_size") else home.parent
    for folder in {page, FIXTURES / network.rpartition("/")[0]}:
        readme = folder / "README.md"
        if readme.is_file():
            assert f"{count:,}" in readme.read_text(encoding="utf-8")
