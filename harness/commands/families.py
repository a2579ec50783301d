"""`parity families`: what recorded runs say works, as a table for a README."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.options import RUNS
from harness.core.outcome import CANNOT_TELL


@click.command()
@click.argument("run_names", metavar="[RUN]...", nargs=-1)
@RUNS
@click.option(
    "--readme",
    default="README.md",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The file with the markers that the table stands between.",
)
@click.option("--write", is_flag=True, help="Put the table between the markers.")
@click.option("--check", is_flag=True, help="Say whether the file's table is stale.")
def families(
    *, run_names: tuple[str, ...], runs: str, readme: Path, write: bool, check: bool
) -> int:
    """Print a table of families, exporters and runtimes from RUNs; all if left out.

    Exit codes: 0 written or as it should be, 1 stale, 2 cannot tell.
    """
    from harness.commands.family_results import networks_of
    from harness.commands.family_table import family_table, refreshed
    from harness.core.errors import SuiteError
    from harness.engine.run_folder import finished_runs, load_report

    folder = Path(runs).expanduser()
    names = run_names or finished_runs(folder)
    if not names:
        click.echo(f"parity: no run in {folder}; `parity run` makes one.", err=True)
        return CANNOT_TELL
    networks = networks_of(
        (load_report(folder, name) for name in names),
        lambda words: click.echo(f"parity: {words}", err=True),
    )
    if not networks:
        click.echo("parity: no run is left to make a table from.", err=True)
        return CANNOT_TELL
    table = family_table(networks)
    if not write and not check:
        click.echo(table, nl=False)
        return 0
    try:
        text = readme.read_text(encoding="utf-8")
        fresh = refreshed(text, table, str(readme))
        if write and fresh != text:
            readme.write_text(fresh, encoding="utf-8")
    except OSError as error:
        msg = f"{readme} cannot be read or written ({error.strerror}); see --readme."
        raise SuiteError(msg) from error
    if fresh == text:
        click.echo(f"{readme} is as these runs say")
        return 0
    if write:
        click.echo(f"{readme} is written")
        return 0
    click.echo(f"{readme} is stale; `parity families --write` mends it")
    return 1
