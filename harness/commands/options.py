"""Code that subcommands share: options, the case that is meant, and output."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from harness.core.errors import ParityError, SuiteError
from harness.core.run_options import OF_RUN as RUN_OPTIONS

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.suite.judge import Judge
    from harness.suite.suite import Suite

_Command = TypeVar("_Command", bound=Callable[..., Any])


class HomePath(click.Path):
    """A path that may begin with ~, because a shell leaves the ~ in --out=~/out."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, with the user's home in place of the ~.

        Raises:
            click.BadParameter: The path is not what the option needs.

        """
        if value:  # an option that is left out may be empty
            value = os.path.expanduser(value)  # noqa: PTH111  # Path drops the ./ of ./x
            if os.fspath(value).startswith("~"):
                self.fail(f"there is no home {value!r}; write ./~ for a folder.")
        return super().convert(value, param, ctx)


SUITE = click.option(
    "--suite",
    default="parity.toml",
    show_default=True,
    type=HomePath(path_type=Path),
    help="The suite, or the folder that it stands in.",
)


def of_run(name: str, text: str = "", **about: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401  # click's own
    """Return an option of `run_options.OF_RUN`, perhaps with another help."""
    option = RUN_OPTIONS[name]
    about = {"metavar": option.metavar, "default": ""} | about
    if not option.metavar:
        about = {"is_flag": True}
    text = text or f"{option.text[0].upper()}{option.text[1:]}."
    names = [f"--{name}", "changes"] if name == "set" else [f"--{name}"]
    return click.option(*names, help=text, **about)


RUNS = of_run("runs", default="reports/runs", show_default=True, type=HomePath())
STORE = of_run("store")
TIER = of_run("tier")
SET = of_run("set", default=(), multiple=True)
MNN_CONVERT = of_run("mnn-convert")


def on_cluster(does: str) -> Callable[[_Command], _Command]:
    """Return the option --on, whose help says what it does there."""
    return of_run("on", f"{does} on a Ray cluster: ray, or ray://HOST:10001.")


def out_path(text: str) -> Callable[[_Command], _Command]:
    """Return the option --out with its help: a path to write, None when left out."""
    return click.option("--out", type=HomePath(path_type=Path), help=text)


def into_folder(default: str, text: str) -> Callable[[_Command], _Command]:
    """Return the option --into with its help: a folder to write to."""
    kind = HomePath(path_type=Path)
    return click.option(
        "--into", default=default, show_default=True, type=kind, help=text
    )


def number(
    name: str, default: int, text: str, *, least: int = 1
) -> Callable[[_Command], _Command]:
    """Return an option with its help: a whole number, of which `least` is the least."""
    kind = click.IntRange(min=least)
    return click.option(name, default=default, show_default=True, type=kind, help=text)


JUDGED_BY = click.option(
    "--suite",
    "suites",
    multiple=True,
    type=HomePath(path_type=Path),
    help="The suite to judge by; that in this folder when left out, if the run is of "
    "it. Repeatable, for a run of several suites.",
)


def loaded_suites(paths: Iterable[Path]) -> list[Suite]:
    """Return the suites that the option --suite of a finished run names.

    Raises:
        ParityError: One of them cannot be read.

    """
    from harness.suite.suite import load_suite

    return [load_suite(path) for path in paths]


def case_ids(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the suite's cases that begin with a word, for the shell's completion."""
    from harness.suite.suite import load_suite

    with suppress(ParityError):  # a message would be written into the user's line
        suite = load_suite(Path(context.params.get("suite") or "parity.toml"))
        return [case.id for case in suite.tested if case.id.startswith(begun)]
    return []


CASE = click.argument("case", shell_complete=case_ids)


def _together(
    *options: Callable[[_Command], _Command],
) -> Callable[[_Command], _Command]:
    """Return one decorator for options that several commands have in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


OF_RUN = _together(SUITE, RUNS, STORE, TIER, SET)
OF_CASE = _together(CASE, SUITE, STORE, TIER, SET)
OF_FINISHED_RUN = _together(JUDGED_BY, RUNS, TIER, SET)


def one_case(suite: Suite, name: str) -> Case:
    """Return the one case of a component that a name means.

    Raises:
        ParityError: The name means no case of a component, or several.

    """
    from harness.core.case import Case

    found = [case for case in suite.select([name]) if isinstance(case, Case)]
    if len(found) != 1:
        meant = ", ".join(case.id for case in found[:3])
        if not meant:
            meant = (
                f"a pipeline. `parity show last {name}` says which role or setting of "
                "the app causes its error"
            )
        msg = f"this takes one case of a component; {name!r} is {meant}."
        raise ParityError(msg)
    return found[0]


def judged_case(
    name: str, path: Path, tier: str, changes: tuple[str, ...]
) -> tuple[Suite, Case, Judge]:
    """Return the suite, the one case that a name means, and its judge.

    Raises:
        ParityError: The suite cannot be read, or the name does not mean one case.

    """
    from harness.core.settings import Settings
    from harness.suite.judge import Judge
    from harness.suite.suite import load_suite

    suite = load_suite(path)
    judge = Judge.of(suite, Settings(tier=tier, changes=changes))
    return suite, judge.asking(one_case(suite, name)), judge


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` in one move, once all is written.

    Raises:
        SuiteError: `path` is there already, or cannot be made.

    """
    if path.exists():
        msg = f"{path} is there already; give another with --out, or remove it."
        raise SuiteError(msg)
    beside = path.absolute().parent
    try:
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=beside, prefix=".parity-") as scratch:
            folder = Path(scratch, path.name)
            folder.mkdir()
            yield folder
            folder.rename(path)
    except BrokenPipeError:  # of the terminal, not of the folder
        raise
    except OSError as error:
        if error.filename and not Path(error.filename).is_relative_to(beside):
            raise  # of what is read meanwhile
        words = error.strerror or error
        msg = f"{path} cannot be made ({words}); give another with --out."
        raise SuiteError(msg) from error


def given_again(*names: str) -> str:
    """Return the given options and arguments of the command, each after a space."""
    context = click.get_current_context()
    words: list[str] = []
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if param.name not in names or source is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[param.name]
        if isinstance(param, click.Option):
            words.append(param.opts[0])
        if not getattr(param, "is_flag", False):
            words += map(str, value) if param.nargs == -1 else [str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def no_such(kind: str, name: str, run: str, there: Iterable[str]) -> str:
    """Return a sentence about a name that a run lacks, with similar names."""
    there = list(there)
    close = get_close_matches(name, there, n=3, cutoff=0.3) or there[:3]
    nearest = ", ".join(close)
    return f"no {kind} of run {run} is meant by {name!r} alone; the nearest: {nearest}."
