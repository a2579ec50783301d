"""Say what is installed and what really works here. Mends nothing.

A runtime's own list of what it can do is a promise, so each entry is tried: a
model of one operator, in a child process with a time limit, and the result held
against the right one. A crash there is a finding here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.commands.doctor import checks
from harness.commands.doctor.child import Ask, ask_child
from harness.commands.doctor.finding import Finding, Status, exit_code, render
from harness.core.environment import PACKAGES, core_count, installed

__all__ = ["Finding", "Status", "examine", "exit_code", "render"]


def examine(*, store: Path, ask: Ask = ask_child) -> list[Finding]:
    """Look at everything, several things at a time, and return it in reading order.

    Args:
        store: Where artifacts are kept; need not exist yet.
        ask: Runs one question in a child process; tests put their own here.

    """
    have = installed((*PACKAGES, checks.MNN_TELEMETRY))
    tested = checks.tested_versions()
    looks: list[Callable[[], Iterable[Finding]]] = [
        checks.check_python,
        lambda: checks.check_packages(have, tested),
        lambda: checks.check_shadowing(have),
        lambda: checks.check_onnx(ask, have, tested),
        lambda: checks.check_torch(ask, have),
        lambda: checks.check_numba(ask),
        lambda: checks.check_onnxruntime(ask, have),
        lambda: checks.check_mnn(ask, have),
        lambda: checks.check_converter(ask),
        lambda: checks.check_store(store),
    ]
    with ThreadPoolExecutor(max_workers=core_count()) as pool:
        return [
            finding
            for found in pool.map(lambda look: list(look()), looks)
            for finding in found
        ]
