"""`parity doctor` and `parity init`: the steps before the first run."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import click

from harness.commands.options import STORE, HomePath, into_folder
from harness.core.errors import SpecError
from harness.core.shown import echo, print_lines


@click.command()
@click.option(
    "--app",
    default="",
    metavar="VERSION",
    help="Say whether today's files load in this version of a runtime, such as 3.4.1 "
    "or mnn=3.4.1, and nothing else.",
)
@STORE
def doctor(app: str, store: str) -> int:
    """Show what is installed, what really works, and how to fix the rest."""
    from harness.core.store_root import local_root
    from harness.plugins.start.doctor.examine import examine, exit_code, render
    from harness.plugins.start.doctor.targets import check_targets
    from harness.suite.suite import FILE

    here = Path()
    if app:
        return _app(here / FILE, app, store)
    findings = examine(store=local_root(store))
    findings += check_targets(here / FILE)
    # pytest also collects a suite in a folder below this one.
    has_suite = any(any(here.glob(f"{below}{FILE}")) for below in ("", "*/", "*/*/"))
    print_lines(render(findings, has_suite=has_suite))
    return exit_code(findings)


def _app(suite: Path, app: str, store: str) -> int:
    """Say whether a suite's files load in a version; return the exit code."""
    from harness.core.outcome import CANNOT_TELL, NO_PARITY, PARITY
    from harness.plugins.start.doctor.app import check_app
    from harness.plugins.start.doctor.examine import Status, finding_lines
    from harness.suite.suite import load_suite

    findings = list(check_app(load_suite(suite), app, store))
    print_lines(finding_lines(findings))
    if all(finding.status is Status.OK for finding in findings):
        echo(f"Every file of this suite loads in {app}.")
        return PARITY
    if all(finding.status is not Status.FAIL for finding in findings):
        echo(f"It is not known whether every file of this suite loads in {app}.")
        return CANNOT_TELL
    echo(f"Not every file of this suite loads in {app}.")
    echo("next   parity versions CASE says which versions read it")
    return NO_PARITY


@click.command()
@click.argument("checkpoint", type=HomePath(path_type=Path))
@click.argument("after", type=HomePath(path_type=Path), required=False)
@into_folder(".", "Folder to write to.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option(
    "--no-measure",
    is_flag=True,
    help="Write fp32 alone; else variants run for a minute, and those that agree are "
    "written.",
)
@click.option(
    "--module",
    "modules",
    multiple=True,
    metavar="NAME=PLACE",
    help="Where the module of recorded calls comes from, such as "
    "net=my_project.nets:make. May be repeated.",
)
@STORE
def init(  # one option each
    checkpoint: Path,
    after: Path | None,
    into: Path,
    *,
    force: bool,
    no_measure: bool,
    modules: tuple[str, ...],
    store: str,
) -> int:
    """Write a commented suite for CHECKPOINT.

    CHECKPOINT is a folder of diffusers or of transformers, a folder of recorded calls,
    or one of foreign ONNX files. Networks that no recipe knows are called once, and
    their calls are recorded. If AFTER is given, both are ONNX files, and AFTER is
    compared with the one before it.
    """
    from harness.plugins.start.init.onnx_files import foreign_onnx_files
    from harness.plugins.start.init.unknown import is_known
    from harness.plugins.start.init.write import write_suite

    named = dict(text.partition("=")[::2] for text in modules)
    if wrong := next((text for text, place in named.items() if not place), ""):
        msg = f"--module: {wrong!r} has no place; write it as in net=my_nets:make."
        raise SpecError(msg)
    if named and is_known(checkpoint):
        msg = (
            f"--module is for recorded calls, and {checkpoint} has none; leave it out."
        )
        raise SpecError(msg)
    if after is None and not is_known(checkpoint):
        from harness.plugins.capture.checkpoints import NotLoadedError
        from harness.plugins.capture.saved import init_suite

        with suppress(NotLoadedError):  # the recipes say what is wrong with it
            for path in init_suite(checkpoint, into, named, force=force):
                echo(f"wrote {path}")
            echo(f"next  parity run --suite {shlex.quote(str(into))}")
            return 0

    def tell(notice: str) -> None:
        echo(f"note  {notice}")

    made = write_suite(checkpoint, into, force=force, on_notice=tell, after=after)
    for path in made:
        echo(f"wrote {path}")
    # Files of others have no variants: each is compared as it is.
    if not (no_measure or after or foreign_onnx_files(checkpoint)):
        from harness.plugins.start.init.measure import measure_into

        measure_into(checkpoint, into, store, lambda line: echo(f"measured  {line}"))
    echo(f"next  pytest -m parity {shlex.quote(str(into))}")
    return 0
