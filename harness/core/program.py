"""Run a program of somebody else's, and say in one sentence how it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.core.errors import SpecError

_LIMIT_S: Final = 600


def run_program(command: Sequence[str], why: str, folder: Path | None = None) -> str:
    """Run a program, and return what it prints.

    Raises:
        SpecError: It fails; the message has its last line.

    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in error.stdout.splitlines() if line.strip()]
        msg = f"{why}: {lines[-1] if lines else f'exit code {error.returncode}'}"
        raise SpecError(msg) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{why}: {error}"
        raise SpecError(msg) from None
    return done.stdout
