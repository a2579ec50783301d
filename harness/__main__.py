"""The `parity` command, also as ``python -m harness``."""

from __future__ import annotations

import sys

from harness.core.outcome import CANNOT_TELL
from harness.core.stopping import end_by_signals


def main() -> int:
    """Run the command and return its exit code; a signal ends it without a traceback.

    The imports take longer than many commands, so the signals are handled before.
    """
    end_by_signals(CANNOT_TELL, "parity: stopped.")
    from harness.commands.cli import main as command

    code = command()
    end_by_signals(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
