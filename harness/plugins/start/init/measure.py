"""Measure which variants a new checkpoint passes, before they are written.

The suite with every variant is loaded from a temporary folder. Its cases run in the
engine and are judged by the first tolerances, so the first `parity run` finds the
artifacts in the store.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from harness.commands.progress import shown_engine
from harness.core.case import Case
from harness.core.errors import ParityError
from harness.core.record import CaseRecord
from harness.core.runtime import EXACT
from harness.core.settings import Settings
from harness.core.text import count
from harness.core.waiting import as_they_end
from harness.engine.engine import Engine
from harness.engine.run import missing
from harness.plugins.start.init.render import (
    Choice,
    first_runtimes,
    no_variant,
)
from harness.plugins.start.init.write import read_suite, write_suite
from harness.suite.forecast import stored_weights
from harness.suite.judge import Judge
from harness.suite.suite import load_suite

BUDGET_S: Final = 60.0
"""Time that a measurement may take; then what runs is given up."""

SAFE: Final = 0.8
"""Largest share of its bound with which a variant is written.

Another processor may have a larger error, by up to 1.22 times in rms (measured; see
`harness.plugins.release.thresholds`), and the suite should be green there too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """How far one case is off: a share of its bound, and the reason if it fails."""

    case: Case
    usage: float
    failure: str


def measure(
    checkpoint: Path, store: str, *, budget_s: float = BUDGET_S
) -> tuple[Choice, list[str]]:
    """Run the variants of a checkpoint's suite for a while, and choose among them.

    The sentences are for the user; the last one sums up.

    Raises:
        ParityError: Nothing can be run.
        KeyboardInterrupt: The user stopped it; nothing is left behind.

    """
    start = monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-init-") as folder:
        write_suite(checkpoint, Path(folder), choice=no_variant(is_run=True))
        suite = load_suite(Path(folder))
        judge = Judge.of(suite, Settings())
        results: dict[str, _Result] = {}
        with shown_engine(suite, store) as engine:
            left = budget_s - (monotonic() - start)
            for case, record in _run(engine, _cheapest_first(suite.cases), left):
                results[case.id] = _judged(judge, case, record)
    choice = _choice(suite.cases, results)
    return choice, list(_lines(choice, results, monotonic() - start))


def _cheapest_first(cases: Sequence[Case]) -> list[Case]:
    """Return all cases of the component with the smallest weights, then the next's."""
    orders = {
        # Calibration runs the network many times.
        runtime.name: sorted(
            runtime.variants, key=lambda v: runtime.variants[v].calibrated
        )
        for runtime in first_runtimes()
    }
    names = list(dict.fromkeys(case.component.name for case in cases))
    sizes = {case.component.name: stored_weights(case.component) or 0 for case in cases}
    return sorted(
        cases,
        key=lambda case: (
            sizes[case.component.name],
            names.index(case.component.name),
            orders[case.backend].index(case.variant.name),
        ),
    )


def _run(
    engine: Engine, cases: Sequence[Case], left_s: float
) -> Iterator[tuple[Case, CaseRecord]]:
    """Run cases together; yield those that end in time."""
    runnable = [case for case in cases if not missing(case)]
    records = engine.start(runnable)
    ended = set(as_they_end(records, left_s))
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
        return f"off by {float(f'{usage:.3g}'):,g} times its bound"
    return reason


def _choice(cases: Iterable[Case], results: Mapping[str, _Result]) -> Choice:
    """Choose what agreed in each component where it was measured.

    A component where a chosen variant was not measured does not run it.
    """
    components = list(dict.fromkeys(case.component.name for case in cases))
    choice = no_variant()
    unseen: dict[str, set[str]] = {}
    for one in first_runtimes():
        for name in choice.variants[one.name]:
            found = {
                component: results[id_]
                for component in components
                if (id_ := f"{component}/{one.name}/{name}") in results
            }
            if not found:
                words = f"not measured; {one.variants[name].risk}"
                choice.variants[one.name][name] = (False, words)
                continue
            component = max(
                found, key=lambda c: (bool(found[c].failure), found[c].usage)
            )
            worst = found[component]
            is_safe = not worst.failure and worst.usage <= SAFE
            if is_safe:
                for other in components:
                    if other not in found:
                        unseen.setdefault(other, set()).add(name)
            choice.variants[one.name][name] = (is_safe, _words(component, worst))
    run = dict.fromkeys(
        name
        for variants in choice.variants.values()
        for name, (is_run, _) in variants.items()
        if is_run
    )
    for component, lacking in unseen.items():
        kept = [name for name in run if name not in lacking]
        choice.only[component] = [EXACT, *kept]
    _leave_out_failed(choice, list(results.values()), list(run))
    if len(choice.left_out) == len(components):
        # A suite without any case cannot be read.
        choice.failed.clear()
        choice.only.clear()
    return choice


def _leave_out_failed(
    choice: Choice, results: Sequence[_Result], run: Sequence[str]
) -> None:
    """Let no component run what failed in it: the exact variant, and what is like it.

    A component that failed in one runtime runs its variants in the others alone.
    """
    for result in results:
        case = result.case
        if case.variant.name == EXACT and result.failure:
            why = " ".join(result.failure.split())
            choice.failed.setdefault(case.component.name, {})[case.backend] = why
    for component, failed in choice.failed.items():
        kept = choice.only.get(component, [EXACT, *run])
        choice.only[component] = [
            f"{one.name}/{name}"
            for one in first_runtimes()
            for name in kept
            if one.name not in failed
            and (name == EXACT or choice.variants[one.name].get(name, (False,))[0])
        ]


def _words(component: str, worst: _Result) -> str:
    """Return what was measured of a variant, in the component where it is worst."""
    if worst.failure:
        return f"{component}: {' '.join(worst.failure.split())}"
    share = f"{math.ceil(worst.usage * 100)}% of its bound"
    if worst.usage > SAFE:
        return f"agreed here with {share}, which another processor may exceed"
    return f"agreed, at most {share}"


def _lines(
    choice: Choice, results: Mapping[str, _Result], took_s: float
) -> Iterator[str]:
    for result in results.values():
        if result.case.variant.name == EXACT and result.failure:
            is_written = result.case.component.name not in choice.failed
            end = (
                "nothing agrees, so it is written all the same"
                if is_written
                else ("it is written behind a #")
            )
            yield (
                f"{result.case.id} does not agree: {result.failure.rstrip('.')}; {end}."
            )
    names = [
        f"{runtime} {name}"
        for runtime, variants in choice.variants.items()
        for name, (is_written, _) in variants.items()
        if is_written
    ]
    parts = {result.case.component.name for result in results.values()}
    yield (
        f"{count(len(results), 'case')} of {count(len(parts), 'component')} ran in "
        f"{took_s:.0f} s. Written beside {EXACT}: {', '.join(names) or 'nothing'}."
    )
    if unseen := [name for name in choice.only if name not in choice.failed]:
        yield (
            "There was no time to measure all of these in "
            f"{', '.join(unseen)}, so [component.*] names those that were "
            "measured there; without its `variants` all run."
        )


def measure_into(
    checkpoint: Path, folder: Path, store: str, tell: Callable[[str], None]
) -> None:
    """Measure a checkpoint, and write a suite in `folder` again with the result.

    The suite is there already. It stays as it is where the measurement cannot be made
    or is stopped, and where the user has edited it meanwhile.
    """
    kept = f'The suite tests "{EXACT}", and lists the other variants.'
    written = read_suite(folder)
    try:
        choice, lines = measure(checkpoint, store)
    except KeyboardInterrupt:
        tell(f"stopped: nothing was measured. {kept}")
        return
    except ParityError as error:
        tell(f"nothing was measured: {error} {kept}")
        return
    now = read_suite(folder)
    if edited := [name for name in now if now[name] != written.get(name)]:
        tell(
            f"{' and '.join(edited)} changed meanwhile, so the suite stays as it is; "
            "`parity init --force` writes it again with what was measured."
        )
        return
    write_suite(checkpoint, folder, force=True, choice=choice)
    for line in lines:
        tell(line)
