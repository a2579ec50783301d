"""The pipelines that a checkpoint can be drawn with."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.plugins.pipelines.case import FAMILIES, SD, STEP
from harness.recipes.checkpoint import read_index


def family_of(source: Source) -> str:
    """Return the one of `FAMILIES` that a checkpoint belongs to; empty if none fits.

    The longest matching name decides, because Stable Diffusion XL's name begins like
    Stable Diffusion's. A checkpoint that names no class belongs to the first family.
    """
    name = class_of(source)
    found = [family for family in FAMILIES if name.startswith(family)]
    return max(found, key=len, default="" if name else SD)


def class_of(source: Source) -> str:
    """Return the diffusers pipeline class that a checkpoint names; empty if none."""
    return str(read_index(source).get("_class_name") or "")


def kinds_of(source: Source) -> Mapping[str, tuple[str, ...]]:
    """Return the kinds of pipelines that a checkpoint draws with, and their roles."""
    return FAMILIES.get(family_of(source), {})


def fitted_size(height: int, width: int, resolution: int) -> tuple[int, int]:
    """Return the height and width of the hint that is made from a picture, in pixels.

    The shorter side is scaled to `resolution`, then both sides to a multiple of `STEP`.

    Raises:
        SuiteError: A side would be 0.

    >>> fitted_size(480, 640, 512)
    (512, 704)
    """
    scale = resolution / min(height, width)
    rows, columns = (round(side * scale / STEP) * STEP for side in (height, width))
    if min(rows, columns) <= 0:
        msg = (
            f"A picture of {width} × {height} px at resolution {resolution} would "
            f"become {columns} × {rows} px, as sides go to the nearest multiple of "
            f"{STEP}; give a resolution above {STEP // 2}, such as 512."
        )
        raise SuiteError(msg)
    return rows, columns
