"""What inpainting has of its own in ``[pipeline.*]``, and which UNets are refused."""

from __future__ import annotations

from pathlib import Path

from harness.core.case import Source
from harness.core.pipeline import INPAINT
from harness.core.toml_file import Table
from harness.recipes.checkpoint import read_config

_BLENDED, _TOLD = 4, 9
"""Channels of a UNet whose result diffusers' pipeline blends with the picture, and of
one that is told mask and picture: the two that the pipeline knows."""


def picture_at(table: Table, key: str, named: str) -> Path | None:
    """Return the path of a picture that a suite names, or None where it names none.

    Raises:
        SuiteError: There is no such file.

    """
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
    if is_fed(kind, source):
        return
    takes, latents = _channels(source)
    if kind == INPAINT:
        text = (
            f"diffusers inpaints with a UNet of {_TOLD} channels, or with one of "
            f"{_BLENDED} and blends; {source.path / 'unet'} takes {takes}."
        )
        raise table.error(text)
    other = ' It inpaints: kind = "inpaint".' if takes == _TOLD else ""
    text = (
        f"a {kind} pipeline gives the UNet {latents} channels, and "
        f"{source.path / 'unet'} takes {takes}.{other}"
    )
    raise table.error(text)


def is_fed(kind: str, source: Source) -> bool:
    """Whether a kind of pipeline gives the checkpoint's UNet the channels it takes."""
    if not (source.path / "unet" / "config.json").is_file():
        return True
    takes, latents = _channels(source)
    return takes in {_BLENDED, _TOLD} if kind == INPAINT else takes == latents


def _channels(source: Source) -> tuple[int, int]:
    """Return what the UNet takes, and what the latents have."""
    takes = read_config(source, "unet")["in_channels"]
    return takes, read_config(source, "vae")["latent_channels"]
