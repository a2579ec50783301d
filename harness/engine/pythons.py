"""The Python that has a version of a runtime: a plug-in installs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.plugins import first_answer
from harness.core.runtime import Runtime


def python_of(declared: Runtime, version: str) -> Path:
    """Return the Python that has a version of a runtime.

    Raises:
        StageError: There is no such version for this Python (`Outcome.LOAD`), or it
            cannot be installed or imported (`Outcome.ABSENT`).

    """
    msg = (
        f"{declared.title} {version} needs a plug-in that installs versions of a "
        "runtime, and none is installed; leave the version out."
    )
    lacking = StageError(msg, outcome=Outcome.ABSENT)
    python: Path = first_answer("pythons", declared, version, lacking=lacking)
    return python


def in_order(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions, the oldest first.

    What is no version comes first: a target may say anything.

    >>> in_order(["3.10.0", "3.9.1"])
    ('3.9.1', '3.10.0')
    """
    least = Version("0.dev0")
    return tuple(
        sorted(versions, key=lambda one: Version(one) if is_version(one) else least)
    )


def is_version(text: str) -> bool:
    """Whether a text is a version, and so no path and no option of pip."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return text == text.strip()
