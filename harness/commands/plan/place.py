"""Where a plan is judged: the outputs of a component, or a pipeline's latents or image.

Both kinds can run a deployed file, and can measure the effects of rounded weights on
PyTorch's network. The limit of each value is a mean squared error, because squared
errors of layers add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.case import Case, Sample, Variant
from harness.core.errors import ParityError, SuiteError
from harness.core.pipeline import IMAGE, PipelineCase
from harness.core.record import OUTPUTS, CaseRecord, Row
from harness.core.rounding import Bits, Effects
from harness.engine.engine import Engine
from harness.judge.policy import Policy, Rule
from harness.judge.tolerance import Tolerance
from harness.judge.value import JudgedRow, Verdict, judge
from harness.report.plans import ALONE, FED_BACK, PICTURE

FEW = 4
"""Number of samples, or of prompts, with which a search measures."""

_TOGETHER = 64
"""Number of trials that one process runs."""
_DRAWN = {ALONE, FED_BACK, PICTURE}
_PEAK = 255.0
_OTHER_SEEDS = 7_000_003
"""It is added to a suite's seed, so that no tested input is an unseen input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFile:
    """The rows of a run of one file, and the worst of them.

    Attributes:
        rows: The judged rows.
        size_bytes: Size of the component's deployed file, with its weights.
        drawn: Every step and picture of a pipeline, whatever the bound is for.

    """

    rows: tuple[JudgedRow, ...]
    size_bytes: int
    drawn: tuple[Row, ...] = ()

    @property
    def worst(self) -> JudgedRow:
        """The row that uses the largest share of its bound."""
        return max(self.rows, key=lambda row: row.verdict.usage)

    @property
    def passed(self) -> bool:
        """Whether every row is within its bound."""
        return all(row.verdict.passed for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSubject:
    """The values that a bound holds for, and the inputs that they are measured with.

    Attributes:
        engine: The engine that runs files.
        policy: The suite's tolerances.
        case: The component in the runtime's float32, with the samples to run.
        drawing: The pipeline with that case in its role and PyTorch elsewhere; None for
            the component's outputs.
        what: ``outputs``, ``latents`` or ``image``.
        origin: Name of the variant whose tolerance is the bound.
        rest: The suite's samples of that variant that the search does not use.
        bound: Bound that replaces the suite's; None for the suite's.

    """

    engine: Engine
    policy: Policy
    case: Case
    drawing: PipelineCase | None
    what: str
    origin: str
    rest: tuple[Sample, ...] = ()
    bound: Tolerance | None = None

    @property
    def role(self) -> str:
        """Role of the component in the pipeline."""
        return self.case.component.recipe

    @property
    def count(self) -> int:
        """Number of inputs: samples, or pictures of a pipeline."""
        if self.drawing is None:
            return len(self.case.samples)
        return len(self.drawing.pipeline.prompts)

    def effects(self, trials: Sequence[Bits]) -> Effects:
        """Return the effects of rounded weights on the values of this place.

        Raises:
            ParityError: A stage ended without an answer.

        """
        # A stage has a time limit, so a large network's trials are several stages.
        parts = [
            self._effects(trials[at : at + _TOGETHER])
            for at in range(0, len(trials), _TOGETHER)
        ]
        errors = tuple(each for part in parts for each in part.errors)
        return replace(parts[0], errors=errors)

    def run(self, variant: Variant) -> JudgedFile:
        """Convert and run a variant of the component, and judge its values.

        Raises:
            ParityError: A stage ended without an answer.

        """
        case = replace(self.case, variant=variant)
        artifact, _ = self.engine.file(case)
        record = self.engine.run(case if self.drawing is None else self._with(case))
        if record.failure is not None:
            raise ParityError(record.failure.message)
        return JudgedFile(
            rows=self._judged(record),
            size_bytes=artifact.size_bytes,
            drawn=tuple(row for row in record.rows if row.op in _DRAWN),
        )

    def limits(self, effects: Effects) -> dict[int, float]:
        """Return the largest mean squared error of each value that the bound is for.

        Args:
            effects: Effects, whose rows are numbered from 0 in the result.

        Raises:
            SuiteError: The bound says nothing about squared errors.

        """
        found = {}
        for at, (row, power) in enumerate(
            zip(effects.rows, effects.powers, strict=True)
        ):
            kind, _, name = row.rpartition(" ")
            if self.drawing is None:
                found[at] = _power(self._rule(name).tolerance, power)
            elif kind == "condition" and self.what != IMAGE:
                role, _, probe = name.partition(".")
                found[at] = _power(self._rule(probe, role).tolerance, power)
            elif kind == "step" and self.what != IMAGE:
                found[at] = _power(self._rule(f"{FED_BACK}.{name}").tolerance, power)
            elif kind == "picture" and self.what == IMAGE:
                found[at] = _power(self._rule(f"picture.{name}").tolerance, power)
        if any(map(math.isinf, found.values())):
            msg = (
                "this bound says nothing about squared errors, which a plan adds up; "
                "state sqnr_db, psnr_db or cosine_distance in it."
            )
            raise SuiteError(msg)
        return found

    def unseen(self, number: int, draw: int, prompts: Sequence[str]) -> PlanSubject:
        """Return this place with inputs that the search does not use.

        Args:
            number: Number of samples beside the suite's own, or of pictures, which no
                other draw has.
            draw: Number of the draw.
            prompts: Prompts of a pipeline to draw from, in turn.

        """
        shift = _OTHER_SEEDS * (1 + draw)
        if self.drawing is not None:
            pipeline = self.drawing.pipeline
            if "batch" not in self.case.export.dynamic:
                number = len(pipeline.prompts)  # the file accepts no other
            begin = draw * number
            texts = [prompts[(begin + at) % len(prompts)] for at in range(number)]
            pipeline = replace(
                pipeline, prompts=tuple(texts), seed=pipeline.seed + shift
            )
            return replace(self, drawing=replace(self.drawing, pipeline=pipeline))
        own = self.case.samples
        drawn = tuple(
            replace(
                own[at % len(own)],
                index=at,
                seed=own[at % len(own)].seed + shift,
                label=f"unseen-{draw}-{at}",
            )
            for at in range(number)
        )
        # The graph is exported for the first sample, which has the search's own shape.
        return replace(self, case=replace(self.case, samples=drawn + self.rest))

    def _effects(self, trials: Sequence[Bits]) -> Effects:
        if self.drawing is None:
            return self.engine.output_effects(self.case, trials)
        return self.engine.drawing_effects(self.drawing, self.role, trials)

    def _with(self, case: Case) -> PipelineCase:
        """Return the pipeline with a case in the component's role."""
        assert self.drawing is not None  # noqa: S101  # the caller looked
        roles = tuple(
            (role, case if role == self.role else None)
            for role, _ in self.drawing.roles
        )
        return replace(self.drawing, roles=roles, variant=case.variant.name)

    def _judged(self, record: CaseRecord) -> tuple[JudgedRow, ...]:
        return tuple(
            JudgedRow(row=row, verdict=self._verdict(row))
            for row in record.rows
            if row.what == self.what
        )

    def _verdict(self, row: Row) -> Verdict:
        rule = self._rule(row.probe, row.module)
        return judge(
            row.comparison,
            rule.tolerance,
            is_output=row.what == OUTPUTS,
            allow_nonfinite=rule.allow_nonfinite,
            allow_constant=rule.allow_constant,
            allow_misread=rule.allow_misread,
        )

    def _rule(self, probe: str, module: str = "") -> Rule:
        if self.bound is not None:
            return Rule(tolerance=self.bound, tier="")
        drawing = self.drawing
        rule = self.policy.for_probe(
            component=self.case.subject if drawing is None else drawing.subject,
            backend=self.case.backend,
            variant=self.origin,
            group=self.what,
            probe=probe,
            module=module,
        )
        if rule.tolerance.within is None:
            return rule
        # PyTorch's own error is not among a plan's rows; the new variant is held to it.
        return replace(rule, tolerance=rule.tolerance.without_within(self.what))


def plain_samples(case: Case) -> tuple[Sample, ...]:
    """Return the samples of a case, without layers."""
    return tuple(replace(sample, layers=False) for sample in case.samples)


def _power(tolerance: Tolerance, power: float) -> float:
    """Return the largest mean squared error within a tolerance.

    An error at a right angle to the values turns them by an angle, and 1 - cosine is
    half the square of that angle.
    """
    bounds: Mapping[str, float | None] = {
        "sqnr": tolerance.sqnr_db,
        "psnr": tolerance.psnr_db,
    }
    limits = [
        (power if name == "sqnr" else _PEAK**2) * 10 ** (-decibels / 10)
        for name, decibels in bounds.items()
        if decibels is not None
    ]
    if tolerance.cosine_distance is not None:
        limits.append(2.0 * tolerance.cosine_distance * power)
    return min(limits, default=math.inf)
