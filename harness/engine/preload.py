"""What each host imports once, before it forks a process per job."""

from __future__ import annotations

from typing import Final

from harness.core import plugins
from harness.core.case import AT
from harness.core.runtime import runtime
from harness.suite.forecast import CONVERT

# A job is a fork, so the next job does not have what it imports. What most jobs import
# is imported here: networks of diffusers (by a plug-in) and of transformers,
# and what the exporter needs.
_PYTORCH: Final = (
    "harness.runtimes.pytorch.prepare",
    "transformers",
    "onnxscript",
    # The comparison is not compiled here: an export does not wait for it. The runtime's
    # host compiles it meanwhile, and a job loads it from numba's cache.
    "harness.measure.kernel",
)
_CONVERTS: Final = ("harness.runtimes.graph.deploy",)
_COMPARES: Final = "harness.measure.precompile"


def preload(host: str) -> tuple[str, ...]:
    """Return the modules that a host imports once, before it forks a process per job.

    Args:
        host: ``torch``, a runtime's name, that and ``@`` and a target's name, or
            ``convert-`` and a runtime's name.

    """
    if host == "torch":
        return (*_PYTORCH, *plugins.declared("preload"))
    if host.startswith(CONVERT):
        return (*_CONVERTS, *runtime(host.removeprefix(CONVERT)).preload)
    name, at, _ = host.partition(AT)
    declared = runtime(name)
    # A runtime that runs on a target is not used here, and may not be installed here.
    # What it would print here about this processor would be misread as the target's.
    driver = () if at or not declared.driver else (declared.driver,)
    session = f"{declared.package}.session"
    return (*driver, session, "harness.runtimes.candidate.candidate", _COMPARES)
