"""`parity store`: list, verify and clear the artifact store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from harness.commands.options import STORE, SUITE
from harness.core.outcome import CANNOT_TELL, NO_PARITY
from harness.core.shown import echo
from harness.core.text import count

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.entry import Entry
    from harness.engine.environments import VersionEnvironment
    from harness.engine.store import Store


@click.group()
def store() -> None:
    """List the artifact store, verify it by its digests, make it smaller."""


@store.command("list")
@STORE
def store_list(store: str) -> int:
    """List the entries of the store, the last used one last."""
    from harness.engine.environments import environments
    from harness.engine.store import stored_bytes

    opened = _open_store(store)
    entries = sorted(opened.entries(), key=lambda entry: entry.used_s)
    total = stored_bytes(entries)
    for entry in entries:
        echo(f"{_line(entry)}  used {_when(entry.used_s)}  {_about(entry.key)}")
    for made in environments(opened.root):
        total += made.size_bytes
        echo(
            f"{'versions':<12} {'':<12} {made.size_bytes / 2**20:>9.1f} MB"
            f"  used {_when(made.used_s)}  {made.path.name}"
        )
    echo(f"{total / 2**20:,.1f} MB in {opened.root}")
    return 0


def _line(entry: Entry) -> str:
    size = entry.size_bytes / 2**20
    return f"{entry.kind:<12} {entry.key_digest[:12]} {size:>9.1f} MB"


def _when(time_s: float) -> str:
    """Return a time for people to read; a file may have one of any year."""
    try:
        return f"{datetime.fromtimestamp(time_s).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return "at no time"


def _about(key: Mapping[str, object]) -> str:
    """Return the component's name, and the variant, as far as a key has them."""

    def inner(*names: str) -> Iterator[str]:
        value: object = key
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, str):
            yield value

    component = [*inner("component", "name"), *inner("component", "recipe", "name")]
    return " ".join([*component[:1], *inner("variant", "kind")])


@store.command("verify")
@STORE
@click.option(
    "--remake",
    "most",
    type=click.IntRange(min=1),
    help="Make so many entries of the suite anew too, drawn at random, and compare.",
)
@SUITE
def store_verify(store: str, suite: Path, most: int | None) -> int:
    """Read every file of the store, and move damaged entries aside.

    Digests show damage, and not that somebody has changed an entry and its digests.
    With --remake, inputs, graphs and references are made anew from the checkpoint of
    the suite. If one differs, the exit code is 1.
    """
    opened = _open_store(store)
    findings = list(opened.verify())
    for finding in findings:
        done = "removed" if finding.removed else "still there"
        done = f"{done}, kept in {finding.aside}" if finding.aside else done
        echo(f"✗ {finding.problem} ({done})")
    sound = count(len(list(opened.entries())), "sound entry")
    echo(f"{sound} in {opened.root}")
    code = _remade(opened, suite, most) if most else 0
    return CANNOT_TELL if findings else code


def _remade(opened: Store, suite: Path, most: int) -> int:
    """Make entries anew, say how each compares, and return the exit code."""
    from harness.engine.remake import remake
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    compared = differing = 0
    for one in remake(opened, loaded.cases, loaded.limits, most):
        compared += 1
        differing += one.differs
        mark = "✗" if one.differs else "✓"
        name = f"{one.entry.kind} {one.entry.key_digest[:12]}"
        echo(f"{mark} {name} of {one.subject}: {one.words}")
    if not compared:
        echo(f"{opened.root} has no entry of {suite}; run the suite first.")
        return CANNOT_TELL
    echo(f"{count(compared, 'entry')} made anew; {differing} differ")
    return NO_PARITY if differing else 0


@store.command("prune")
@STORE
@click.option(
    "--max-gb",
    type=click.FloatRange(min=0.0),
    help="Size to stay within; $PARITY_STORE_GB or 20 when left out.",
)
def store_prune(store: str, max_gb: float | None) -> int:
    """Remove what was used longest ago, until the rest is small enough.

    What was used in the last day stays, because a run may need it. The environments of
    a runtime's versions count too. Every run ends with this, and leaves those alone. In
    a shared store, what was put there longest ago goes first.
    """
    from harness.engine.environments import environments, prune_environments
    from harness.engine.store import limit_bytes

    if max_gb is not None and not math.isfinite(max_gb):
        msg = f"{max_gb} is no size; give a number of GB, such as 20."
        raise click.BadParameter(msg, param_hint="--max-gb")
    most = limit_bytes() if max_gb is None else round(max_gb * 2**30)
    opened = _open_store(store)
    if opened.shared is not None:
        removed = opened.shared.prune(most)
        freed = sum(entry.size_bytes for entry in removed) / 2**20
        echo(f"removed {count(len(removed), 'entry')}, {freed:,.1f} MB")
        return 0
    gone = prune_environments(opened, most)
    rest_bytes = sum(
        environment.size_bytes for environment in environments(opened.root)
    )
    return _say(opened, opened.prune(max(most - rest_bytes, 0)), gone)


@store.command("push")
@click.argument("url")
@STORE
def store_push(url: str, store: str) -> int:
    """Copy what the store has into the shared store at URL."""
    target = _open_store(_url(url))
    entries = list(_open_store(store).entries())
    for entry in entries:
        target.push(entry)
        echo(_line(entry))
    echo(f"{url} has {count(len(entries), 'entry')} of this store")
    return 0


@store.command("pull")
@click.argument("url")
def store_pull(url: str) -> int:
    """Copy what the shared store at URL has to this machine, for work without it."""
    from harness.engine.shared import shared_store

    # Opening a store makes its folder, and a folder that is not there has no entries.
    shared_store(_url(url), read_only=True).open()
    opened = _open_store(url)
    fetched = []
    for entry in opened.pull():
        fetched.append(entry)
        echo(_line(entry))
    size = sum(entry.size_bytes for entry in fetched) / 2**20
    echo(f"fetched {count(len(fetched), 'entry')}, {size:,.1f} MB")
    return 0


def _url(text: str) -> str:
    from harness.core.errors import StoreError
    from harness.core.store_root import is_url

    if not is_url(text):
        msg = (
            f"{text} is no URL of a shared store; give one such as s3://bucket/prefix."
        )
        raise StoreError(msg)
    return text


@store.command("clear")
@STORE
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(min=1),
    help="Only what was not used for DAYS.",
)
@click.option("--yes", is_flag=True, help="Also without an age.")
def store_clear(store: str, days: int | None, *, yes: bool) -> int:
    """Remove everything, or what was not used for some days."""
    from harness.engine.environments import prune_environments

    opened = _open_store(store)
    if days is None and not yes:
        echo(f"Everything in {opened.root} would go; --yes says that it may.")
        return CANNOT_TELL
    spared_s = (days or 0) * 86_400.0
    gone = prune_environments(opened, -1, spared_s=spared_s)
    return _say(opened, opened.clear(older_than_s=spared_s), gone)


def _say(
    opened: Store, removed: Sequence[Entry], gone: Sequence[VersionEnvironment]
) -> int:
    from harness.engine.store import stored_bytes

    for made in gone:
        size = made.size_bytes / 2**20
        echo(f"removed the environment {made.path.name}, {size:,.1f} MB")
    left = stored_bytes(opened.entries()) / 2**20
    echo(f"removed {count(len(removed), 'entry')}; {left:,.1f} MB are left")
    return 0


def _open_store(root: str) -> Store:
    from harness.engine.run import open_store

    return open_store(root)
