"""``python -m harness`` is the `parity` command."""

from __future__ import annotations

import sys

from harness.commands.cli import main

sys.exit(main())
