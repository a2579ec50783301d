"""`parity store`: list, verify and clear the artifact store."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import STORE
from harness.core.outcome import CANNOT_TELL
from harness.core.text import count

if TYPE_CHECKING:
    from harness.engine.store import Store


@click.group()
def store() -> None:
    """List the artifact store, verify it by its digests, or clear it."""


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


@store.command("clear")
@STORE
@click.option(
    "--older-than", "days", type=float, help="Only what was not used for DAYS."
)
@click.option("--max-gb", type=float, help="Only as much as is needed to fit GB.")
@click.option("--yes", is_flag=True, help="Also without an age or a size.")
def store_clear(
    store: str, days: float | None, max_gb: float | None, *, yes: bool
) -> int:
    """Remove entries by age or size, least recently used first. Without either, all."""
    opened = _open_store(store)
    if days is None and max_gb is None and not yes:
        click.echo(f"Everything in {opened.root} would go; --yes says that it may.")
        return CANNOT_TELL
    removed = opened.clear(
        older_than_s=None if days is None else days * 86_400,
        max_bytes=None if max_gb is None else round(max_gb * 2**30),
    )
    freed = sum(entry.size_bytes for entry in removed) / 2**20
    click.echo(f"removed {count(len(removed), 'entry')}, {freed:,.1f} MB")
    return 0


def _open_store(root: str) -> Store:
    from harness.engine.run import open_store

    return open_store(root)
