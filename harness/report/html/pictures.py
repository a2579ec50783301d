"""Pictures of the page, inside it: as many as fit, small enough to send."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from harness.report.html.page import Page
from harness.report.html.pipeline import PipelinePart

MOST_BYTES = 2_000_000
"""Of all pictures together; the page stays below ten million with its scripts."""

EACH_BYTES = 150_000
"""A larger one goes in as JPEG: a picture to look at, not to measure."""


def data_uris(page: Page, folder: Path) -> dict[str, str]:
    """Return the page's pictures by their path: the worst first, until it is full.

    Args:
        page: Names them.
        folder: Of the run, which their paths begin in.

    """
    parts = [section for section in page.sections if isinstance(section, PipelinePart)]
    drawings = [drawing for part in parts for drawing in part.drawings]
    uris: dict[str, str] = {}
    room = MOST_BYTES
    for drawing in sorted(drawings, key=lambda drawing: -drawing.rms):
        path = folder / drawing.path
        if not path.is_file():
            continue
        kind, picture = _small(path.read_bytes())
        if len(picture) <= room:
            room -= len(picture)
            text = base64.b64encode(picture).decode("ascii")
            uris[drawing.path] = f"data:image/{kind};base64,{text}"
    return uris


def _small(png: bytes) -> tuple[str, bytes]:
    if len(png) <= EACH_BYTES:
        return "png", png
    from PIL import Image

    into = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").save(into, "JPEG", quality=85)
    return "jpeg", into.getvalue()
