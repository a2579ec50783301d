"""Make one run of the shards of a run, which several machines ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.core.errors import SuiteError
from harness.core.record import Key
from harness.core.settings import Settings
from harness.core.text import Line, count, few
from harness.core.whole_file import writing
from harness.engine.finished_run import Report, copy_pictures
from harness.engine.run import files_of, path_of
from harness.engine.run_folder import RunFolder
from harness.report.finish import conclude
from harness.report.suites import all_suites_for, as_judged
from harness.suite.suite import Suite


def merge(
    reports: Sequence[Report],
    settings: Settings,
    folder: Callable[[], RunFolder],
    argv: Sequence[str],
    given: Sequence[Suite] = (),
) -> tuple[list[Line], int]:
    """Make one run of all shards of a run, and judge it like a run of one machine.

    The settings have a baseline to compare with, if any. `folder` makes the folder of
    the new run; it is called after all checks, so that runs that cannot be merged leave
    no folder. `given` are the suites that the user names. The result is that of
    `conclude`.

    Raises:
        ParityError: A run is no shard. Or a shard is missing, ended early or is named
            twice. Or two shards ran another suite, commit or version. Or the suite here
            is another one.

    """
    for report in reports:
        if "shard" not in report.about:
            msg = (
                f"run {report.id} is no shard, so it cannot be merged; "
                "`parity run --shard 1/2` runs a shard."
            )
            raise SuiteError(msg)
    suites = all_suites_for(reports[0], given)
    if len(suites) == 1:
        same = reports[0].suites.keys()
        reports = [
            _moved(report, path_of(suites[0]))
            if given or report.suites.keys() == same
            else report
            for report in reports
        ]
    reports = sorted(reports, key=lambda report: report.about["shard"]["number"])
    for complaint in _complaints(reports):
        raise SuiteError(complaint)
    first = reports[0]
    for suite in suites:
        if files_of(suite) != first.suites[path_of(suite)]:
            msg = (
                f"{suite.path} or a file beside it has changed since the shards ran; "
                "check out their commit, or run them again."
            )
            raise SuiteError(msg)
    made = folder()
    for report in reports:
        where = f"shard {report.about['shard']['number']}, {report.cpu}"
        for key, found in report.records.items():
            record = replace(found, node=found.node or where)
            made.record_once(key, lambda record=record: record)  # type: ignore[misc]  # mypy has no type for a lambda's default
            with writing(made.path, "give another with --runs"):
                copy_pictures(found, report.path.parent, made.path)
    return conclude(
        made,
        suites,
        replace(as_judged(first, settings), require=first.required),
        asked={check for report in reports for check in report.ends},
        argv=argv,
        about=_about(reports),
    )


def _moved(report: Report, path: str) -> Report:
    """Return a report of one suite with another path of that suite."""
    if len(report.suites) != 1:
        msg = (
            f"run {report.id} is of {len(report.suites)} suites, and the first of one."
        )
        raise SuiteError(msg)
    shard = report.about["shard"]
    lists = {
        name: [(path, case) for _, case in shard[name]] for name in ("divided", "own")
    }
    return replace(
        report.with_suites(dict.fromkeys(report.suites, path)),
        about={**report.about, "shard": {**shard, **lists}},
    )


def _complaints(reports: Sequence[Report]) -> Iterator[str]:
    """Yield each reason why reports are not the shards of one whole run."""
    yield from _miscounted(reports)
    first, *others = reports
    for report in others:
        for name, one, two in _facts(first, report):
            if one != two:
                yield (
                    f"runs {first.id} and {report.id} differ in {name}, {one} and "
                    f"{two}; merge shards of one suite, commit and environment."
                )
    for report in reports:
        late = [case for key, case in _own(report).items() if key not in report.records]
        if late:
            yield (
                f"shard {_name(report)}, run {report.id}, ended before "
                f"{count(len(late), 'case')} ({few(late)}); run this shard again."
            )
        lacks = report.about["shard"].get("checks", 0) - len(report.ends)
        if not late and lacks > 0:
            yield (
                f"shard {_name(report)}, run {report.id}, ended before "
                f"{count(lacks, 'check')} of its cases; run this shard again."
            )
    own = [key for report in reports for key in _own(report)]
    if sorted(own) != sorted(map(tuple, first.about["shard"]["divided"])):
        yield (
            "the shards divided the cases in different ways, because they knew "
            "different earlier runs; give each machine the same run in reports/runs, "
            "or none, and run them again."
        )


def _miscounted(reports: Sequence[Report]) -> Iterator[str]:
    """Yield a reason for each shard that is missing, named twice, or of another run."""
    of = reports[0].about["shard"]["of"]
    there: dict[int, Report] = {}
    for report in reports:
        shard = report.about["shard"]
        if shard["of"] != of:
            yield (
                f"run {reports[0].id} is shard {_name(reports[0])}, and run "
                f"{report.id} is shard {_name(report)}; merge the shards of one run."
            )
        if other := there.get(shard["number"]):
            yield (
                f"runs {other.id} and {report.id} are both shard {_name(report)}; "
                "name one of them."
            )
        there[shard["number"]] = report
    if missing := [f"{n}/{of}" for n in range(1, of + 1) if n not in there]:
        are = "shard {} is" if len(missing) == 1 else "shards {} are"
        yield f"{are.format(few(missing))} missing; name the runs of all {of} shards."


def _name(report: Report) -> str:
    """Return a shard's number and the number of shards, as in ``3/8``."""
    return "{number}/{of}".format(**report.about["shard"])


def _own(report: Report) -> dict[Key, str]:
    """Return the keys of a shard's cases, each with its id."""
    return {(suite, case): case for suite, case in report.about["shard"]["own"]}


def _facts(one: Report, two: Report) -> Iterator[tuple[str, object, object]]:
    """Yield the name and both values of each fact that shards must share."""
    yield "the suite", sorted(one.suites), sorted(two.suites)
    for path, files in one.suites.items():
        there = two.suites.get(path, {})
        for name in sorted({*files, *there}):
            yield name, files.get(name, "none")[:8], there.get(name, "none")[:8]
    # A hub id means other weights on a machine whose cache is older.
    yield "the checkpoint", _revisions(one), _revisions(two)
    for name in ("commit", "dirty", "python"):
        yield name, one.environment[name], two.environment[name]
    for name in sorted({*one.versions, *two.versions}):
        yield name, one.versions.get(name, "none"), two.versions.get(name, "none")
    for name in ("tier", "changes", "required"):
        yield name, one.about[name], two.about[name]
    cases, others = (len(report.about["shard"]["divided"]) for report in (one, two))
    yield "the number of cases that were divided", cases, others


def _revisions(report: Report) -> str:
    """Return the hub ids that a run tested, with their revisions.

    A folder has no revision, and may have another name on another machine.
    """
    names = [suite.get("checkpoint") or "" for suite in report.about["suites"]]
    return ", ".join(sorted(name for name in names if "/" in name))


def _about(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the facts of the merged run: its machines, and who ran what."""
    machines = {report.machine: report for report in reports}
    return {
        "environment": {
            **reports[0].environment,
            # No other run is of the same machines, so its times are compared with none.
            "id": "+".join(sorted(machines)),
            "cpu": " and ".join(
                dict.fromkeys(machine.cpu for machine in machines.values())
            ),
        },
        "shards": [
            {
                "number": report.about["shard"]["number"],
                "run": report.id,
                "machine": report.machine,
                "cpu": report.cpu,
                "cases": list(_own(report)),
            }
            for report in reports
        ],
    }
