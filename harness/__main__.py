"""``python -m harness`` is the `parity` command."""

from __future__ import annotations

import os
import sys

# Python puts the current folder first, where somebody else's files may lie. The
# installed `parity` does not look for modules there, and neither does this.
if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # as Python
    del sys.path[0]

from harness.commands.cli import main

sys.exit(main())
