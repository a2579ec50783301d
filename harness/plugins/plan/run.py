"""The work of `parity plan`: measure each layer, choose, convert, run, and verify."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.core.case import Variant
from harness.core.end_to_end import LATENTS
from harness.core.errors import ParityError, SuiteError
from harness.core.rounding import FLOAT, HALF
from harness.core.runtime import Mixed
from harness.plugins.bench.rounds import Bench
from harness.plugins.plan.place import FEW, JudgedFile, PlanSubject
from harness.plugins.plan.search import (
    Layer,
    bits_of,
    choose,
    errors_by_bits,
    price,
    summed,
    tried,
)
from harness.plugins.plan.times import PlanTimes, Stopwatch, priced

MOST_CONVERSIONS = 8
"""Number of conversions that a search may make."""

_ROUNDS = 8
"""Number of plans that are measured whole in PyTorch before one is converted."""
_MOST_CHANGE = 2.0
"""Factor by which a budget changes at most from one of them to the next."""
_ROOM = 0.97
"""Share of the limits that a plan may use in PyTorch; the runtime has errors too."""
_TIGHTER = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan, and what was measured for it.

    Attributes:
        place: Where it was measured.
        layers: The layers, in the order of the file.
        bits: Number of bits of each layer.
        text: Text of the converter's file; empty if the variant's flags have the plan.
        uniform: Result of each built-in variant, float32 first, by its name.
        planned: Result of the plan on the inputs of the search.
        unseen: Result of the plan on inputs that the search did not see.
        unseen_count: Number of those inputs.
        additivity: Sum of the single squared errors over the squared error of the
            whole, by the name of each value of the bound.
        times: Times of the files; None if the plan is to be small and not fast.

    """

    place: PlanSubject
    variant: Variant
    layers: tuple[Layer, ...]
    bits: tuple[int, ...]
    text: str
    uniform: dict[str, JudgedFile]
    planned: JudgedFile
    unseen: JudgedFile
    unseen_count: int
    additivity: dict[str, float]
    conversions: int
    took_s: float
    times: PlanTimes | None = None


def planned_variant(
    mixed: Mixed, uniform: Variant, name: str, text: str, path: Path
) -> Variant:
    """Return the variant of a plan, from the one whose layers all have few bits.

    If the converter reads a file, the text is written to `path`. Otherwise the lines of
    the text are flags.
    """
    planned = replace(uniform, name=name)
    if not mixed.flag:
        return replace(planned, flags=(*uniform.flags, *text.splitlines()))
    path.write_text(text, encoding="utf-8")
    flag = f"{mixed.flag}{path.name}"
    flags = (*uniform.flags, flag)
    return replace(planned, flags=flags, files=((flag, path),))


class Planner:
    """Finds a plan for a component.

    `say` gets the name of the next step. `bench` times files, for a plan that is to be
    fast; None for a small one.
    """

    def __init__(
        self,
        place: PlanSubject,
        say: Callable[[str], None],
        bench: Bench | None = None,
    ) -> None:
        self._place = place
        self._say = say
        self._module: Any = importlib.import_module(place.mixed.module)
        self._rows: tuple[str, ...] = ()
        self._groups: list[list[Any]] = []
        self._stopwatch: Stopwatch | None = None
        if bench is not None:
            self._stopwatch = Stopwatch(bench, place.case, self._module)
        exact = place.case.variant
        fast = place.mixed.fast if bench is not None else ()
        self._uniform = {FLOAT: exact} | {
            bits: replace(exact, name=kind, kind=kind, flags=fast)
            for kind, bits in place.mixed.variants.items()
        }
        self._start = time.monotonic()

    def plan(self, name: str, file: str, unseen: int) -> Found:
        """Find a plan that holds on the search's inputs and on inputs it never saw.

        `name` is the variant to write, and `file` the converter's file beside the
        suite. `unseen` is the number of unseen samples, or of unseen pictures.

        Raises:
            ParityError: Float32 itself exceeds the bound, there is nothing to choose,
                or no plan holds.

        """
        place, mixed = self._place, self._place.mixed
        self._say("the file in float32")
        exact, *others = self._uniform.values()
        results = {exact.name: place.run(exact)}
        self._refuse(results[exact.name])
        layers = self._measured()
        self._say(f"the file of {' and of '.join(one.name for one in others)}")
        judged = place.engine.each(place.run, others)
        results |= {one.name: each for one, each in zip(others, judged, strict=True)}
        layers = self._timed(layers)
        margin, origin = 1.0, mixed.variants[mixed.origin]
        left = MOST_CONVERSIONS - len(results)
        worst = math.inf
        for attempt in range(left):
            self._say("the integer program")
            bits, ratio = self._chosen(layers, margin)
            if set(bits) == {FLOAT}:
                msg = (
                    f"no plan of {place.case.id} was found that holds this bound with "
                    "a layer in fewer bits, so there is nothing to choose; allow more "
                    "error."
                )
                raise SuiteError(msg)
            text = self._module.plan_text(dict(bits_of(layers, bits)))
            same = bits == [
                origin if origin in layer.costs else FLOAT for layer in layers
            ]
            with TemporaryDirectory(prefix="parity-plan-") as folder:
                path = Path(folder) / file
                variant = planned_variant(
                    mixed, self._uniform[origin], name, text, path
                )
                self._say(f"the plan's file, attempt {attempt + 1}")
                planned = place.run(variant)
                again = planned
                if planned.passed:
                    self._say("inputs that the search did not see")
                    other = place.unseen(unseen, attempt)
                    again = other.run(variant)
                times = None
                if again.passed and not same and self._stopwatch is not None:
                    holding = [result for result in results if results[result].passed]
                    times = self._compared(variant, bits, other, holding)
            if again.passed and same:
                msg = (
                    f"{mixed.origin} itself holds this bound, also on inputs that the "
                    "search did not see, and the plan found no better bits for any "
                    f"layer; use {mixed.origin}, or give another bound."
                )
                raise SuiteError(msg)
            if again.passed:
                return Found(
                    place=place,
                    variant=replace(variant, files=()),
                    layers=layers,
                    bits=tuple(bits),
                    text=text if mixed.flag else "",
                    uniform=results,
                    planned=planned,
                    unseen=again,
                    unseen_count=other.count,
                    additivity=ratio,
                    conversions=len(results) + attempt + 1,
                    took_s=time.monotonic() - self._start,
                    times=times,
                )
            row, verdict = again.worst.row, again.worst.verdict
            self._say(f"out of the bound: {row.place}, {row.sample}: {verdict.reason}")
            worst = verdict.usage
            tighter = 0.95 / worst**2 if math.isfinite(worst) else 0.5
            margin *= min(_TIGHTER, tighter)
        msg = (
            f"no plan of {MOST_CONVERSIONS} conversions holds: the last one uses "
            f"{worst:.0%} of the bound. Nothing was written; allow more error."
        )
        raise ParityError(msg)

    def _timed(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Return the layers with their times, if the plan is to be fast."""
        if self._stopwatch is None:
            return layers
        self._say("the operators of each uniform file, timed")
        seconds = self._stopwatch.layers(self._uniform, self._groups)
        layers = tuple(map(priced, layers, seconds))
        if set(choose(layers, math.inf)) == {FLOAT}:
            msg = (
                f"no layer of {self._place.case.id} is faster with fewer bits here, so "
                "there is nothing to choose; take --objective size."
            )
            raise SuiteError(msg)
        return layers

    def _compared(
        self,
        variant: Variant,
        bits: Sequence[int],
        other: PlanSubject,
        holding: Sequence[str],
    ) -> PlanTimes:
        """Time the plan beside the uniform files, and refuse one that is not faster.

        `other` has inputs that the search did not see. `holding` names the uniform
        files that hold on those of the search.
        """
        assert self._stopwatch is not None  # noqa: S101  # the caller looked
        self._say("the plan's file beside the uniform files, timed in turns")
        every = [*self._uniform.values()]
        times = self._stopwatch.compare(variant, every, self._groups, bits)
        rivals = [
            one.name for one in every if one.name in holding and other.run(one).passed
        ]
        if rivals and (why := times.not_faster(rivals)):
            msg = (
                f"{why}, so there is nothing to choose. {times.arithmetic} Nothing was "
                "written."
            )
            raise SuiteError(msg)
        return times

    def _refuse(self, exact: JudgedFile) -> None:
        """Refuse a bound that float32 itself does not meet."""
        if exact.passed:
            return
        row, verdict = exact.worst.row, exact.worst.verdict
        msg = (
            f"{self._place.case.id} itself is out of this bound: {row.place}, "
            f"{row.sample}: {verdict.reason}. No plan can be better than float32; "
            "allow more error."
        )
        raise SuiteError(msg)

    def _measured(self) -> tuple[Layer, ...]:
        """Round each layer alone, and return all layers."""
        place, module = self._place, self._module
        artifact, model = place.engine.file(place.case)
        path = artifact.file(model)
        groups: dict[bytes, list[Any]] = {}
        for one in module.stored(path):
            weights = module.float_weights(path, one).tobytes()
            groups.setdefault(weights, []).append(one)
        self._groups = every = list(groups.values())
        if not every:
            msg = (
                f"{place.case.id} has no layer whose weights the converter rounds, so "
                "there is nothing to choose."
            )
            raise SuiteError(msg)
        few = self._few(place.mixed.variants[place.mixed.origin])
        self._say("each layer alone, rounded in PyTorch")
        choices = [min(map(module.choices, group), key=len) for group in every]
        # Nothing about float16 follows from integers: its step is relative.
        numbers = [
            sorted({tried(some)} | {HALF}.intersection(some)) for some in choices
        ]
        trials = [
            tuple((one.name, number) for one in group)
            for group, some in zip(every, numbers, strict=True)
            for number in some
        ]
        effects = place.effects(trials, few)
        found = place.shares(effects)
        self._rows = tuple(found[0])
        left = iter(found)
        layers = []
        for group, some, measured in zip(every, choices, numbers, strict=True):
            shares = {number: [*next(left).values()] for number in measured}
            layers.append(
                Layer(
                    names=tuple(one.name for one in group),
                    modules=effects.parameters[group[0].name],
                    costs={
                        bits: sum(module.stored_bytes(one, bits) for one in group)
                        for bits in some
                    },
                    errors=errors_by_bits(tried(some), some, shares),
                )
            )
        if not any(layer.errors for layer in layers):
            msg = (
                f"no layer of {place.case.id} has the weights of a PyTorch parameter, "
                "so no layer can be measured, and there is nothing to choose."
            )
            raise SuiteError(msg)
        return tuple(layers)

    def _few(self, bits: int) -> tuple[int, ...]:
        """Return the inputs that rounding all layers moves most, or () for all."""
        place = self._place
        if len(place.inputs) <= FEW:
            return ()
        if place.what == LATENTS:  # each value is of all pictures together
            return tuple(range(FEW))
        self._say("the inputs that rounding moves most")
        whole = tuple(
            (one.name, max(bits, min(self._module.choices(one))))
            for group in self._groups
            for one in group
        )
        (shares,) = place.shares(place.effects([whole]))
        return place.most_moved(shares)

    def _chosen(
        self, layers: tuple[Layer, ...], margin: float
    ) -> tuple[list[int], dict[str, float]]:
        """Return the smallest plan that holds in PyTorch, and its additivity.

        Sums of single errors are only an estimate, and of a few inputs. So a plan is
        measured whole on all inputs of the search, and the budget is corrected by the
        value that uses most of its limit. Between a budget whose plan holds and one
        whose plan does not, the middle is next.
        """
        place, target = self._place, _ROOM * margin
        best, ratio = [FLOAT] * len(layers), dict[str, float]()
        budget, held, failed = margin, 0.0, 0.0
        for _ in range(_ROUNDS):
            plan = choose(layers, budget)
            if set(plan) == {FLOAT}:
                break
            (whole,) = place.shares(place.effects([bits_of(layers, plan)]))
            most = max(whole.values())
            holds = most <= target
            if holds and price(layers, plan) < price(layers, best):
                best = plan
                sums = zip(self._rows, summed(layers, plan), strict=True)
                ratio = {
                    row: one / whole[row] if whole[row] else 1.0 for row, one in sums
                }
            held, failed = (budget, failed) if holds else (held, budget)
            if held and failed:
                budget = math.sqrt(held * failed)
                continue
            # The error of a whole plan may be several times its sum in one plan and a
            # part of it in the next. So the budget goes half of the way, in decibels.
            change = math.sqrt(target / most) if most else _MOST_CHANGE
            budget *= min(max(change, 1 / _MOST_CHANGE), _MOST_CHANGE)
        return best, ratio
