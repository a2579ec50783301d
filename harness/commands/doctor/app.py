"""Whether today's files load in the version of a runtime that an app ships."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.commands.doctor.examine import Finding, Status
from harness.core.case import Case, Target
from harness.core.errors import ParityError, SpecError, StageError
from harness.core.outcome import Outcome
from harness.core.runtime import Runtime, runtime
from harness.engine.artifacts import Artifacts, native_converter
from harness.engine.environments import available, no_version
from harness.engine.run import open_store
from harness.engine.worker_pool import WorkerPool
from harness.runtimes.session import load_backend
from harness.suite.suite import Suite


def check_app(suite: Suite, app: str, store: str) -> Iterator[Finding]:
    """Yield a finding for each case: does its file load in the app's version?

    `app` is a version, or a runtime's name, ``=`` and a version. A file that is not in
    the store is made first.

    Raises:
        ParityError: No runtime of the suite has such a version.

    """
    declared, version = _meant(suite, app)
    cases = [
        case for case in suite.cases if case.backend == declared.name and not case.where
    ]
    target = Target(name=version, version=version)
    worker_pool = WorkerPool.of(suite.limits)
    artifacts = Artifacts(open_store(store), worker_pool, native_converter(None))
    try:
        for case in cases:
            status, says = _loads(artifacts, case, target)
            says = says or f"{declared.title} {version} loads its file"
            yield Finding(check=case.id, status=status, says=says)
    finally:
        worker_pool.close()


def _loads(artifacts: Artifacts, case: Case, target: Target) -> tuple[Status, str]:
    """Return whether a case's file loads on a target, and why not.

    It is a warning where there is no file, or no runtime that could load it.
    """
    outputs = [spec.name for spec in case.component.outputs]
    device = replace(case.device, target=target)
    try:
        file, model = artifacts.deploy(case, artifacts.export(case))
    except ParityError as error:
        return Status.WARN, f"its file cannot be made: {error}"
    backend = load_backend(case.backend)
    try:
        with _quiet(), backend.open_session(file.file(model), device, outputs):
            return Status.OK, ""
    except StageError as error:
        unknown = error.outcome in {Outcome.UNAVAILABLE, Outcome.TIMED_OUT}
        return Status.WARN if unknown else Status.FAIL, str(error)
    except ParityError as error:
        return Status.WARN, str(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what native code prints, which is passed on from the target."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _meant(suite: Suite, app: str) -> tuple[Runtime, str]:
    """Return the runtime and the version that `--app` means.

    Raises:
        ParityError: No runtime of the suite has such a version.

    """
    named, _, version = app.rpartition("=")
    used = dict.fromkeys(case.backend for case in suite.cases if not case.where)
    names = [name for name in used if named in {"", name} and runtime(name).driver]
    if not names:
        msg = (
            f"--app names no runtime of {suite.path}; it takes {_forms(used, version)}."
        )
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
