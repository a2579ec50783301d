"""Sizes that a suite does not name: every open axis is run at three, outputs only.

A file that is right at the sizes it was traced and tested with may have fixed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod

from harness.components import recipe_module
from harness.errors import SuiteError
from harness.matrix import Binding, Drawing, symbols_of
from harness.spec import Case, Component, Sample

FEWEST = 3
"""Sizes of each open axis."""

BATCH = "batch"
"""In the name of an axis of items, which files of others call ``batch_size``."""

_BATCHES = (1, 2, 3)
_LARGEST_STEP = 64


def with_more_sizes(cases: Sequence[Case], drawing: Drawing) -> list[Case]:
    """Add samples that bring every open size to three, beside the suite's own.

    Raises:
        SuiteError: The suite gives an open size that the network cannot take open.

    """
    return [
        replace(case, samples=(*case.samples, *_more(case, drawing))) for case in cases
    ]


def check_fit(component: Component, bindings: Sequence[Binding]) -> None:
    """Refuse sizes that the network does not take, as its recipe knows.

    Raises:
        SuiteError: Naming the size's line.

    """
    say = getattr(recipe_module(component.recipe), "unfit", None)
    if say is None:
        return
    for binding in bindings:
        symbol, why = say(component.source, binding.sizes)
        if symbol:
            text = f"{component.name!r}: {why}"
            raise binding.table.error(text, symbol)


def _more(case: Case, drawing: Drawing) -> Iterator[Sample]:
    """Yield samples in which open sizes change together, so that there are few.

    What is not open keeps the size it has where the others are smallest.
    """
    symbols = [s for s in symbols_of(case.component) if s in case.export.dynamic]
    if not symbols:
        return
    bound = [dict(sample.shapes) for sample in case.samples]
    given = {symbol: sorted({sizes[symbol] for sizes in bound}) for symbol in symbols}
    known = _multiples(case.component)
    steps = {symbol: _step(symbol, given[symbol], known) for symbol in symbols}
    _check(case.component, given, steps)
    if not drawing.sizes or _is_silent(case.component):
        return
    smallest = min(bound, key=lambda sizes: prod(sizes.values()))
    missing = [
        _missing(symbol, given[symbol], steps[symbol], place)
        for place, symbol in enumerate(symbols)
    ]
    for at, sizes in enumerate(zip_longest(*missing)):
        yield _sample(
            case, drawing, at, smallest, dict(zip(symbols, sizes, strict=True))
        )


def _is_silent(component: Component) -> bool:
    """Whether no file of a component says which of its sizes are open.

    An ``.mnn`` file has an open first axis as 1, as it has one that is fixed at 1.
    """
    return component.taken is not None and component.taken.onnx is None


def _sample(
    case: Case,
    drawing: Drawing,
    at: int,
    smallest: Mapping[str, int],
    sizes: Mapping[str, int | None],
) -> Sample:
    changed = {symbol: size for symbol, size in sizes.items() if size is not None}
    profiles = [sample.profile for sample in case.samples]
    profile = "realistic" if "realistic" in profiles else profiles[0]
    # Realistic draws go on counting: another timestep, other noise.
    index = drawing.realistic + at if profile == "realistic" else at + 1
    return Sample(
        profile=profile,
        index=index,
        shapes=tuple(sorted({**smallest, **changed}.items())),
        seed=drawing.seed,
        layers=False,
        label="-".join(f"{symbol}{size}" for symbol, size in changed.items()),
    )


def _missing(symbol: str, given: Sequence[int], step: int, place: int) -> Iterator[int]:
    """Yield sizes until there are enough: small ones, and uneven where they may be."""
    left = FEWEST - len(given)
    if BATCH in symbol.lower():
        yield from [size for size in _BATCHES if size not in given][: max(left, 0)]
        return
    below = range(given[0] - step, step, -step)
    above = range(given[0] + step, given[0] + 8 * step, step)
    fresh = [size for size in (*below, *above) if size not in given]
    # Axes side by side get other sizes, so that none passes for its neighbour.
    yield from fresh[place % 2 :][: max(left, 0)]


def _multiples(component: Component) -> Mapping[str, int] | None:
    """Return what a recipe says its open sizes must be multiples of, if it says."""
    say = getattr(recipe_module(component.recipe), "multiples", None)
    if say is None:
        return None
    found: Mapping[str, int] = say(component.source, dict(component.options))
    return found


def _step(symbol: str, given: Sequence[int], known: Mapping[str, int] | None) -> int:
    """Return what a size must be a multiple of: as said, or as all that are given."""
    if BATCH in symbol.lower():
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
