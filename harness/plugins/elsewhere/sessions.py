"""Sessions of deployed files on targets, as any other session."""

from __future__ import annotations

from contextlib import AbstractContextManager

from harness.plugins.elsewhere.remote import Remote
from harness.plugins.elsewhere.traced import Traced
from harness.runtimes.driving import driven_by
from harness.runtimes.session import Opening, Session


def opened(opening: Opening) -> AbstractContextManager[Session] | None:
    """Return the session of a file on a target: of a trace, or through an agent.

    Raises:
        StageError: The target cannot be reached, the trace is of another file, or the
            runtime refuses the file.

    """
    device = opening.device
    target = device.target
    if target is None or target.kind:
        return None
    if target.trace:
        return Traced(opening.path, opening.backend, device, opening.outputs)
    with driven_by(lambda declared, files: Remote(declared, target, files)):
        return opening.open()
