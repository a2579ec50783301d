"""Sessions of deployed files in a browser, as any other session."""

from __future__ import annotations

from contextlib import AbstractContextManager

from harness.plugins.browser.driving import Browser
from harness.plugins.browser.targets import KIND
from harness.runtimes.driving import driven_by
from harness.runtimes.session import Opening, Session


def opened(opening: Opening) -> AbstractContextManager[Session] | None:
    """Return the session of a file in a browser; None for another target.

    Raises:
        StageError: There is no browser or no onnxruntime-web, or it refuses the file.

    """
    device = opening.device
    target = device.target
    if target is None or target.kind != KIND:
        return None
    with driven_by(lambda _, files: Browser(device, target, files)):
        return opening.open()
