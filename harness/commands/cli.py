"""The `parity` command: the same engine and the same ids as the pytest plugin.

Exit codes: 0 parity, 1 no parity, 2 could not tell (bad input or a failed stage).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import Any

import click

from harness import __version__
from harness.commands.bench.command import bench
from harness.commands.card import card, verify
from harness.commands.diff import diff
from harness.commands.elsewhere import bundle, judge
from harness.commands.explain.command import explain, repro
from harness.commands.plan.command import plan
from harness.commands.ranges import ranges
from harness.commands.release.command import baseline, gate
from harness.commands.run import run
from harness.commands.setup import doctor, init
from harness.commands.show import merge, nodes, report, show
from harness.commands.store import store
from harness.commands.target import target
from harness.commands.tune.command import tune
from harness.commands.versions import versions
from harness.core.errors import ParityError
from harness.core.outcome import CANNOT_TELL
from harness.core.stopping import stopped_by_signals


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parity")
def cli() -> None:
    """Compare deployed models with PyTorch, and show where they first diverge.

    Exit codes: 0 parity, 1 no parity, 2 could not tell.
    """


for _command in (
    *(run, show, report, merge, nodes, explain, repro, ranges, tune, plan, bench),
    *(bundle, judge),
    *(diff, baseline, gate, card, verify),
    *(doctor, init, store, target, versions),
):
    cli.add_command(_command)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; print expected errors as a sentence."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may lack a tick or an arrow
            stream.reconfigure(errors="replace")
    call: Callable[..., Any] = cli.main
    try:
        with stopped_by_signals():
            code = call(args=argv, prog_name="parity", standalone_mode=False)
    except ParityError as error:
        click.echo(f"parity: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return CANNOT_TELL
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] == "harness":
            raise
        click.echo(
            f"parity: this needs {error.name}, which is not installed; "
            'pip install "parity-harness[make]"',
            err=True,
        )
        return CANNOT_TELL
    except (click.Abort, KeyboardInterrupt):
        click.echo("parity: stopped; what was made so far is in the store.", err=True)
        return CANNOT_TELL
    except SystemExit:  # click ends so where nobody reads the output: `parity … | head`
        code = CANNOT_TELL
    except Exception:  # noqa: BLE001  # a defect is no verdict, and 1 means no parity
        traceback.print_exc()
        text = (
            "parity: this is an error of the harness; report it with the lines above."
        )
        click.echo(text, err=True)
        return CANNOT_TELL
    return int(code or 0)
