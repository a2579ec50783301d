"""Where a plan is judged: the outputs of a component, or a pipeline's latents or image.

Both kinds can run a deployed file, and can measure the effects of rounded weights on
PyTorch's network. The limit of each value is a mean squared error, because squared
errors of layers add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.case import Case, Sample, Variant
from harness.core.end_to_end import IMAGE
from harness.core.errors import ParityError, SuiteError
from harness.core.record import OUTPUTS, Row
from harness.core.rounding import Bits, Effects
from harness.core.runtime import EXACT, Mixed, runtime
from harness.core.settings import Settings
from harness.core.toml_file import did_you_mean
from harness.engine.engine import Engine
from harness.judge.policy import Policy, Rule
from harness.judge.tolerance import Tolerance
from harness.judge.value import JudgedRow, Verdict, judge
from harness.measure.metrics import METRIC
from harness.plugins.pictures.worst import PEAK
from harness.plugins.pipelines.case import App, Pipeline, PipelineCase, pipelines_of
from harness.plugins.pipelines.stages import drawing_effects
from harness.plugins.plan.text import ALONE, FED_BACK, PICTURE
from harness.suite.judge import Judge
from harness.suite.suite import Suite

MANY = 32
"""Number of samples, or of prompts, with which a search measures whole plans."""
FEW = 4
"""Number of inputs with which a search measures each layer alone."""

_TOGETHER = 48
"""Number of trials that run in one stage, or in the stages that run at once."""
_DRAWN = {ALONE, FED_BACK, PICTURE}
_OTHER_SEEDS = 7_000_003
"""It is added to a suite's seed, so that no tested input is an unseen input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFile:
    """The rows of a run of one file, and the worst of them.

    Attributes:
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
        case: The component in the runtime's float32, with the samples to run.
        drawing: The pipeline, for its prompts and settings; None for the component's
            outputs.
        what: ``outputs``, ``latents`` or ``image``.
        mixed: How the runtime gives layers their bits. The tolerance of the variant
            that a plan starts from is the bound.
        rest: The suite's samples of that variant that the search does not use.
        prompts: Prompts that the search does not use, for unseen pictures.
        bound: Bound that replaces the suite's; None for the suite's.

    """

    engine: Engine
    policy: Policy
    case: Case
    drawing: PipelineCase | None
    what: str
    mixed: Mixed
    rest: tuple[Sample, ...] = ()
    prompts: tuple[str, ...] = ()
    bound: Tolerance | None = None

    @property
    def role(self) -> str:
        """Role of the component in the pipeline."""
        return self.case.component.recipe

    @property
    def subject(self) -> str:
        """Name of what is judged: the component, or the pipeline."""
        return (self.drawing or self.case).subject

    @property
    def count(self) -> int:
        """Number of inputs: samples, or pictures of a pipeline."""
        drawing = self.drawing
        return len(self.case.samples if drawing is None else drawing.pipeline.prompts)

    @property
    def searched(self) -> Case:
        """The case with the samples that PyTorch measures rounded weights with.

        These are the suite's own draws, each in the size of the first. A sample that
        tests another size may cost many times as much.
        """
        size = self.case.samples[0].shapes
        own = [
            sample for sample in self.case.samples if not sample.label
        ] or self.case.samples
        alike = tuple(replace(one, shapes=size) for one in own)
        return replace(self.case, samples=alike)

    @property
    def inputs(self) -> list[str]:
        """How the names of an input's values begin, for each input of a search."""
        if self.drawing is None:
            return [f"{sample.id} " for sample in self.searched.samples]
        return [f"picture {at} " for at in range(self.count)]

    def effects(self, trials: Sequence[Bits], only: Sequence[int] = ()) -> Effects:
        """Return the effects of rounded weights on the values of this place.

        Each trial names the layers that it rounds. `only` has the numbers of the
        `inputs` to measure with; empty for all.

        Raises:
            ParityError: A stage ended without an answer.

        """
        # A stage has a time limit, so a large network's trials are several stages.
        # Those that run at once share the cores, so each then takes longer.
        most = max(1, _TOGETHER // self.engine.jobs)
        some = [trials[at : at + most] for at in range(0, len(trials), most)]
        parts = self.engine.each(lambda one: self._effects(one, only), some)
        errors = tuple(each for part in parts for each in part.errors)
        return replace(parts[0], errors=errors)

    def most_moved(self, shares: Mapping[str, float]) -> tuple[int, ...]:
        """Return the numbers of the few inputs that use most of their limits.

        `shares` has the share of its limit that each value uses, by its name. A value
        of all inputs together, such as the latents of a step, tells nothing about one
        of them. Inputs that are alike come in their order.
        """
        used = [
            max(
                (shares[row] for row in shares if f"{row} ".startswith(name)), default=0
            )
            for name in self.inputs
        ]
        return tuple(sorted(sorted(range(len(used)), key=lambda at: -used[at])[:FEW]))

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
            rows=tuple(
                JudgedRow(row=row, verdict=self._verdict(row))
                for row in record.rows
                if row.what == self.what
            ),
            size_bytes=artifact.size_bytes,
            drawn=tuple(row for row in record.rows if row.op in _DRAWN),
        )

    def shares(self, effects: Effects) -> list[dict[str, float]]:
        """Return the share of its limit that each value uses, for each trial.

        A limit is the largest mean squared error within the bound. Values for which
        there is no bound are left out. A share is NaN if the trial could not be made.

        Raises:
            SuiteError: The bound says nothing about squared errors.

        """
        limits = dict(self._limits(effects))
        if any(map(math.isinf, limits.values())):
            msg = (
                "this bound says nothing about squared errors, which a plan adds up; "
                "state sqnr_db, psnr_db or cosine_distance in it."
            )
            raise SuiteError(msg)
        return [
            {
                row: _share(error, limits[row])
                for row, error in zip(effects.rows, errors, strict=True)
                if row in limits
            }
            for errors in effects.errors
        ]

    def unseen(self, number: int, draw: int) -> PlanSubject:
        """Return this place with inputs that the search does not use.

        These are so many samples beside the suite's own, or pictures of its prompts in
        turn. No other `draw` has the same.
        """
        shift = _OTHER_SEEDS * (1 + draw)
        if self.drawing is not None:
            pipeline = self.drawing.pipeline
            if "batch" not in self.case.export.dynamic:
                number = len(pipeline.prompts)  # the file accepts no other
            begin, others = draw * number, self.prompts
            texts = [others[(begin + at) % len(others)] for at in range(number)]
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

    def _effects(self, trials: Sequence[Bits], only: Sequence[int]) -> Effects:
        if self.drawing is None:
            return self.engine.output_effects(self.searched, trials, only)
        drawing = self._with(self.case)
        return drawing_effects(self.engine, drawing, self.role, trials, only)

    def _limits(self, effects: Effects) -> Iterator[tuple[str, float]]:
        """Yield each value that the bound is for, and its largest squared error."""
        for row, power in zip(effects.rows, effects.powers, strict=True):
            kind, _, name = row.rpartition(" ")
            if self.drawing is None:
                yield row, _power(self._rule(name).tolerance, power)
            elif kind == "condition" and self.what != IMAGE:
                role, _, probe = name.partition(".")
                yield row, _power(self._rule(probe, role).tolerance, power)
            elif kind == "step" and self.what != IMAGE:
                yield row, _power(self._rule(f"{FED_BACK}.{name}").tolerance, power)
            elif kind == "picture" and self.what == IMAGE:
                yield row, _power(self._rule(f"picture.{name}").tolerance, power)

    def _with(self, case: Case) -> PipelineCase:
        """Return the pipeline with a case in its role, and PyTorch elsewhere."""
        assert self.drawing is not None  # noqa: S101  # the caller looked
        roles = tuple(
            (role, case if role == self.role else None)
            for role, _ in self.drawing.roles
        )
        return replace(self.drawing, roles=roles, variant=case.variant.name)

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
        rule = self.policy.for_probe(
            (self.subject, self.case.backend, self.mixed.origin),
            group=self.what,
            probe=probe,
            module=module,
        )
        if rule.tolerance.within is None:
            return rule
        # PyTorch's own error is not among a plan's rows; the new variant is held to it.
        return replace(rule, tolerance=rule.tolerance.without_within(self.what))


def place_of(
    suite: Suite,
    engine: Engine,
    component: str,
    backend: str,
    *,
    what: str,
    pipeline: str = "",
    bound: Tolerance | None = None,
) -> PlanSubject:
    """Return where a plan is measured, in a runtime with layers of several precisions.

    `what` is ``outputs``, ``latents`` or ``image``. The last two are of a pipeline; an
    empty name means the first that has the component. `bound` replaces the suite's.

    Raises:
        SuiteError: The component runs on targets alone, or no pipeline has it.

    """
    mixed = runtime(backend).mixed
    assert mixed is not None  # noqa: S101  # the caller looked
    here = [
        case
        for case in suite.cases
        if (case.subject, case.backend) == (component, backend) and not case.targets
    ]
    if not here:
        msg = (
            f'{component} runs in {backend} on targets alone; add "here" to `targets` '
            f"of [backend.{backend}] in {suite.path}."
        )
        raise SuiteError(msg)
    # A suite may give float32 further samples, which the new variant does not run.
    alike = [one for one in here if one.variant.name == mixed.origin]
    case, samples = here[0], plain_samples((alike or here)[0])
    drawing: PipelineCase | None = None
    prompts: tuple[str, ...] = ()
    if what != OUTPUTS:
        drawing = _drawing(suite, case.component.recipe, backend, pipeline)
        own = dict(drawing.roles)[case.component.recipe]
        assert own is not None  # noqa: S101  # _drawing looked
        if own.subject != component:
            msg = (
                f"{drawing.subject} has {own.subject} in the role "
                f"{case.component.recipe}, and not {component}; plan {own.subject}, or "
                "take --within outputs."
            )
            raise SuiteError(msg)
        case, samples = own, plain_samples(own)
        plan = _plain_pipeline(drawing.pipeline, case)
        every = dict.fromkeys(
            text
            for one in pipelines_of(suite.pipeline_cases)
            if one.pipeline.kind == plan.kind
            for text in (*one.pipeline.prompts, *one.pipeline.all_prompts)
        )
        prompts = tuple(one for one in every if one not in plan.prompts) or plan.prompts
        drawing = replace(drawing, pipeline=plan)
    exact = Variant(
        name=EXACT, backend=backend, kind=EXACT, converter=case.variant.converter
    )
    return PlanSubject(
        engine=engine,
        policy=Judge.of(suite, Settings()).policy,
        case=replace(case, variant=exact, samples=samples[:MANY], where=""),
        drawing=drawing,
        what=what,
        mixed=mixed,
        rest=samples[MANY:] if alike else (),
        prompts=prompts,
        bound=bound,
    )


def _plain_pipeline(pipeline: Pipeline, case: Case) -> Pipeline:
    """Return a pipeline of one picture for each of the first prompts, and no more."""
    # A file with a fixed batch accepts only the suite's number of prompts.
    many = MANY if "batch" in case.export.dynamic else len(pipeline.prompts)
    return replace(
        pipeline,
        prompts=pipeline.prompts[:many],
        samples=1,
        seeds=0,
        attribution=False,
        app=App(),
    )


def _drawing(suite: Suite, role: str, backend: str, name: str) -> PipelineCase:
    """Return the named pipeline that has a component, or the first that does."""
    found: dict[str, PipelineCase] = {}
    for one in pipelines_of(suite.pipeline_cases):
        case = dict(one.roles).get(role)
        if case is not None and case.backend == backend:
            found.setdefault(one.subject, one)
    if name in found:
        return found[name]
    if name:
        lacks = any(one.subject == name for one in suite.pipeline_cases)
        text = f"lacks {role} in {backend}" if lacks else "is not in the suite"
        msg = f"the pipeline {name!r} {text}; {did_you_mean(name, list(found))}"
        raise SuiteError(msg)
    if not found:
        msg = (
            f"no pipeline of {suite.path} has {role} in {backend}, so there are no "
            "latents and no image; add a [pipeline.*], or take --within outputs."
        )
        raise SuiteError(msg)
    return next(iter(found.values()))


def plain_samples(case: Case) -> tuple[Sample, ...]:
    """Return the samples of a case, without layers."""
    return tuple(replace(sample, layers=False) for sample in case.samples)


def _share(error: float, limit: float) -> float:
    if limit:
        return error / limit
    return math.inf if error else 0.0


def _power(tolerance: Tolerance, power: float) -> float:
    """Return the largest mean squared error within a tolerance.

    An error at a right angle to the values turns them by an angle, and 1 - cosine is
    half the square of that angle.
    """
    bounds = ((power, tolerance.sqnr_db), (PEAK**2, tolerance.psnr_db))
    limits = [
        full * 10 ** (-decibels / 10)
        for full, decibels in bounds
        if decibels is not None
    ]
    if tolerance.cosine_distance is not None:
        limits.append(2.0 * tolerance.cosine_distance * power)
    return min(limits, default=math.inf)


def moved_by(judged: JudgedFile) -> dict[str, list[float]]:
    """Return how far a file moves a pipeline's steps, each alone or not, and pictures.

    Returns:
        For each kind of values their SQNR or PSNR in dB, in order. It lacks a kind of
        which the file has no values, or some that are not finite.

    """
    found: dict[str, list[float | None]] = {}
    for row in judged.drawn:
        found.setdefault(row.op, []).append(decibels(row))
    return {
        kind: [one for one in every if one is not None]
        for kind, every in found.items()
        if None not in every
    }


def decibels(row: Row) -> float | None:
    """Return a row's PSNR if it is a picture, else its SQNR; None if not finite."""
    metric = METRIC["psnr_db" if row.what == IMAGE else "sqnr_db"]
    return finite(metric.of(row.comparison))


def finite(value: float | None) -> float | None:
    """Return a number that JSON has; None for any other."""
    return value if value is not None and math.isfinite(value) else None
