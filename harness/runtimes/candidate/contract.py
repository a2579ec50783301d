"""Check a deployed file as PyTorch was: do its inputs matter, do its outputs repeat.

The checks run in the file's process, on its open session; only numbers come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.core.case import Component, TensorSpec
from harness.core.contract import beyond, unfreeze
from harness.core.entry import Entry
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.measure.sensitivity import (
    Arrays,
    Asked,
    Run,
    effects,
    effects_of,
    exchanged,
    loses,
    repeated,
)

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
    }


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
) -> StageError:
    """Return the error, or in its place the error that a size is fixed in the file.

    A size is fixed if no value that it has in a failing run occurs in a working run.
    """
    if error.outcome not in _CANNOT:
        return error
    bad = [_sizes(component, failed)]
    good: list[dict[str, int]] = []
    for other in feeds:
        if _sizes(component, other) in (*good, *bad):
            continue
        try:
            run(other)
        except StageError:
            bad.append(_sizes(component, other))
        else:
            good.append(_sizes(component, other))
    fixed = [
        symbol
        for symbol in bad[0]
        if good and not {s[symbol] for s in good} & {s[symbol] for s in bad}
    ]
    if not fixed:
        return error
    symbol = fixed[0]
    sizes = sorted({good_sizes[symbol] for good_sizes in good})
    places = (_place(s, symbol) for s in component.inputs if symbol in s.symbols)
    msg = (
        f"{component.name}: {model} runs at {symbol} = {', '.join(map(str, sizes))} "
        f"and not at {bad[0][symbol]}, so {symbol!r} ({', '.join(places)}) is fixed in "
        f"it, though it is to stay open; {unfreeze(component, (symbol,))} The runtime "
        f"says: {error}"
    )
    return StageError(msg, outcome=Outcome.FROZEN, log=error.log)


def _place(spec: TensorSpec, symbol: str) -> str:
    """Return ``axis 0 of input 'x'``; no axis where its size is a multiple."""
    if symbol not in spec.shape:
        return f"input {spec.name!r}"
    return f"axis {spec.shape.index(symbol)} of input {spec.name!r}"


def _sizes(component: Component, feeds: Arrays) -> dict[str, int]:
    return component.sizes({name: value.shape for name, value in feeds.items()})
