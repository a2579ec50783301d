"""What inpainting has of its own in ``[pipeline.*]``, and which UNets are refused."""

from __future__ import annotations

from pathlib import Path

from harness.components.checkpoint import read_config
from harness.e2e.plan import INPAINT
from harness.spec import Source
from harness.toml_file import Table

_BLENDED, _TOLD = 4, 9
"""Channels of a UNet whose result diffusers' pipeline blends with the picture, and of
one that is told mask and picture: the two that the pipeline knows."""


def read_picture(table: Table, key: str) -> Path | None:
    """Return the path of a picture that a suite names, or None where it names none.

    Raises:
        SuiteError: There is no such file.

    """
    named = table.take(key, str, "")
    path = (table.file.path.parent / named).resolve() if named else None
    if path is not None and not path.is_file():
        text = f"there is no picture {path}."
        raise table.error(text, key)
    return path


def check_channels(table: Table, kind: str, source: Source) -> None:
    """Refuse a UNet that this kind of pipeline cannot feed.

    Raises:
        SuiteError: It takes other channels than the pipeline gives it.

    """
    if not (source.path / "unet" / "config.json").is_file():
        return
    takes = read_config(source, "unet")["in_channels"]
    latents = read_config(source, "vae")["latent_channels"]
    if kind == INPAINT and takes not in {_BLENDED, _TOLD}:
        text = (
            f"diffusers inpaints with a UNet of {_TOLD} channels, or with one of "
            f"{_BLENDED} and blends; {source.path / 'unet'} takes {takes}."
        )
        raise table.error(text)
    if kind != INPAINT and takes != latents:
        other = ' It inpaints: kind = "inpaint".' if takes == _TOLD else ""
        text = (
            f"a {kind} pipeline gives the UNet {latents} channels, and "
            f"{source.path / 'unet'} takes {takes}.{other}"
        )
        raise table.error(text)
