"""`parity bundle` and `parity judge`: run a file where the harness cannot be."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands.options import (
    CASE,
    OF_RUN,
    STORE,
    SUITE,
    HomePath,
    case_ids,
    new_folder,
    one_case,
    out_path,
)
from harness.core.errors import SuiteError
from harness.core.shown import echo
from harness.core.text import few
from harness.suite.places import kind_of

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.suite.suite import Suite


@click.command()
@CASE
@out_path("Folder to write; bundle-CASE here when left out.")
@click.option(
    "--layers",
    type=click.Choice(["all", "stats"]),
    default="all",
    show_default=True,
    help="What the trace keeps of layers: every value, or 0.5 KiB of each.",
)
@SUITE
@STORE
def bundle(*, case: str, out: Path | None, layers: str, suite: Path, store: str) -> int:
    """Write a folder that runs CASE on any machine with Python and the runtime.

    The folder of a case in a browser is a page, which runs in any browser.
    """
    from harness.engine.engine import Engine
    from harness.engine.run import open_store
    from harness.plugins.elsewhere.bundle import bundled
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    one = one_case(loaded, case)
    kind = kind_of(one.device.target)
    has_own = kind is not None and kind.bundle is not None
    if not has_own:
        one = replace(one, device=replace(one.device, target=None))
    elif layers != "all":
        msg = (
            f"--layers {layers} is for a bundle that Python runs, and {one.id} runs "
            "without; leave it out."
        )
        raise click.BadParameter(msg)
    into = out or Path(f"bundle-{one.id.replace('/', '-')}")
    with new_folder(into) as folder, Engine(open_store(store), loaded.limits) as engine:
        bundled(engine, one, folder, layers)
    size = sum(file.stat().st_size for file in into.rglob("*") if file.is_file())
    echo(f"wrote {into} ({size / 2**20:.1f} MB)")
    if has_own:
        echo("next  do what README.md in it says")
    else:
        echo("next  copy it to the device, and run `python run.py` in it there")
    return 0


@click.command()
@click.argument("traces", nargs=-1, required=True, type=HomePath(path_type=Path))
@click.option("--name", default="", help="Name of the device; one trace alone.")
@click.option(
    "--case",
    "of",
    default="",
    shell_complete=case_ids,
    help="The case whose values a dump of your own program has.",
)
@click.option(
    "--names",
    type=HomePath(path_type=Path),
    help="TOML file: a name in the dump = the name of the output or value.",
)
@OF_RUN
def judge(
    *,
    traces: tuple[Path, ...],
    name: str,
    of: str,
    names: Path | None,
    suite: Path,
    **words: Any,  # the settings that are plain text
) -> int:
    """Judge TRACES of bundles, or dumps of your own program, as runs of their cases.

    A dump is a folder of .npy files or an .npz file. It has an array for each output,
    and for any values of layers; subfolders, or names before a slash, are samples.

    Exit codes: as `parity run`.
    """
    from harness.commands.run import run_cases
    from harness.core.settings import Settings
    from harness.suite.suite import load_suite

    loaded = load_suite(suite)
    if name and len(traces) > 1:
        msg = "--name is for one trace; each of several has the name of its device."
        raise click.BadParameter(msg)
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [
            traced_case(
                loaded,
                trace,
                name=name,
                of=of,
                names=names,
                scratch=Path(scratch, f"{at}.npz"),
            )
            for at, trace in enumerate(traces)
        ]
        taken = [case.id for case in chosen]
        if twice := next((one for one in taken if taken.count(one) > 1), ""):
            msg = f"two traces are {twice}; give run.py another --name on one device."
            raise SuiteError(msg)
        return run_cases(loaded, chosen, Settings(**words), None)


def traced_case(
    suite: Suite,
    path: Path,
    *,
    name: str,
    of: str,
    names: Path | None,
    scratch: Path,
) -> Case:
    """Return the case of a trace or a dump, which takes its values from there.

    Raises:
        SuiteError: It cannot be read, or is of no case or no sample of the suite.

    """
    from harness.core.case import AT, Target
    from harness.core.errors import SpecError
    from harness.plugins.elsewhere.dump import as_trace, is_trace
    from harness.plugins.elsewhere.form import LAYERS, OUTPUTS
    from harness.plugins.elsewhere.traced import about, most_output_bytes, size_of
    from harness.suite.tables import check_target

    given = path
    if not path.exists():
        msg = f"there is no {path}; a bundle writes a trace where it is run."
        raise SuiteError(msg)
    if is_trace(path):
        told = about(path)
        one = _of_trace(suite, path, told.case)
    elif not of:
        msg = (
            f"{path} is a dump of your own program, because it has no facts of a "
            "bundle; say which case it is with --case, as in --case unet/mnn/fp32."
        )
        raise SuiteError(msg)
    else:
        one = one_case(suite, of)
        told = as_trace(path, one, names, scratch)
        path = scratch
    has = {value.sample for value in told.values}
    layers = {value.sample for value in told.values if value.kind == LAYERS}
    samples = tuple(
        replace(sample, layers=sample.layers and sample.id in layers)
        for sample in one.samples
        if sample.id in has
    )
    unknown = has - {sample.id for sample in one.samples}
    # An array of a dump under a wrong name would not be judged, and might be wrong. A
    # bundle's trace may have samples that the suite has no longer.
    if not samples or (unknown and path != given):
        remedy = (
            "make the bundle again"
            if path == given
            else "call its folders like the samples that it has"
        )
        msg = (
            f"{given} has the samples {sorted(has)}, and {one.id} has "
            f"{[sample.id for sample in one.samples]}; {remedy}."
        )
        raise SuiteError(msg)
    if lacking := [sample.id for sample in one.samples if sample.id not in has]:
        echo(
            f"{given} has no values of {few(lacking)}, so {one.id} is judged on the "
            "other samples."
        )
    for value in told.values:
        most = most_output_bytes(one, value.sample)
        if value.kind == OUTPUTS and size_of(value) > most:
            msg = (
                f"{given} has the output {value.name!r} in the shape "
                f"{list(value.shape)} for {value.sample}, which no output of {one.id} "
                "has; run the bundle again."
            )
            raise SuiteError(msg)
    try:
        target = Target(name=name or told.name, trace=str(path.absolute()))
        check_target(target)
    except SpecError as error:
        raise SuiteError(str(error)) from None
    # The id of a precision here, fp32@low, becomes that of a target's: fp32@phone-low.
    suffix = f"-{one.device.precision}"
    has_suffix = one.where.replace(AT, "-").endswith(suffix)
    return replace(
        one,
        device=replace(one.device, target=target),
        samples=samples,
        where=f"{AT}{target.name}{suffix if has_suffix else ''}",
    )


def _of_trace(suite: Suite, path: Path, name: str) -> Case:
    for case in suite.cases:
        if case.id == name:
            return case
    msg = (
        f"{path} is a trace of {name}, and {suite.path} has no such case; give its own "
        "suite with --suite."
    )
    raise SuiteError(msg)
