"""`parity versions`: one case in many versions of its runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    does it run the file that is converted here? A case in a browser runs in the
    versions of onnxruntime-web that npm has.
    """
    from harness.core.runtime import runtime
    from harness.core.settings import Settings, near
    from harness.core.waiting import awaited
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
    executor = executor_on(on, None)
    targets = targets_of(one, declared)
    there = between(declared, tuple(targets), oldest, newest)
    say = step_line(f"{one.id}: ")
    answers: dict[str, list[VersionResult]] = {}
    settings = Settings(store=store, on=on)
    with engine_of(settings, loaded.limits, executor) as engine:

        def states(some: Sequence[str]) -> Iterator[list[str]]:
            asked = {v: dict(questions(one, declared, targets[v])) for v in some}
            jobs = iter(engine.start(run for v in some for run in asked[v].values()))
            for version in some:
                say(f"{declared.title} {version}")
                answers[version] = []
                for question, run in asked[version].items():
                    record = awaited(next(jobs))
                    if one.device.target:  # its tolerances are those of all versions
                        record = replace(record, variant=one.how)
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


def targets_of(case: Case, declared: Runtime) -> Mapping[str, Target]:
    """Return a target for each version of a case's runtime, the oldest first.

    Raises:
        SpecError: The case is on a target that has one version alone.
        StageError: The package index, or npm, cannot be reached.

    """
    from harness.plugins.versions.environments import available
    from harness.suite.places import kind_of

    target = case.device.target
    if target is None:
        return {one: Target(name=one, version=one) for one in available(declared)}
    kind = kind_of(target)
    if kind is None or kind.versions is None:
        msg = f"{case.id} does not run here; give the case without its target."
        raise SpecError(msg)
    return kind.versions(target)


def between(
    declared: Runtime, there: Sequence[str], oldest: str, newest: str
) -> tuple[str, ...]:
    """Return the versions from `oldest` to `newest`; an empty text is no limit.

    Raises:
        SpecError: A limit is not among the versions, or they are exchanged.

    """
    for option, given in (("--from", oldest), ("--to", newest)):
        if given and given not in there:
            msg = (
                f"{option} {given} is no version of {declared.title} that can be "
                f"installed here; there are {', '.join(there) or 'none'}."
            )
            raise SpecError(msg)
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
    case: Case, declared: Runtime, target: Target
) -> Iterator[tuple[str, Case]]:
    """Yield each question to a version, and the case that answers it.

    `case` runs here in the runtime `declared`, or on a target. `target` is the place
    that has the version.
    """
    from harness.core.environment import version_of
    from harness.core.runtime import is_made

    own = case.device.target
    rest = case.where.removeprefix(f"{AT}{own.name}" if own else "").replace(AT, "-")
    there = replace(
        case,
        device=replace(case.device, target=target),
        where=f"{AT}{target.name}{rest}",
    )
    # A foreign file has no conversion, and some variants are the exported graph itself.
    if own or declared.own_format is None or not is_made(case):
        yield "run there", there
        return
    converted = replace(case.variant, converter=target.version)
    # Both have one id, so the same tolerances judge them.
    yield "converted and run there", replace(there, variant=converted)
    here = version_of(declared)
    if by := case.variant.converter or here:  # else nothing can convert
        yield f"converted by {by}, run there", there
