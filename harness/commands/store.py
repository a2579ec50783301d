"""`parity store`: list, verify and clear the artifact store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import STORE
from harness.core.outcome import CANNOT_TELL
from harness.core.text import count

if TYPE_CHECKING:
    from harness.core.entry import Entry
    from harness.engine.store import Store


@click.group()
def store() -> None:
    """List the artifact store, verify it by its digests, make it smaller."""


@store.command("list")
@STORE
def store_list(store: str) -> int:
    """List the entries of the store, the last used one last."""
    opened = _open_store(store)
    total = 0
    for entry in sorted(opened.entries(), key=lambda entry: entry.used_s):
        used = datetime.fromtimestamp(entry.used_s).astimezone()
        total += entry.size_bytes
        click.echo(
            f"{entry.kind:<12} {entry.key_digest[:12]} "
            f"{entry.size_bytes / 2**20:>9.1f} MB"
            f"  used {used:%Y-%m-%d %H:%M}  {_about(entry.key)}"
        )
    click.echo(f"{total / 2**20:,.1f} MB in {opened.root}")
    return 0


def _about(key: Any) -> str:  # noqa: ANN401  # the key of any kind
    component = key.get("component", "")
    if isinstance(component, dict):
        component = component["recipe"]["name"]
    return " ".join(str(part) for part in (component, key.get("kind", "")) if part)


@store.command("verify")
@STORE
def store_verify(store: str) -> int:
    """Read every file of the store, and remove damaged entries."""
    opened = _open_store(store)
    findings = list(opened.verify())
    for finding in findings:
        done = "removed" if finding.removed else "still there"
        click.echo(f"✗ {finding.problem} ({done})")
    sound = count(len(list(opened.entries())), "sound entry")
    click.echo(f"{sound} in {opened.root}")
    return 2 if findings else 0


@store.command("prune")
@STORE
@click.option(
    "--max-gb",
    type=click.FloatRange(min=0.0),
    help="Size to stay within; $PARITY_STORE_GB or 20 when left out.",
)
def store_prune(store: str, max_gb: float | None) -> int:
    """Remove what was used longest ago, until the rest is small enough.

    What was used in the last day stays, because a run may need it. Every run ends with
    this.
    """
    from harness.engine.store import limit_bytes

    most = limit_bytes() if max_gb is None else round(max_gb * 2**30)
    return _say(_open_store(store).prune(most))


@store.command("clear")
@STORE
@click.option(
    "--older-than", "days", type=float, help="Only what was not used for DAYS."
)
@click.option("--yes", is_flag=True, help="Also without an age.")
def store_clear(store: str, days: float | None, *, yes: bool) -> int:
    """Remove everything, or what was not used for some days."""
    opened = _open_store(store)
    if days is None and not yes:
        click.echo(f"Everything in {opened.root} would go; --yes says that it may.")
        return CANNOT_TELL
    return _say(opened.clear(older_than_s=(days or 0.0) * 86_400))


def _say(removed: Sequence[Entry]) -> int:
    freed = sum(entry.size_bytes for entry in removed) / 2**20
    click.echo(f"removed {count(len(removed), 'entry')}, {freed:,.1f} MB")
    return 0


def _open_store(root: str) -> Store:
    from harness.engine.run import open_store

    return open_store(root)
