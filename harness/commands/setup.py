"""`parity doctor` and `parity init`: the steps before the first run."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.options import STORE
from harness.core.errors import ParityError


@click.command()
@STORE
def doctor(store: str) -> int:
    """Show what is installed, what really works, and how to fix the rest."""
    from harness.commands.doctor.examine import examine, exit_code, render
    from harness.engine.store import default_root
    from harness.suite.suite import FILE

    findings = examine(store=Path(store) if store else default_root())
    here = Path()
    # pytest also collects a suite in a folder below this one.
    has_suite = any(any(here.glob(f"{below}{FILE}")) for below in ("", "*/", "*/*/"))
    for line in render(findings, has_suite=has_suite):
        click.echo(line)
    return exit_code(findings)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--into",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write to.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option(
    "--no-measure",
    is_flag=True,
    help="Only write: do not run variants for a minute to see which are safe.",
)
@STORE
def init(
    checkpoint: Path, into: Path, *, force: bool, no_measure: bool, store: str
) -> int:
    """Write a commented suite for CHECKPOINT, with the variants that are safe for it.

    CHECKPOINT is a diffusers folder, a text model of transformers, or a folder of
    foreign ONNX files.
    """
    from harness.commands.init.write import write_suite

    def tell(notice: str) -> None:
        click.echo(f"note  {notice}")

    for path in write_suite(checkpoint, into, force=force, on_notice=tell):
        click.echo(f"wrote {path}")
    if not no_measure:
        _measure(into, store)
    click.echo(f"next  pytest -m parity {into}")
    return 0


def _measure(folder: Path, store: str) -> None:
    """Measure the variants of the suite that was just written, and say what was found.

    Whatever ends it early, the suite stays as it was written.
    """
    import sys

    from harness.commands.init.measure import WITHIN_S, measure, offered, write_measured
    from harness.commands.progress import ProgressLines, moves
    from harness.suite.suite import FILE, load_suite

    path = folder / FILE
    if not offered(path.read_text(encoding="utf-8")):
        return
    if load_suite(path).source.seed is not None:
        click.echo("note  no variant is measured, because the weights are drawn")
        return
    click.echo(f"measuring which variants are safe, for up to {WITHIN_S:.0f} s")
    progress = ProgressLines(sys.stdout, live=moves(sys.stdout))
    try:
        found = measure(path, store, progress.tell)
    except ParityError as error:
        click.echo(f"note  no variant could be measured: {error}")
        return
    except KeyboardInterrupt:
        click.echo("note  stopped: every variant but fp32 stays behind its #")
        return
    finally:
        progress.close()
    write_measured(path, found)
    for runtime, variant in found.safe:
        click.echo(f"safe  {runtime}/{variant}")
    for word, ones in (("lossy", found.lossy), ("fails", found.failing)):
        for (runtime, variant), why in ones.items():
            click.echo(f"{word} {runtime}/{variant}: {why}")
    click.echo(
        f"measured for {found.took_s:.0f} s; every other variant stays behind its #"
    )
