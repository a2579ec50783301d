"""Check a deployed file as PyTorch was: do its inputs matter, do its outputs repeat.

The checks run in the file's process, on its open session; only numbers come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.case import Component, TensorSpec
from harness.core.contract import unfreeze
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.named_arrays import Arrays, Run
from harness.plugins.contracts.runs.sensitivity import (
    Asked,
    beside,
    beside_of,
    effects,
    effects_of,
    exchanged,
    loses,
    repeated,
)
from harness.recipes.value_ranges import beyond

Array = npt.NDArray[Any]

_CANNOT = frozenset({Outcome.RUN, Outcome.SHAPE})
"""Outcomes of a failed run whose reason may be its sizes."""


def ask_file(
    run: Run,
    component: Component,
    feeds: Sequence[Arrays],
    first: Arrays,
    asked: Entry,
) -> dict[str, Any]:
    """Return how a file keeps its component's contract, as a record holds it.

    The file has run every sample of `feeds` once, in order, and `first` are its outputs
    for the first one. `asked` holds the inputs and outputs of PyTorch's check. If an
    output has a NaN where PyTorch's is finite, no input has an effect that is known.

    Raises:
        StageError: An input has values outside the range of its kind.

    """
    spans = {spec.name: _span(spec.name, feeds) for spec in component.inputs}
    for spec in component.inputs:
        if words := beyond(spec, *spans[spec.name]):
            msg = f"{component.name}: input {words}; fix how its recipe draws it."
            raise StageError(msg, outcome=Outcome.REFERENCE)
    # The first sample runs again after all others, so after every other size, and then
    # once more. Values that are read from outputs are not compared again.
    made = {spec.name: first[spec.name] for spec in component.outputs}
    gap = repeated(run, feeds[0], made, times=2)
    reference = effects_of(asked)
    question = Asked.load(asked)
    outputs, found = effects(run, question.base, question.changed)
    expected = {name: question.outputs[name] for name in outputs}
    lost = loses(expected, outputs)
    swaps = () if lost else exchanged(run, question.base, expected, outputs)
    own, theirs = beside_of(asked), _beside(run, component, question)
    return {
        "sizes": _sizes(component, question.base),
        "inputs": [
            {
                "name": spec.name,
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "low": spans[spec.name][0],
                "high": spans[spec.name][1],
                "reference": reference.get(spec.name),
                "deployed": None if lost else found[spec.name],
            }
            for spec in component.inputs
        ],
        "exchanged": list(swaps),
        "repeated": gap,
        "beside": {
            what: {"reference": own[what], "deployed": moved}
            for what, moved in theirs.items()
            if what in own
        },
    }


def _beside(run: Run, component: Component, question: Asked) -> dict[str, float]:
    """Return how far an item's answers move; empty where the file has another batch."""
    try:
        return beside(run, component, question.batch)
    except StageError:
        return {}


def _span(name: str, feeds: Sequence[Arrays]) -> tuple[float, float]:
    """Return the range of an input's values; 0 to 0 for one that is always empty."""
    filled = [values[name] for values in feeds if values[name].size]
    low = min((float(np.min(value)) for value in filled), default=0.0)
    return low, max((float(np.max(value)) for value in filled), default=0.0)


def frozen(
    error: StageError,
    run: Run,
    component: Component,
    model: str,
    *,
    feeds: Sequence[Arrays],
    failed: Arrays,
) -> StageError | None:
    """Return the error that sizes are fixed in the file, or None.

    A size is named if the file ran before, and does not run once that size alone is
    changed. Where only several changed sizes together fail, all of them are named.
    """
    if error.outcome not in _CANNOT:
        return None
    bad = [_sizes(component, failed)]
    good: list[dict[str, int]] = []
    ran: list[Arrays] = []
    for other in feeds:
        sizes = _sizes(component, other)
        if sizes in (*good, *bad):
            continue
        if _runs(run, other):
            good.append(sizes)
            ran.append(other)
        else:
            bad.append(sizes)
    if not good:
        return None
    fixed = dict(_alone(run, component, ran, good, bad))
    alone = bool(fixed)
    if not alone:
        fixed = {
            symbol: size
            for symbol, size in bad[0].items()
            if not {s[symbol] for s in good} & {s[symbol] for s in bad}
        }
    if not fixed:
        return None
    not_at = _listed([fixed], fixed)
    if len(fixed) == 1:
        not_at = not_at.partition(" = ")[2]
    msg = (
        f"{component.name}: {model} runs at {_listed(good, fixed)} and not at "
        f"{not_at}, so {_named(component, good, fixed)}, though "
        f"{'it is' if len(fixed) == 1 else 'they are'} to stay open"
        f"{'' if alone or len(fixed) == 1 else ' (each of them alone can change)'}; "
        f"{unfreeze(component, tuple(fixed))} The runtime says: {error}"
    )
    return StageError(msg, outcome=Outcome.FROZEN, log=error.log)


def _alone(
    run: Run,
    component: Component,
    ran: Sequence[Arrays],
    good: Sequence[dict[str, int]],
    bad: Sequence[dict[str, int]],
) -> Iterator[tuple[str, int]]:
    """Yield each symbol, and a size, with which the file fails if it alone changes."""
    for symbol in bad[0]:
        known = {sizes[symbol] for sizes in good}
        for size in dict.fromkeys(sizes[symbol] for sizes in bad):
            if size in known:
                continue
            # The run that is changed is the one which is most like a failed one.
            at = max(range(len(good)), key=lambda at: _shared(good[at], bad[0]))
            sizes = {**good[at], symbol: size}
            feeds = {
                spec.name: _resized(ran[at][spec.name], spec.bind(sizes))
                if symbol in spec.symbols
                else ran[at][spec.name]
                for spec in component.inputs
            }
            if not _runs(run, feeds):
                yield symbol, size
                break


def _runs(run: Run, feeds: Arrays) -> bool:
    try:
        run(feeds)
    except StageError:
        return False
    return True


def _shared(one: dict[str, int], other: dict[str, int]) -> int:
    return sum(one[symbol] == other[symbol] for symbol in one)


def _resized(values: Array, shape: Sequence[int]) -> Array:
    """Return values in another shape: an axis is cut, or begins again at its end."""
    for axis, size in enumerate(shape):
        values = np.take(values, range(size), axis=axis, mode="wrap")
    return values


def _listed(runs: Sequence[dict[str, int]], symbols: Iterable[str]) -> str:
    """Return ``height = 10, 12 and width = 10``."""
    return " and ".join(
        f"{symbol} = {', '.join(map(str, sorted({sizes[symbol] for sizes in runs})))}"
        for symbol in symbols
    )


def _named(
    component: Component, good: Sequence[dict[str, int]], fixed: Collection[str]
) -> str:
    """Return ``'height' (axis 2 of input 'x') is fixed in it``."""
    names = " and ".join(
        f"{symbol!r} ("
        + ", ".join(_place(s, symbol) for s in component.inputs if symbol in s.symbols)
        + ")"
        for symbol in fixed
    )
    is_one = len(fixed) == 1
    if any(len({sizes[symbol] for sizes in good}) > 1 for symbol in fixed):
        return f"{names} {'is' if is_one else 'are'} not open in it"
    return f"{names} {'is' if is_one else 'are'} fixed in it"


def _place(spec: TensorSpec, symbol: str) -> str:
    """Return ``axis 0 of input 'x'``; no axis where its size is a multiple."""
    if symbol not in spec.shape:
        return f"input {spec.name!r}"
    return f"axis {spec.shape.index(symbol)} of input {spec.name!r}"


def _sizes(component: Component, feeds: Arrays) -> dict[str, int]:
    return component.sizes({name: value.shape for name, value in feeds.items()})
