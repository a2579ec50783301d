"""Measure which variants are safe for a checkpoint, and write that into its suite.

A variant is safe if every component agrees with PyTorch within the first suite's own
tolerances, on all of its samples. A variant that was not measured for every component
stays behind its ``#``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from textwrap import wrap
from typing import Final

from harness.core.case import Case
from harness.core.runtime import EXACT, runtimes
from harness.core.settings import Settings
from harness.core.whole_file import write_whole
from harness.engine.engine import Engine
from harness.engine.run import missing, open_store
from harness.engine.worker_pool import Progress
from harness.suite.judge import Judge
from harness.suite.suite import Suite, load_suite

WITHIN_S: Final = 60.0
"""Seconds after which no further variant is measured."""

_BACKEND = re.compile(r"^\[backend\.(\w+)\]$")
_OFFERED = re.compile(r'^  # ("([\w-]+)",) +# (.*)$')

Name = tuple[str, str]
"""A runtime and one of its variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a suite's variants did on their checkpoint.

    Attributes:
        safe: Variants that agree for every component.
        lossy: For each variant that does not: the first such component, and why.
        failing: The same for runtimes that do not agree in full precision.
        took_s: Duration in seconds.

    """

    safe: tuple[Name, ...]
    lossy: Mapping[Name, str]
    failing: Mapping[Name, str]
    took_s: float


def offered(text: str) -> list[Name]:
    """Return the variants that a first suite has behind a ``#``."""
    found, runtime = [], ""
    for line in text.splitlines():
        if head := _BACKEND.match(line):
            runtime = head[1]
        elif variant := _OFFERED.match(line):
            found.append((runtime, variant[2]))
    return found


def measure(
    path: Path, store: str, on_progress: Callable[[Progress], None]
) -> Measured:
    """Run the variants that a first suite offers, the cheapest component first.

    Args:
        path: The suite that `parity init` wrote.
        store: Folder of artifacts; empty for the default folder.
        on_progress: Receives the progress of the stages, from several threads.

    """
    start = time.monotonic()
    suite = _with_all(path)
    judge = Judge.of(suite, Settings())
    cases: dict[Name, list[Case]] = {}
    for case in suite.cases:
        if not missing(case) and not _calibrates(case):
            cases.setdefault((case.backend, case.how), []).append(case)
    # Full precision has the most samples, so all references are made together.
    exact = [name for name in cases if name[1] == EXACT]
    others = [[name] for name in cases if name[1] != EXACT]
    found: dict[Name, str] = {}
    with Engine(open_store(store), suite.limits, on_progress=on_progress) as engine:
        for names in (exact, *others):
            some = [case for name in names for case in cases[name]]
            records = engine.start(some)
            left_s = WITHIN_S - (time.monotonic() - start)
            if wait(records, max(0.0, left_s)).not_done:
                break
            found |= dict.fromkeys(names, "")
            for case, record in zip(some, records, strict=True):
                checks = (judge.check(record.result(), what) for what in case.whats)
                why = next((one.reason for one in checks if not one.outcome.passed), "")
                name = case.backend, case.how
                if why and not found[name]:
                    found[name] = f"{case.component.name}: {why}"
    lossy = {name: why for name, why in found.items() if why}
    return Measured(
        safe=tuple(
            name for name, why in found.items() if not why and name not in exact
        ),
        lossy={name: why for name, why in lossy.items() if name not in exact},
        failing={name: why for name, why in lossy.items() if name in exact},
        took_s=time.monotonic() - start,
    )


def write_measured(path: Path, found: Measured) -> None:
    """Take the ``#`` of safe variants away, and say why others keep theirs."""
    lines, runtime = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if head := _BACKEND.match(line):
            runtime = head[1]
        variant = _OFFERED.match(line)
        name = (runtime, variant[2]) if variant else ("", "")
        if variant and name in found.safe:
            lines.append(f"  {variant[1]:<25} # measured: it agrees")
        else:
            lines.append(line)
        if name in found.lossy:
            lines += wrap(
                f"measured: {found.lossy[name]}",
                width=84,
                initial_indent="  #   ",
                subsequent_indent="  #   ",
                break_long_words=False,
            )
    write_whole(path, "\n".join(lines) + "\n")


def _with_all(path: Path) -> Suite:
    """Load a first suite as if no variant stood behind a ``#``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(_OFFERED.sub(r"  \1", line) for line in lines)
    # It must lie beside the others, because paths in it are relative.
    with NamedTemporaryFile("w", dir=path.parent, suffix=".toml", delete=False) as file:
        file.write(text)
    try:
        return load_suite(Path(file.name))
    finally:
        Path(file.name).unlink()


def _calibrates(case: Case) -> bool:
    """Whether a case's conversion runs the network on many inputs, which takes long."""
    return runtimes()[case.backend].variants[case.how].calibrated
