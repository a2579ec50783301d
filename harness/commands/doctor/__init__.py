"""Say what is installed and what really works here. Mends nothing.

A runtime's own list of what it can do is a promise, so each entry is tried: a
model of one operator, in a child process with a time limit, and the result held
against the right one. A crash there is a finding here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from harness.commands.doctor import checks
from harness.commands.doctor.child import ask_child
from harness.commands.doctor.finding import exit_code, render
from harness.core.doctor import Ask, Finding, Status
from harness.core.environment import core_count, installed, packages
from harness.core.runtime import resolve, runtimes

__all__ = ["Finding", "Status", "examine", "exit_code", "render"]


def examine(*, store: Path, ask: Ask = ask_child) -> list[Finding]:
    """Look at everything, several things at a time, and return it in reading order.

    Args:
        store: Where artifacts are kept; need not exist yet.
        ask: Runs one question in a child process; tests put their own here.

    """
    have = installed((*packages(), checks.MNN_TELEMETRY))
    tested = checks.tested_versions()
    looks: list[Callable[[], Iterable[Finding]]] = [
        checks.check_python,
        lambda: checks.check_packages(have, tested),
        lambda: checks.check_onnx(ask, have, tested),
        lambda: checks.check_torch(ask, have),
        lambda: checks.check_numba(ask),
        *(partial(own, ask, have) for own in _of_runtimes()),
        lambda: checks.check_store(store),
    ]
    with ThreadPoolExecutor(max_workers=core_count()) as pool:
        return [
            finding
            for found in pool.map(lambda look: list(look()), looks)
            for finding in found
        ]


def _of_runtimes() -> Iterator[Callable[..., Iterable[Finding]]]:
    """Yield the runtimes' own checks; those of an extra only where it is installed."""
    for one in runtimes().values():
        module = f"{one.package}.doctor"
        if (one.is_first or one.is_installed) and find_spec(module):
            yield resolve(f"{module}:examine")
