"""`parity explain`: where a case parts, why, and what mends it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.commands.words import SET, STORE, SUITE, TIER, print_lines
from harness.errors import ParityError


@click.command()
@click.argument("case")
@SUITE
@STORE
@TIER
@SET
def explain(
    *, case: str, suite: Path, store: str, tier: str, changes: tuple[str, ...]
) -> int:
    """Say where CASE parts and why, and which knob mends it, by turning each."""
    from harness.explain import explain as find
    from harness.explained import explanation_lines
    from harness.pipeline import Engine
    from harness.progress import moves
    from harness.runner import Judge, Settings, open_store
    from harness.spec import Case as Component
    from harness.suite import load_suite

    loaded = load_suite(suite)
    chosen = [each for each in loaded.select([case]) if isinstance(each, Component)]
    if len(chosen) != 1:
        meant = ", ".join(each.id for each in chosen[:3]) or "a pipeline"
        msg = f"explain takes one case of a component; {case!r} is {meant}."
        raise ParityError(msg)
    judge = Judge.of(loaded, Settings(tier=tier, changes=changes))
    (one,) = chosen
    live = moves(sys.stderr)

    def say(text: str) -> None:
        if live:
            click.echo(f"\x1b[2K  {one.id}: {text[:60]}\r", err=True, nl=False)

    with Engine(open_store(store), timeout_s=loaded.limits.timeout_s) as engine:
        found = find(engine, judge, one, say)
    if live:
        click.echo("\x1b[2K", err=True, nl=False)
    print_lines(explanation_lines(found))
    return 0
