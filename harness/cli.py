"""The `parity` command: the same engine and the same ids as the pytest plugin.

Exit codes: 0 parity, 1 no parity, 2 could not tell (bad input, a stage that failed).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from harness import __version__
from harness.errors import ParityError
from harness.report.lines import Line
from harness.runner import Settings

_COLOURS = {"good": "green", "bad": "red", "quiet": "bright_black"}
_INTERRUPTED = 130
_SUITE = click.option(
    "--suite",
    default="parity.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The suite, or the folder that it stands in.",
)
_RUNS = click.option(
    "--runs",
    default="reports/runs",
    show_default=True,
    help="Where reports are written and looked for.",
)
_STORE = click.option("--store", default="", help="Where artifacts are kept.")
_TIER = click.option("--tier", default="", help="Hold every value to this tier.")
_SET = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="BOUND=VALUE",
    help="Change a bound of every tolerance, as in sqnr_db=30; repeatable.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def cli() -> None:
    """Say whether a deployed model still computes what PyTorch computes, and where
    the two first part.
    """


@cli.command()
@click.argument("cases", nargs=-1)
@_SUITE
@_RUNS
@_STORE
@_TIER
@_SET
@click.option("--jobs", default=0, help="Cases at once; the suite says when left out.")
@click.option("--mnn-convert", default="", help="A native MNNConvert to use.")
@click.option("--list", "only_list", is_flag=True, help="List the cases and stop.")
def run(  # one option each
    cases: tuple[str, ...],
    suite: Path,
    runs: str,
    store: str,
    tier: str,
    changes: tuple[str, ...],
    jobs: int,
    mnn_convert: str,
    *,
    only_list: bool,
) -> int:
    """Run CASES of a suite (all when left out): unet, mnn/int8, unet/*/fp32, …"""
    from harness.parity_session import header
    from harness.progress import ProgressLines
    from harness.report.run_folder import RunFolder
    from harness.runner import Run, conclude
    from harness.suite import load_suite

    loaded = load_suite(suite)
    chosen = loaded.select(cases)
    if only_list:
        for case in chosen:
            click.echo(case.id)
        return 0
    settings = Settings(
        store=store,
        runs=runs,
        tier=tier,
        changes=changes,
        jobs=jobs,
        mnn_convert=mnn_convert,
    )
    progress = ProgressLines(sys.stdout, live=sys.stdout.isatty())
    folder = RunFolder.create(Path(runs).absolute(), datetime.now().astimezone())
    with Run(loaded, settings, folder, progress.tell) as running:
        try:
            click.echo(header(loaded, chosen, running.store))
            running.make(chosen)
            running.start(chosen)
            for case in chosen:
                verdicts = running.verdicts(case)
                progress.line(_case_line(case.id, verdicts))
        finally:
            progress.close()
    whole = len(chosen) == len(loaded.cases)
    lines, code = conclude(
        folder, [loaded], settings, whole=whole, argv=["parity", *sys.argv[1:]]
    )
    click.echo()
    _print(lines)
    return code


def _case_line(case: str, verdicts: Iterable[Any]) -> str:
    bad = [verdict for verdict in verdicts if not verdict.outcome.passed]
    mark = click.style("✗", fg="red") if bad else click.style("✓", fg="green")
    return f" {mark} {case:<34} {bad[0].outcome.value if bad else ''}".rstrip()


@cli.command()
@click.argument("run_name", metavar="[RUN]", default="last")
@click.argument("case", required=False)
@_RUNS
@_TIER
@_SET
@click.option("--sample", default="", help="Layers of this sample, not the worst of all.")
def show(  # one option each
    run_name: str,
    case: str | None,
    runs: str,
    tier: str,
    changes: tuple[str, ...],
    sample: str,
) -> int:
    """Judge RUN again, under other tolerances if asked; nothing is run.

    With a CASE, list its values in order of execution.
    """
    from harness.report.lines import layer_lines, summary
    from harness.report.run_folder import load_report
    from harness.runner import Judge, checks_of, exit_code
    from harness.suite import load_suite

    report = load_report(Path(runs), run_name)
    settings = Settings(runs=runs, tier=tier, changes=changes)
    verdicts = {}
    for path in report.about["suites"]:
        loaded = load_suite(Path(path))
        judge = Judge.of(loaded, settings)
        ids = {each.id for each in loaded.cases}
        verdicts |= {
            name: [judge.check(record, what) for what in checks_of(record)]
            for name, record in report.records.items()
            if name in ids
        }
    if case is None:
        flat = [verdict for checks in verdicts.values() for verdict in checks]
        click.echo(f"run {report.id}")
        _print(summary(report.records, flat, show=report.id))
        return exit_code(flat)
    if case not in verdicts:
        import difflib

        near = difflib.get_close_matches(case, verdicts, n=3, cutoff=0.3)
        msg = f"Run {report.id} has no case {case!r}; the nearest: {', '.join(near)}."
        raise ParityError(msg)
    _print(layer_lines(report.records[case], verdicts[case], sample=sample))
    return exit_code(verdicts[case])


@cli.command()
@_STORE
def doctor(store: str) -> int:
    """Say what is installed, what really works here, and what mends the rest."""
    from harness.doctor import examine, exit_code, render
    from harness.store import default_root

    findings = examine(store=Path(store) if store else default_root())
    for line in render(findings):
        click.echo(line)
    return exit_code(findings)


@cli.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--into",
    default=".",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder to write to.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
def init(checkpoint: Path, into: Path, *, force: bool) -> int:
    """Write a commented suite for a diffusers CHECKPOINT."""
    from harness.init import write_suite

    for path in write_suite(checkpoint, into, force=force):
        click.echo(f"wrote {path}")
    click.echo(f"next  pytest -m parity {into}")
    return 0


@cli.group()
def store() -> None:
    """Look at the artifact store, hold it against its digests, make room in it."""


@store.command("list")
@_STORE
def store_list(store: str) -> int:
    """List what is in the store, newest use last."""
    opened = _open_store(store)
    total = 0
    for entry in sorted(opened.entries(), key=lambda entry: entry.used_s):
        used = datetime.fromtimestamp(entry.used_s).astimezone()
        total += entry.size_bytes
        click.echo(
            f"{entry.kind:<12} {entry.key_digest[:12]} {entry.size_bytes / 2**20:>9.1f} MB"
            f"  used {used:%Y-%m-%d %H:%M}  {_about(entry.key)}"
        )
    click.echo(f"{total / 2**20:,.1f} MB in {opened.root}")
    return 0


def _about(key: Any) -> str:  # noqa: ANN401  # any kind's key
    component = key.get("component", "")
    if isinstance(component, dict):
        component = component["recipe"]["name"]
    return " ".join(str(part) for part in (component, key.get("kind", "")) if part)


@store.command("verify")
@_STORE
def store_verify(store: str) -> int:
    """Read every file; take out what is damaged."""
    opened = _open_store(store)
    findings = list(opened.verify())
    for finding in findings:
        done = "removed" if finding.removed else "still there"
        click.echo(f"✗ {finding.problem} ({done})")
    click.echo(f"{len(list(opened.entries()))} entries are sound in {opened.root}")
    return 2 if findings else 0


@store.command("clear")
@_STORE
@click.option("--older-than", "days", type=float, help="Only what was not used for DAYS.")
@click.option("--max-gb", type=float, help="Only as much as is needed to fit GB.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def store_clear(store: str, days: float | None, max_gb: float | None, *, yes: bool) -> int:
    """Remove entries by age or size, least recently used first; all without either."""
    opened = _open_store(store)
    if days is None and max_gb is None and not yes:
        click.confirm(f"Remove everything in {opened.root}?", abort=True)
    removed = opened.clear(
        older_than_s=None if days is None else days * 86_400,
        max_bytes=None if max_gb is None else round(max_gb * 2**30),
    )
    freed = sum(entry.size_bytes for entry in removed) / 2**20
    click.echo(f"removed {len(removed)} entries, {freed:,.1f} MB")
    return 0


def _open_store(root: str) -> Any:  # noqa: ANN401  # imported late
    from harness.store import Store, default_root

    return Store(root=Path(root) if root else default_root())


def _print(lines: Iterable[Line]) -> None:
    for line in lines:
        click.echo(click.style(line.text, fg=_COLOURS.get(line.tone)))


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; deliberate errors are one sentence."""
    call: Callable[..., Any] = cli.main
    try:
        code = call(args=argv, prog_name="parity", standalone_mode=False)
    except ParityError as error:
        click.echo(f"parity: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("parity: stopped; what was made so far is in the store.", err=True)
        return _INTERRUPTED
    return int(code or 0)
