"""The time of each layer with some bits, and of a plan beside the uniform files.

A layer's time is that of its operators in a run of the file that gives every layer the
same number of bits. It includes the operators that round what the layer reads.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.case import Case, Variant
from harness.core.errors import ParityError
from harness.core.rounding import FLOAT
from harness.core.runtime import runtime
from harness.core.table import Column, ReportTable
from harness.core.text import Line, count, few, wrapped
from harness.plugins.bench.ratio import Pace, Ratio
from harness.plugins.bench.rounds import Bench
from harness.plugins.bench.timing import BenchPlan, Subject
from harness.plugins.plan.search import Layer
from harness.plugins.plan.text import bits_words

_ROUNDS = 3
"""Number of times that each uniform file is opened to time its operators."""
_COMPARED = 12
"""Number of rounds of a plan beside the uniform files; ten of them must agree."""

Kinds = Mapping[str, float]
"""Seconds of the operators of a layer, by the kinds that the runtime ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTimes:
    """Times of a plan's file and of the uniform files, in turns.

    Attributes:
        title: Name of the runtime, for a reader.
        inputs: The inputs that all are timed on.
        threads: Number of threads.
        medians_s: Median time of each file by its name, the plan's last.
        ratios: The plan's time over that of each other file.
        kinds: For each number of bits, the kinds of operators that compute layers with
            it in the plan's file, the most frequent first.

    """

    title: str
    inputs: str
    threads: int
    medians_s: Mapping[str, float]
    ratios: Mapping[str, Ratio]
    kinds: Mapping[int, tuple[str, ...]]

    def not_faster(self, rivals: Sequence[str]) -> str:
        """Return words about the fastest rival that the plan does not beat, or none."""
        *_, planned = self.medians_s.values()
        for rival in sorted(rivals, key=lambda name: self.medians_s[name]):
            ratio = self.ratios[rival]
            if ratio.pace is not Pace.FASTER:
                return (
                    f"the plan takes {_ms(planned)} and {rival}, which holds the bound "
                    f"too, {_ms(self.medians_s[rival])}: {ratio} of its time, "
                    f"{ratio.pace}"
                )
        return ""

    @property
    def arithmetic(self) -> str:
        """A sentence about the operators that the runtime really ran."""
        said = [
            f"{bits_words(bits)} as {few(kinds, 3)}"
            for bits, kinds in sorted(self.kinds.items())
        ]
        text = f"{self.title} runs layers in {', in '.join(said)}."
        names = [{*kinds} for kinds in self.kinds.values()]
        if names[1:] and all(name == names[0] for name in names):
            text += (
                " These are the same operators, so it may compute in float32 again, "
                "whatever the bits."
            )
        return text


@dataclass(frozen=True)
class Stopwatch:
    """Times the operators of a component's files, and whole files.

    `case` is the component in the runtime's float32. `module` is the runtime's module
    about layers; see `harness.core.runtime.Mixed`.
    """

    bench: Bench
    case: Case
    module: Any

    def layers(
        self, uniform: Mapping[int, Variant], groups: Sequence[Sequence[Any]]
    ) -> list[dict[int, float]]:
        """Return the seconds of each layer by its number of bits.

        Each variant of `uniform` gives all layers its number of bits. `groups` are the
        operators of each layer in the float32 file. A number is left out where no
        operator of the file belongs to the layer.

        Raises:
            ParityError: A file cannot be run.

        """
        turns = {
            bits: self.bench.turn(self._subject(variant), BenchPlan())
            for bits, variant in uniform.items()
        }
        seen: list[dict[int, list[float]]] = [{} for _ in groups]
        for _ in range(_ROUNDS):
            for bits, turn in turns.items():
                spent = self.bench.clock(turn)
                for own, group in zip(seen, groups, strict=True):
                    took = [self.module.spent_on(one, spent) for one in group]
                    if any(took):
                        seconds = sum(sum(kinds.values()) for kinds in took)
                        own.setdefault(bits, []).append(seconds)
        return [
            {bits: statistics.median(some) for bits, some in own.items()}
            for own in seen
        ]

    def compare(
        self,
        planned: Variant,
        uniform: Sequence[Variant],
        groups: Sequence[Sequence[Any]],
        bits: Sequence[int],
    ) -> PlanTimes:
        """Time a plan's file beside uniform files, in turns.

        `groups` are the operators of each layer in the float32 file. `bits` has the
        number of bits of each layer in the plan.

        Raises:
            ParityError: A file cannot be run.

        """
        subjects = [self._subject(one) for one in (*uniform, planned)]
        plan = BenchPlan(rounds=_COMPARED)
        timings = self.bench.times(subjects, plan)
        for one in timings:
            if one.failure:
                raise ParityError(one.failure)
        *others, own = timings
        spent = self.bench.clock(self.bench.turn(subjects[-1], BenchPlan()))
        kinds: dict[int, Counter[str]] = {}
        for group, number in zip(groups, bits, strict=True):
            for one in group:
                of = kinds.setdefault(number, Counter())
                of.update(self.module.spent_on(one, spent).keys())
        return PlanTimes(
            title=runtime(self.case.backend).title,
            inputs=subjects[-1].inputs,
            threads=subjects[-1].device.threads,
            medians_s={
                timing.subject.how: statistics.median(timing.medians_s)
                for timing in timings
            },
            ratios={other.subject.how: own.over(other) for other in others},
            kinds={
                number: tuple(kind for kind, _ in of.most_common())
                for number, of in kinds.items()
            },
        )

    def _subject(self, variant: Variant) -> Subject:
        return Subject(case=replace(self.case, variant=variant))


def time_lines(times: PlanTimes) -> Iterator[Line]:
    """Yield the time of each file, and the operators that ran."""
    yield Line(text="")
    ratios = [str(times.ratios.get(name, "")) for name in times.medians_s]
    yield from ReportTable(
        columns=(
            Column("file", [*times.medians_s]),
            Column("median", [*map(_ms, times.medians_s.values())], "number"),
            Column("the plan's time over it", ratios),
        )
    ).lines()
    yield from wrapped(
        f"Times of {times.inputs}, with {count(times.threads, 'thread')}. "
        f"{times.arithmetic}",
        indent=" ",
    )


def priced(layer: Layer, seconds: Mapping[int, float]) -> Layer:
    """Return a layer that costs time; without all its times it stays in float32."""
    known = {bits: took for bits, took in seconds.items() if bits in layer.costs}
    return replace(layer, seconds=known if FLOAT in known else {FLOAT: 0.0})


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
