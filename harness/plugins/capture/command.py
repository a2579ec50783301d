"""`parity capture`: record the calls of a script's modules from outside."""

from __future__ import annotations

import click


@click.command()
def capture() -> int:
    """Record."""
    return 0
