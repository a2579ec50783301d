"""Whether today's files load in the version of a runtime that an app ships."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.core.case import Case, Device, Target
from harness.core.errors import ParityError, SpecError, StageError
from harness.core.outcome import Outcome
from harness.core.runtime import Runtime, runtime
from harness.engine.artifacts import Artifacts, native_converter
from harness.engine.pythons import python_of
from harness.engine.run import open_store
from harness.engine.worker_pool import WorkerPool
from harness.plugins.start.doctor.examine import Diagnosis, Status
from harness.plugins.versions.environments import available, no_version
from harness.runtimes.session import open_session
from harness.suite.suite import Suite

OPEN_FILE: Final = "harness.plugins.start.doctor.app:open_file"
"""Opens a deployed file and runs nothing (the runtime's own host)."""

_UNKNOWN = {
    Outcome.UNAVAILABLE,
    Outcome.ABSENT,
    Outcome.TIMED_OUT,
    Outcome.FELL_BACK,
}
"""Outcomes that say nothing about the file: an app's build may have a provider that
the wheel lacks."""


def check_app(suite: Suite, app: str, store: str) -> Iterator[Diagnosis]:
    """Yield a finding for each variant of a component: does its file load in the app?

    `app` is a version, or a runtime's name, ``=`` and a version. A file that is not in
    the store is made first.

    Raises:
        ParityError: No runtime of the suite has such a version, or it cannot be
            installed.

    """
    declared, version = _meant(suite, app)
    # Every place and precision runs the same file.
    cases = {
        one.id: one
        for one in (replace(case, where="") for case in suite.cases)
        if one.backend == declared.name
    }
    target = Target(name=version, version=version)
    python_of(declared, version)  # the time limit of a case is not for this
    worker_pool = WorkerPool.of(suite.limits)
    artifacts = Artifacts(open_store(store), worker_pool, native_converter(None))
    try:
        for case in cases.values():
            status, says = _loads(artifacts, case, target)
            says = says or f"{declared.title} {version} loads its file"
            yield Diagnosis(check=case.id, status=status, says=says)
    finally:
        worker_pool.close()


def _loads(artifacts: Artifacts, case: Case, target: Target) -> tuple[Status, str]:
    """Return whether a case's file loads on a target, and why not.

    It is a warning where there is no file, or no runtime that could load it.
    """
    outputs = [spec.name for spec in case.component.outputs]
    case = replace(case, device=replace(case.device, target=target))
    try:
        file, model = artifacts.deploy(case, artifacts.export(case))
    except ParityError as error:
        return Status.WARN, f"its file cannot be made: {error}"
    try:
        artifacts.worker_pool.job(
            case.host,
            OPEN_FILE,
            *(file.file(model), case.backend, case.device, outputs),
            subject=case.id,
            label=case.id,
            failure=Outcome.UNAVAILABLE,
        )
    except StageError as error:
        status = Status.WARN if error.outcome in _UNKNOWN else Status.FAIL
        return status, str(error)
    except ParityError as error:
        return Status.WARN, str(error)
    return Status.OK, ""


def open_file(path: Path, backend: str, device: Device, outputs: Sequence[str]) -> None:
    """Open a deployed file as a session does, and run nothing.

    Raises:
        StageError: The runtime refuses it, or is not what the device asks for.

    """
    with open_session(backend, path, device, outputs):
        pass


def _meant(suite: Suite, app: str) -> tuple[Runtime, str]:
    """Return the runtime and the version that `--app` means.

    A version of no runtime of the suite is refused.
    """
    named, _, version = app.rpartition("=")
    used = dict.fromkeys(case.backend for case in suite.cases)
    able = [name for name in used if runtime(name).driver]
    names = [name for name in able if named in {"", name}]
    if not names:
        forms = _forms(able, version)
        takes = f"it takes {forms}" if forms else f"{', '.join(used)} runs only here"
        msg = f"--app names no runtime of {suite.path}; {takes}."
        raise SpecError(msg)
    there = {name: available(runtime(name)) for name in names}
    found = [name for name in names if version in there[name]]
    if len(found) > 1:
        forms = _forms(found, version)
        msg = f"{version} is a version of several runtimes; give {forms}."
        raise SpecError(msg)
    if not found:
        every = (no_version(runtime(name), version, there[name]) for name in names)
        raise SpecError(" ".join(every))
    return runtime(found[0]), version


def _forms(names: Iterable[str], version: str) -> str:
    return " or ".join(f"--app {name}={version}" for name in names)
