"""`parity versions`: one case in many versions of its runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harness.commands.options import OF_CASE, judged_case, on_cluster
from harness.commands.progress import step_line
from harness.core.case import AT, Target
from harness.core.errors import SpecError
from harness.core.shown import echo, print_lines
from harness.core.whole_file import writing

if TYPE_CHECKING:
    from harness.core.case import Case
    from harness.core.runtime import Runtime

_FIRST: Final = 10
"""Number of versions that are tried before changes are bisected."""


@click.command()
@OF_CASE
@click.option("--from", "oldest", default="", help="The oldest version to try.")
@click.option("--to", "newest", default="", help="The newest version to try.")
@click.option(
    "--every",
    is_flag=True,
    help=f"Try each version; else {_FIRST} of them, and those around a change.",
)
@on_cluster("Try versions")
def versions(  # one option each
    *,
    case: str,
    suite: Path,
    store: str,
    tier: str,
    changes: tuple[str, ...],
    oldest: str,
    newest: str,
    every: bool,
    on: str,
) -> int:
    """Run CASE in versions of its runtime, and say in which one the result changed.

    The harness makes a Python environment for each version. A runtime with a converter
    of its own answers two questions: does the version convert and run the network, and
    does it run the file that is converted here?
    """
    from harness.core.runtime import runtime
    from harness.core.settings import Settings, near
    from harness.core.waiting import awaited
    from harness.engine.environments import available
    from harness.engine.executors import executor_on
    from harness.engine.run import engine_of
    from harness.plugins.versions.result import (
        VersionResult,
        bisected,
        code_of,
        result_of,
        version_lines,
        write_versions,
    )

    loaded, one, judge = judged_case(case, suite, tier, changes)
    declared = runtime(one.backend)
    if not declared.driver:
        msg = f"{declared.title} runs only here; give a case of another runtime."
        raise SpecError(msg)
    if one.device.target:
        msg = f"{one.id} does not run here; give the case without its target."
        raise SpecError(msg)
    executor = executor_on(on, None)
    there = between(declared, available(declared), oldest, newest)
    say = step_line(f"{one.id}: ")
    answers: dict[str, list[VersionResult]] = {}
    settings = Settings(store=store, on=on)
    with engine_of(settings, loaded.limits, executor) as engine:

        def states(some: Sequence[str]) -> Iterator[list[str]]:
            asked = {v: dict(questions(one, declared, v)) for v in some}
            jobs = iter(engine.start(run for v in some for run in asked[v].values()))
            for version in some:
                say(f"{declared.title} {version}")
                answers[version] = []
                for question, run in asked[version].items():
                    record = awaited(next(jobs))
                    verdicts = [judge.check(record, what) for what in run.whats]
                    answer = result_of(version, question, record, verdicts)
                    answers[version].append(answer)
                yield [answer.state for answer in answers[version]]

        tried = bisected(there, states, len(there) if every else _FIRST)
    say("")
    found = [answer for version in tried for answer in answers[version]]
    title = f"{one.id} in {len(tried)} of {len(there)} versions of {declared.title}"
    echo(title)
    echo()
    print_lines(version_lines(found))
    path = Path("reports", f"versions-{one.id.replace('/', '-')}.html")
    with writing(path, "run it in another folder"):
        write_versions(title, found, path)
    echo()
    echo(f"page  {near(path)}")
    return code_of(found)


def between(
    declared: Runtime, there: Sequence[str], oldest: str, newest: str
) -> tuple[str, ...]:
    """Return the versions from `oldest` to `newest`; an empty text is no limit.

    Raises:
        SpecError: A limit is not among the versions, or they are exchanged.

    """
    from harness.engine.environments import no_version

    for given in filter(None, (oldest, newest)):
        if given not in there:
            raise SpecError(no_version(declared, given, there))
    if not there:
        msg = (
            f"no version of {declared.title} can be had for this Python; look at what "
            "the package index says, or take another Python."
        )
        raise SpecError(msg)
    first = there.index(oldest) if oldest else 0
    last = there.index(newest) if newest else len(there) - 1
    if first > last:
        msg = f"--from {oldest} is newer than --to {newest}; exchange them."
        raise SpecError(msg)
    return tuple(there[first : last + 1])


def questions(
    case: Case, declared: Runtime, version: str
) -> Iterator[tuple[str, Case]]:
    """Yield each question to a version, and the case that answers it.

    `case` runs here, in the runtime `declared`.
    """
    from harness.core.environment import version_of
    from harness.core.runtime import is_made

    target = Target(name=version, version=version)
    there = replace(
        case,
        device=replace(case.device, target=target),
        where=f"{AT}{version}{case.where.replace(AT, '-')}",
    )
    # A foreign file has no conversion, and some variants are the exported graph itself.
    if declared.own_format is None or not is_made(case):
        yield "run there", there
        return
    own = replace(case.variant, converter=version)
    # Both have one id, so the same tolerances judge them.
    yield "converted and run there", replace(there, variant=own)
    here = version_of(declared)
    if by := case.variant.converter or here:  # else nothing can convert
        yield f"converted by {by}, run there", there
