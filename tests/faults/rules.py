"""Break one line of the harness in a process of its own, and run that file's tests."""

import contextlib
import importlib
import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.engine.host import Host
from tests.faults.catalogue.fault import Fault, InRule
from tests.places import ROOT

PRELOAD = ("pytest", "hypothesis", "numba", "torch")
LIMIT_S = 120.0
OPTIONS = (
    *("-x", "-q", "--noconftest", "-p", "no:cacheprovider"),
    *("-p", "no:xdist", "-p", "no:benchmark"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # some are imported by now
)


def break_rule(host: Host, fault: Fault) -> tuple[bool, str]:
    """Run the tests of the file that a fault is in, with the fault in it.

    This returns whether a test failed that does not without the fault, and its name.
    """

    def run(function: Callable[..., Any], *arguments: object) -> Any:
        return host.run(function, *arguments, timeout_s=LIMIT_S, label=fault.name).value

    failed = run(failed_with, fault.plant)
    # What fails for a reason of its own, or cannot be set up, tells nothing of a fault.
    file, _, test = failed.rpartition("::")
    if failed and not run(passes, ROOT / file, test):
        return False, f"{test} fails without the fault too"
    return bool(failed), test


def tests_of(plant: InRule) -> list[Path]:
    """Return the files with the tests of a rule.

    Where the rule names none, they are ``test_x.py`` and ``test_x_*.py`` of its module.
    """
    if plant.tests:
        return [ROOT / "tests" / "unit" / plant.tests]
    path = Path(plant.module).relative_to("harness")
    folder = ROOT / "tests" / "unit" / path.parent
    return [
        folder / f"test_{path.name}",
        *sorted(folder.glob(f"test_{path.stem}_*.py")),
    ]


def failed_with(plant: InRule) -> str:
    """Break the rule, run its tests, and return the first that fails; or nothing."""
    path = ROOT / plant.module
    source = path.read_text(encoding="utf-8")
    if source.count(plant.right) != 1:
        msg = f"{plant.module} has {plant.right!r} {source.count(plant.right)} times."
        raise ValueError(msg)
    _import_as(path, source.replace(plant.right, plant.wrong))
    failed = _Failed()
    code = _run(*map(str, tests_of(plant)), plugin=failed)
    return failed.name if code == pytest.ExitCode.TESTS_FAILED else ""


def passes(tests: Path, name: str) -> bool:
    """Run one test of a file, nothing broken."""
    return _run(f"{tests}::{name}") == pytest.ExitCode.OK


def _run(*tests: str, plugin: object = None) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return pytest.main([*OPTIONS, *tests], plugins=[plugin] if plugin else [])


class _Failed:
    """Notes the test that failed."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.name = report.nodeid


def _import_as(path: Path, source: str) -> ModuleType:
    """Import a module of the harness with another text."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)
    parent, _, last = name.rpartition(".")
    # To find a module imports its package, and that may have imported the right text.
    stale = [one for one in sys.modules if f"{one}.".startswith(f"{parent}.")]
    for one in stale if name in sys.modules else ():
        del sys.modules[one]
    sys.modules[name] = module
    exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102  # our own text
    setattr(importlib.import_module(parent), last, module)
    return module
