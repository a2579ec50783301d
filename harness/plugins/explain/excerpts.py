"""Where a case first diverges, and the smallest excerpt that shows the divergence.

At first an excerpt has the operators of one value. If these agree, the error needs
more of the graph, for example because of a fusion. Then the excerpt begins one value
earlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.case import GIVEN
from harness.core.errors import ParityError, SuiteError
from harness.core.groups import sample_groups
from harness.core.onnx_ports import parsed
from harness.core.probes import load_probes
from harness.core.received import DamagedError
from harness.core.record import LAYERS, OUTPUTS, CaseRecord, Row
from harness.core.text import in_floors, number_of_floors
from harness.engine.export_files import MODEL, PROBES
from harness.measure.compare import UNIT_ROUNDOFF
from harness.measure.metrics import ratio
from harness.plugins.explain.excerpt import Excerpt, Spot, excerpt_at, run_excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.core.case import Case, Sample
    from harness.engine.engine import Engine
    from harness.judge.case import CaseVerdict
    from harness.suite.judge import Judge

MOST_STEPS = 8
"""An excerpt begins at most so many values earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """An excerpt, and the result of its run.

    Attributes:
        excerpt: The smallest one that shows the divergence, or the largest one tried.
        record: The record of its run.
        verdict: The verdict on it; None if it could not be run.
        what: The check that failed: ``layers``, or ``outputs`` if every layer agrees,
            as after a wrong rewrite of a runtime's optimiser.

    """

    excerpt: Excerpt
    record: CaseRecord
    verdict: CaseVerdict | None
    what: str = LAYERS

    @property
    def layer(self) -> Row:
        """The value that was cut at, as the check that failed compares it."""
        rows = {row.what: row for row in self.record.rows}
        judged = rows[self.what]
        # An output's row names no operator and no module.
        return replace(
            rows.get(LAYERS, judged), comparison=judged.comparison, looks=judged.looks
        )

    @property
    def shows(self) -> bool:
        """Whether the excerpt shows the divergence.

        A check may also fail because nothing was compared, which shows none.
        """
        rows = self.verdict.rows if self.verdict else ()
        return any(not judged.verdict.passed for judged in rows)


def with_local_errors(
    engine: Engine, judge: Judge, case: Case, record: CaseRecord, sample: Sample
) -> tuple[CaseRecord, CaseVerdict]:
    """Run every operator on the reference's inputs, and judge the layers again.

    Where the operators cannot be run so, no local error is known. A foreign file may
    have another value under a name, which an operator does not take.
    """
    try:
        rows = engine.isolate(case, sample)
    except ParityError:
        return record, judge.check(record, LAYERS)
    record = replace(record, rows=(*record.rows, *rows))
    return record, judge.check(record, LAYERS)


def narrowed(case: Case, sample: Sample) -> Case:
    """Return a case that runs one of its samples, on the graph that it had before.

    A graph is traced at the sizes of its first sample, so that sample stays.
    """
    group = next(
        group for group in sample_groups(case, case.samples) if sample in group.samples
    )
    kept = dict.fromkeys((group.samples[0], sample))
    return replace(case, samples=tuple(kept))


def blamed(verdict: CaseVerdict) -> list[str]:
    """Return the values at fault for a first divergence, the one to cut at first.

    These are the operators with a local error out of tolerance, or else the first
    divergence itself.
    """
    first = verdict.first.row.probe if verdict.first else ""
    origins = [judged.row.probe for judged in verdict.origins] or [first]
    return sorted(origins, key=lambda probe: probe != first)


def blamed_nodes(
    engine: Engine, case: Case, sample: Sample, blamed: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of the nodes of the exported graph that make blamed values.

    There are none where the graph cannot be read.
    """
    from harness.runtimes.graph.onnx_graph import makers_of, nodes_of, value_names

    try:
        _, graph, _ = engine.of_sample(engine.artifacts.known(case), sample)
        probes = load_probes(graph.file(PROBES))
        model = parsed(graph.file(MODEL))
    except (ParityError, OSError, DamagedError):
        return ()
    makers, values = makers_of(model.graph), value_names(probes)
    made = [
        node.name
        for probe in probes
        if probe.name in blamed and probe.name in values
        for node in nodes_of(probe, makers, values)
    ]
    return tuple(dict.fromkeys(filter(None, made)))


def smallest_excerpt(  # noqa: PLR0917  # the rest is what every cut gets
    engine: Engine,
    judge: Judge,
    case: Case,
    sample: Sample,
    record: CaseRecord,
    probe: str,
    what: str = LAYERS,
) -> Around:
    """Cut around a value, wider and wider, until the divergence shows.

    The excerpt has the values of `sample`, which is one of the case. It begins at
    values of `record`. The check `what` has to fail; for ``outputs`` the value is an
    output.

    Raises:
        ParityError: Nothing can be cut at that value.

    """
    shown = {
        row.probe
        for row in record.rows
        if row.what == LAYERS and row.sample == sample.id
    }
    inputs = {spec.name for spec in case.component.inputs}
    for _ in range(MOST_STEPS):
        spot = Spot(probe=probe, shown=tuple(sorted(shown)))
        excerpt = excerpt_at(engine, case, sample, spot)
        ran = run_excerpt(engine, excerpt)
        # A value that a runtime fuses away is compared as the excerpt's output alone.
        seen = what if any(row.what == what for row in ran.rows) else OUTPUTS
        verdict = None if ran.failure else judge.check(ran, seen)
        around = Around(excerpt=excerpt, record=ran, verdict=verdict, what=seen)
        if around.shows or excerpt.begins <= inputs:
            break
        shown -= excerpt.begins
    return around


def cut_out(
    engine: Engine, judge: Judge, case: Case, probe: str, say: Callable[[str], None]
) -> Around:
    """Run a case, and cut around a value; without one, around the first divergence.

    Raises:
        SuiteError: The case cannot be run, agrees, or has no such value.

    """
    say("as it is")
    record = engine.run(case)
    if record.failure is not None:
        raise SuiteError(record.failure.message)
    sample, name, what = _place(engine, judge, case, record, probe)
    say(f"cutting at {name}")
    narrow = narrowed(case, sample)
    around = smallest_excerpt(engine, judge, narrow, sample, record, name, what)
    if around.record.failure is not None:
        why = around.record.failure.message
        msg = f"the operators around {name} cannot be run alone: {why}"
        raise SuiteError(msg)
    return around


def _place(
    engine: Engine, judge: Judge, case: Case, record: CaseRecord, probe: str
) -> tuple[Sample, str, str]:
    """Return the sample and the value to cut at, and the check that fails there."""
    rows = [row for row in record.rows if row.what == LAYERS]
    if probe:
        there = [row for row in rows if probe in {row.probe, row.module}]
        if not there:
            msg = f"{case.id} compares no value {probe!r}; `parity show` lists them."
            raise SuiteError(msg)
        worst = max(there, key=lambda row: row.comparison.floor_multiple or 0.0)
        return _sample(case, worst.sample), worst.probe, LAYERS
    verdicts = [judge.check(record, what) for what in case.whats]
    # A check that fails for another reason than its values has no first divergence.
    failing = [
        judged for one in verdicts for judged in (one.first, *one.rows) if judged
    ]
    failing = [judged for judged in failing if not judged.verdict.passed]
    if not failing:
        said = "; ".join(one.reason for one in verdicts)
        msg = (
            f"{case.id} agrees in every layer and output ({said}); name a value with "
            "--probe, or give a tighter --tier."
        )
        raise SuiteError(msg)
    first = failing[0].row
    sample = _sample(case, first.sample)
    if first.what == OUTPUTS:
        return sample, first.probe, OUTPUTS
    _, verdict = with_local_errors(engine, judge, case, record, sample)
    return sample, blamed(verdict)[0], LAYERS


def _sample(case: Case, name: str) -> Sample:
    return next(sample for sample in case.samples if sample.id == name)


def error_words(value: float, case: Case, was: float | None = None) -> str:
    """Return an error that `error_in_floors` gave, after what it was if that is given.

    A case without PyTorch has no noise floors, so its errors are in decibels.
    """
    has_floors = case.component.recipe != GIVEN
    if has_floors and was is None:
        return in_floors(value)
    number = number_of_floors if has_floors else _decibels
    shown = " → ".join(
        "-" if math.isnan(one) else number(one)
        for one in (was, value)
        if one is not None
    )
    return f"{shown} floors" if has_floors else f"SQNR {shown} dB"


def _decibels(error: float) -> str:
    """Return an error, as a multiple of float32's roundoff, in decibels."""
    return f"{-20 * math.log10(error * UNIT_ROUNDOFF):.1f}" if error else "inf"


def error_in_floors(row: Row) -> float:
    """Return an error in noise floors, or in roundoff of float32 where there are none.

    A file that is its own reference has no floors, and neither have whole numbers. It
    is infinite where values are not finite, for numbers measure only the others.
    """
    found = row.comparison
    if found.nonfinite_mismatched:
        return math.inf
    if found.floor_multiple is not None:
        return found.floor_multiple
    return ratio(found.rms, UNIT_ROUNDOFF * found.expected_rms, both_zero=0.0)
