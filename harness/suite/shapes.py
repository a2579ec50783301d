"""Additional sizes: every open axis is run at more sizes, and outputs are compared.

A file that is right at the sizes of its trace and tests may have fixed one of them. So
each open axis is tried below the suite's size, just above it and at twice that size,
and the batch with up to five items. A size that a network cannot take raises
`SuiteError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count, islice, zip_longest
from math import prod

from harness.core.case import CAPTURED, GIVEN, Case, Component, Sample
from harness.core.contract import is_batch
from harness.core.errors import SuiteError
from harness.core.memory import installed_bytes
from harness.recipes import RECIPES, recipe_module
from harness.recipes.checkpoint import read_config
from harness.recipes.text.folder import is_encoder, longest
from harness.suite.forecast import files_bytes
from harness.suite.schema import InputsTable
from harness.suite.tables import Binding, symbols_of

_TRANSFORMER = "transformer"

FEWEST = 3
"""Number of sizes of each open axis that do not exceed the suite's largest."""

_SHARE = 4
"""Larger sizes are run if weights take this fraction (one in so many) of all memory."""

_BATCHES = (1, 2, 3, 4, 5)
_PICTURE = 4
"""Number of axes of a picture: batch, channels, height, width."""

_LARGEST_STEP = 64


def with_more_sizes(cases: Sequence[Case], inputs: InputsTable) -> list[Case]:
    """Add samples that run every open axis at more sizes than the suite's own.

    A network whose files take more than a quarter of the installed memory runs at no
    larger size than the suite's. What is left out is listed in `Case.too_large`.
    """
    found = []
    for case in cases:
        more = list(_more(case, inputs))
        found.append(
            replace(
                case,
                samples=(*case.samples, *(sample for sample, fits in more if fits)),
                too_large=tuple(sample.label for sample, fits in more if not fits),
            )
        )
    return found


def not_above(case: Case, ran: Sequence[Sample]) -> tuple[str, ...]:
    """Return which open axes ran at no larger size than the suite's own.

    Batches are left out, and so is a case without added sizes.
    """
    own = [dict(sample.shapes) for sample in case.samples if not sample.label]
    if not (own and case.too_large) and not any(s.added for s in case.samples):
        return ()
    top = {symbol: max(one[symbol] for one in own) for symbol in own[0]}
    return tuple(
        f"{symbol} above {most}"
        for symbol, most in top.items()
        if symbol in case.export.dynamic
        and not is_batch(symbol)
        and not any(dict(sample.shapes)[symbol] > most for sample in ran)
    )


def check_fit(component: Component, bindings: Sequence[Binding]) -> None:
    """Refuse sizes that the network does not take, according to its recipe."""
    for binding in bindings:
        symbol, why = _unfit(component, binding.sizes)
        if symbol:
            text = f"{component.name!r}: {why}"
            raise binding.table.error(text, symbol)


def _unfit(component: Component, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return a size that the recipe says the network does not take, and the reason."""
    say = getattr(recipe_module(component.recipe), "unfit", None)
    found: tuple[str, str] = say(component.source, sizes) if say else ("", "")
    return found


def _more(case: Case, inputs: InputsTable) -> Iterator[tuple[Sample, bool]]:
    """Yield samples, and whether there is enough memory for each.

    Open sizes change together, so that there are few samples. Fixed sizes keep the
    values that they have where the open sizes are smallest.
    """
    symbols = [s for s in symbols_of(case.component) if s in case.export.dynamic]
    if not symbols:
        return
    bound = [dict(sample.shapes) for sample in case.samples]
    given = {symbol: sorted({sizes[symbol] for sizes in bound}) for symbol in symbols}
    known = _multiples(case.component)
    steps = {symbol: _step(symbol, given[symbol], known) for symbol in symbols}
    _check(case.component, given, steps)
    # An .mnn file stores an open first axis as 1, like an axis that is fixed at 1. So
    # such a file alone does not show which of its sizes are open.
    foreign = case.component.foreign
    if not inputs.more_sizes or (foreign is not None and foreign.onnx is None):
        return
    smallest = min(bound, key=lambda sizes: prod(sizes.values()))
    sides = [symbol for symbol in symbols if not is_batch(symbol)]
    missing = {
        symbol: _sizes(case.component, symbol, given[symbol], steps[symbol], sides)
        for symbol in sides
    }
    rows = max(map(len, missing.values()), default=0)
    for symbol in symbols:
        if is_batch(symbol):
            batches = [size for size in _BATCHES if size not in given[symbol]]
            # The largest size is used with the smallest batch.
            missing[symbol] = [None] * (rows - len(batches)) + batches
    fits = _has_room(case.component)
    profiles = [sample.profile for sample in case.samples]
    profile = "realistic" if "realistic" in profiles else profiles[0]
    # Realistic draws continue the count, for another timestep and other noise.
    indices = count(inputs.realistic if profile == "realistic" else 1)
    seen, labels = list(bound), {sample.label for sample in case.samples}
    for row in zip_longest(*(missing[symbol] for symbol in symbols)):
        changed = {s: size for s, size in zip(symbols, row, strict=True) if size}
        _separate(changed, smallest, steps)
        unsure = any(
            size > given[symbol][-1] and _may_be_refused(case.component, symbol)
            for symbol, size in changed.items()
        )
        are_together = fits and not unsure
        for part in _parts(case.component, changed, smallest, together=are_together):
            sizes = {**smallest, **part}
            label = "-".join(f"{symbol}{size}" for symbol, size in part.items())
            if sizes in seen:
                continue
            seen.append(sizes)
            if label in labels:  # t1 at 3, and t at 13
                label = "-".join(f"{symbol}.{size}" for symbol, size in part.items())
            labels.add(label)
            is_larger = any(size > given[one][-1] for one, size in part.items())
            sample = Sample(
                profile=profile,
                index=next(indices),
                shapes=tuple(sorted(sizes.items())),
                seed=inputs.seed,
                layers=False,
                label=label,
                # A file that is its own reference declares which sizes it takes.
                added=is_larger or case.component.recipe != GIVEN,
            )
            yield sample, fits or not is_larger


def _has_room(component: Component) -> bool:
    """Whether there is memory for values at larger sizes beside a network's weights."""
    with suppress(SuiteError, OSError):  # the case reports a damaged checkpoint
        return files_bytes(component) * _SHARE <= installed_bytes()
    return True


def _separate(
    changed: dict[str, int], smallest: Mapping[str, int], steps: Mapping[str, int]
) -> None:
    """Change sizes until no two sides are equal, to detect exchanged axes."""
    used = {
        size
        for symbol, size in smallest.items()
        if symbol not in changed and not is_batch(symbol)
    }
    for symbol, size in changed.items():
        if not is_batch(symbol):
            free = next(at for at in count(size, steps[symbol]) if at not in used)
            changed[symbol] = free
            used.add(free)


def _parts(
    component: Component,
    changed: Mapping[str, int],
    smallest: Mapping[str, int],
    *,
    together: bool,
) -> list[Mapping[str, int]]:
    """Return all sizes `together`, or batch and sides separately.

    Sizes that the network does not take are left out.
    """
    batch = {symbol: size for symbol, size in changed.items() if is_batch(symbol)}
    sides = {symbol: size for symbol, size in changed.items() if symbol not in batch}
    parts: list[Mapping[str, int]] = [part for part in (sides, batch) if part]
    if together and not _unfit(component, {**smallest, **changed})[0]:
        parts = [changed]
    return [part for part in parts if not _unfit(component, {**smallest, **part})[0]]


def _sizes(
    component: Component,
    symbol: str,
    given: Sequence[int],
    step: int,
    sides: Sequence[str],
) -> list[int | None]:
    """Return sizes to add to an axis, the largest first; None keeps the smallest.

    Sides of a picture are large in turns, so that no sample is large in both.
    """
    top, most, place = given[-1], _most(component), sides.index(symbol)
    larger = [2 * top, top + step]
    if most is not None:
        limit = most - most % step
        larger = [min(size, limit) for size in larger if limit > top]
    larger = list(dict.fromkeys(larger))
    below = range(given[0] - step, step, -step)
    above = range(given[0] + step, given[0] + 8 * step, step)
    # A size may be so large that a list of all below it would not fit into memory.
    fresh = (size for size in chain(below, above) if size not in {*given, *larger})
    start = place % 2
    smaller = [*islice(fresh, start, start + max(FEWEST - len(given), 0))]
    if len(sides) == 1:
        return [*larger, *smaller]
    turns = zip_longest(larger, smaller)
    found = [size for pair in turns for size in (pair[::-1] if place % 2 else pair)]
    while found and found[-1] is None:
        found.pop()
    return found


def _most(component: Component) -> int | None:
    """Return the largest value of an open size; None without a limit.

    A table of positions has a limit that only some recipes know. Where no recipe knows
    one, the reference may refuse the larger sizes.
    """
    recipe, source = component.recipe, component.source
    if recipe == _TRANSFORMER:
        config = read_config(source, _TRANSFORMER)
        table = config.whole("pos_embed_max_size", 0)
        return table * config.whole("patch_size", 1)
    if recipe in {*RECIPES} - {GIVEN, CAPTURED} and is_encoder(source):
        return longest(source)
    return None


def _may_be_refused(component: Component, symbol: str) -> bool:
    """Whether nothing says that the reference takes a larger size of an axis."""
    if component.recipe in {*RECIPES} - {GIVEN, CAPTURED}:
        return False
    sides = (s.symbols for s in component.inputs if len(s.shape) == _PICTURE)
    said = _multiples(component) is not None or symbol in {s for x in sides for s in x}
    return not (said or is_batch(symbol))


def _multiples(component: Component) -> Mapping[str, int] | None:
    """Return the numbers that open sizes must be multiples of, from the recipe."""
    say = getattr(recipe_module(component.recipe), "multiples", None)
    if say is None:
        return None
    found: Mapping[str, int] = say(component.source, dict(component.options))
    return found


def _step(symbol: str, given: Sequence[int], known: Mapping[str, int] | None) -> int:
    """Return the number that a size must be a multiple of, by recipe or given sizes."""
    if is_batch(symbol):
        return 1
    if known is not None:
        return known.get(symbol, 1)
    step = 1
    while step < _LARGEST_STEP and all(size % (2 * step) == 0 for size in given):
        step *= 2
    return step


def _check(
    component: Component, given: Mapping[str, Sequence[int]], steps: Mapping[str, int]
) -> None:
    for symbol, step in steps.items():
        for size in given[symbol]:
            if size % step:
                low = size - size % step
                near = f"{low} or {low + step}" if low else f"{step}"
                msg = (
                    f"{component.name}: {symbol} = {size} of [[shapes]] cannot be an "
                    "open size, for the network halves it, and only multiples of "
                    f"{step} come out even: take {near}, or leave {symbol!r} out of "
                    "dynamic_axes, so that each size gets a file of its own."
                )
                raise SuiteError(msg)
