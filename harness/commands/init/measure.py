"""Measure which variants a new checkpoint passes, before they are written.

The suite with every variant is loaded from a temporary folder. Its cases run in the
engine and are judged by the first tolerances, so the first `parity run` finds the
artifacts in the store.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from time import monotonic
from typing import Final

from harness.commands.init.render import (
    Choice,
    every_variant,
    first_runtimes,
    no_variant,
)
from harness.commands.init.write import write_suite
from harness.commands.progress import ProgressLines, moves
from harness.core.case import Case
from harness.core.errors import ParityError
from harness.core.record import CaseRecord
from harness.core.runtime import EXACT
from harness.core.settings import Settings
from harness.core.text import count
from harness.engine.engine import Engine
from harness.engine.run import missing, open_store
from harness.suite.judge import Judge
from harness.suite.suite import load_suite

BUDGET_S: Final = 60.0
"""Time that a measurement may take; then what runs is given up."""

_WIDTH: Final = 90
"""Characters of a reason beside a variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of a checkpoint.

    Attributes:
        choice: Whether each variant is written, and the words beside it.
        lines: Sentences for the user, the last of which sums up.

    """

    choice: Choice
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """How far one case is off: a share of its bound, and the reason if it fails."""

    case: Case
    usage: float
    failure: str


def measure(checkpoint: Path, store: str, *, budget_s: float = BUDGET_S) -> Measured:
    """Run the variants of a checkpoint's suite for a while, and choose among them.

    Raises:
        ParityError: Nothing can be run.
        KeyboardInterrupt: The user stopped it; nothing is left behind.

    """
    start = monotonic()
    progress = ProgressLines(sys.stderr, live=moves(sys.stderr))
    with tempfile.TemporaryDirectory(prefix="parity-init-") as folder:
        write_suite(checkpoint, Path(folder), choice=every_variant())
        suite = load_suite(Path(folder))
        judge = Judge.of(suite, Settings())
        opened = open_store(store)
        engine = Engine(opened, suite.limits, on_progress=progress.tell)
        results: dict[str, _Result] = {}
        try:
            for cases in _rounds(suite.cases):
                left = budget_s - (monotonic() - start)
                if left <= 0:
                    break
                for case, record in _run(engine, cases, left):
                    results[case.id] = _judged(judge, case, record)
        finally:
            engine.close()
            opened.sweep()
            progress.close()
    choice = _choice(suite.cases, results)
    return Measured(
        choice=choice, lines=tuple(_lines(choice, results, monotonic() - start))
    )


def _rounds(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield cases to run together: fp32 first, then one variant of each runtime.

    An unfinished round leaves at most one variant of each runtime without a result.
    Components with small weights come first in each.
    """
    orders = {
        # Calibration runs the network many times.
        one.name: sorted(one.variants, key=lambda v: one.variants[v].calibrated)
        for one in first_runtimes()
    }
    sizes = {case.component.name: _weight(case) for case in cases}
    cheapest = sorted(cases, key=lambda case: sizes[case.component.name])
    for position in range(max(map(len, orders.values()))):
        some = [
            case
            for case in cheapest
            if orders[case.backend].index(case.variant.name) == position
        ]
        if some:
            yield some


def _weight(case: Case) -> int:
    from harness.suite.forecast import stored_weights

    return stored_weights(case.component) or 0


def _run(
    engine: Engine, cases: Sequence[Case], left_s: float
) -> Iterator[tuple[Case, CaseRecord]]:
    """Run cases together; yield those that end in time."""
    runnable = [case for case in cases if not missing(case)]
    records = engine.start(runnable)
    ended, _ = wait(records, timeout=left_s)
    for case, record in zip(runnable, records, strict=True):
        if record in ended and not record.exception():
            yield case, record.result()


def _judged(judge: Judge, case: Case, record: CaseRecord) -> _Result:
    verdicts = [judge.check(record, what) for what in case.whats]
    worst = max(verdicts, key=lambda v: (not v.outcome.passed, v.usage))
    return _Result(
        case=case,
        usage=worst.usage,
        failure="" if worst.outcome.passed else _failure(worst.usage, worst.reason),
    )


def _failure(usage: float, reason: str) -> str:
    if math.isfinite(usage) and usage > 1:
        return f"off by {usage:.2g} times its bound"
    return reason


def _choice(cases: Iterable[Case], results: Mapping[str, _Result]) -> Choice:
    """Choose what agreed in each component whose fp32 was measured in that runtime."""
    components = list(dict.fromkeys(case.component.name for case in cases))
    choice = no_variant()
    for one in first_runtimes():
        measured = [c for c in components if f"{c}/{one.name}/{EXACT}" in results]
        for name, variant in one.variants.items():
            if name == EXACT:
                continue
            found = {
                component: results[id_]
                for component in components
                if (id_ := f"{component}/{one.name}/{name}") in results
            }
            failed = [(c, r) for c, r in found.items() if r.failure]
            lacking = [c for c in measured if c not in found]
            if failed:
                component, worst = max(failed, key=lambda pair: pair[1].usage)
                words = f"{component} {worst.failure}"
                choice[one.name][name] = (False, _one_line(words))
            elif measured and not lacking:
                most = max(result.usage for result in found.values())
                words = f"agreed, at most {most:.0%} of its bound"
                choice[one.name][name] = (True, words)
            else:
                choice[one.name][name] = (False, f"not measured; {variant.risk}")
    return choice


def _one_line(words: str) -> str:
    return shorten(" ".join(words.split()), _WIDTH, placeholder=" …")


def _lines(
    choice: Choice, results: Mapping[str, _Result], took_s: float
) -> Iterator[str]:
    for result in results.values():
        if result.case.variant.name == EXACT and result.failure:
            yield f"{result.case.id} does not agree: {_one_line(result.failure)}."
    names = [
        f"{runtime} {name}"
        for runtime, variants in choice.items()
        for name, (is_written, _) in variants.items()
        if is_written
    ]
    parts = {result.case.component.name for result in results.values()}
    yield (
        f"{count(len(results), 'case')} of {count(len(parts), 'component')} ran in "
        f"{took_s:.0f} s. Written beside {EXACT}: {', '.join(names) or 'nothing'}."
    )


Told = Callable[[str], None]


def measure_into(checkpoint: Path, folder: Path, store: str, tell: Told) -> None:
    """Measure a checkpoint, and write a suite in `folder` again with the result.

    The suite is there already. It stays as it is where the measurement cannot be made
    or is stopped.
    """
    kept = f'The suite tests "{EXACT}", and lists the other variants.'
    try:
        measured = measure(checkpoint, store)
    except KeyboardInterrupt:
        tell(f"stopped: nothing was measured. {kept}")
        return
    except ParityError as error:
        tell(f"nothing was measured: {error} {kept}")
        return
    write_suite(checkpoint, folder, force=True, choice=measured.choice)
    for line in measured.lines:
        tell(line)
