"""Make the folder of recorded calls: which tensors there are, and which sizes are open.

A size that differs between calls is an open axis. Axes whose sizes are equal in every
call have one name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.core.case import DTYPES, is_symbol
from harness.core.errors import SpecError
from harness.plugins.capture.calls import CallRecorder, RecordedCall
from harness.recipes.calls import Captured, Tensor
from harness.recipes.captured import weights_of

if TYPE_CHECKING:
    import torch

Sizes = tuple[int, ...]
"""The sizes of one axis, in each call."""

LIBRARIES: Final = ("diffusers", "transformers")
"""Libraries whose classes make a network from such a folder."""

_HALVES: Final = ("float16", "bfloat16")
_MOST_FORMS: Final = 4
"""How many forms of calls of one module are kept, each as a component."""

_SIDES: Final = {
    4: ("batch", "", "height", "width"),
    5: ("batch", "", "frames", "height", "width"),
}
"""What axes are called by the number of axes, where nothing else has the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Calls of one module that one graph can serve.

    Attributes:
        captured: What the folder says of them.
        tensors: The tensors of its file.

    """

    captured: Captured
    tensors: dict[str, torch.Tensor]


def forms_of(recorder: CallRecorder) -> tuple[dict[str, CallForm], str]:
    """Return the forms of a module's calls by the names of their components.

    The most frequent form comes first, and has the name of the module.

    Returns:
        The forms, and a sentence about calls that are left out; empty if none is.

    """
    calls = recorder.calls
    groups: dict[str, list[RecordedCall]] = {}
    for call in calls:
        groups.setdefault(call.form, []).append(call)
    ordered = sorted(groups.values(), key=len, reverse=True)
    notice = ""
    if left := ordered[_MOST_FORMS:]:
        notice = (
            f"{sum(map(len, left))} of {len(calls)} calls have other arguments than "
            "the others, and are left out"
        )
    forms = {
        f"{recorder.name}_{at}" if at > 1 else recorder.name: _form(
            recorder.module, own, recorder.opened
        )
        for at, own in enumerate(ordered[:_MOST_FORMS], 1)
    }
    return forms, notice


def _form(
    module: torch.nn.Module,
    calls: Sequence[RecordedCall],
    opened: Mapping[tuple[str, int], str],
) -> CallForm:
    first = calls[0]
    if not first.outputs:
        msg = (
            f"{type(module).__name__} returns no tensor, so there is nothing to "
            "compare; let forward return its result."
        )
        raise SpecError(msg)
    if not first.inputs:
        msg = (
            f"{type(module).__name__} gets no tensor, so nothing can be fed to a file."
        )
        raise SpecError(msg)
    symbols = _symbols(calls, opened)
    inputs = [
        Tensor(
            name,
            [symbols.get(axis, axis[0]) for axis in _axes(calls, name)],
            _dtype(name, one),
        )
        for name, one in first.inputs.items()
    ]
    taken = {one.name for one in inputs}
    outputs = [
        Tensor(
            f"out_{name}" if name in taken else name,  # a graph has each name once
            [
                _derived(axis, symbols, f"{name}_{at}")
                for at, axis in enumerate(_axes(calls, name, of="outputs"))
            ],
            _dtype(name, one),
        )
        for name, one in first.outputs.items()
    ]
    digest, parameters = weights_of(module)
    captured = Captured(
        format=1,
        module=name_of(module),
        weights=digest,
        parameters=parameters,
        arguments=first.arguments,
        inputs=inputs,
        outputs=outputs,
        calls=[
            {name: sizes[at] for sizes, name in symbols.items()}
            for at in range(len(calls))
        ],
    )
    tensors = {
        f"{at}/{part}{number}": one
        for at, call in enumerate(calls)
        for part, own in (("", call.inputs), ("out/", call.outputs))
        for number, one in enumerate(own.values())
    }
    return CallForm(captured=captured, tensors=tensors)


def name_of(module: torch.nn.Module) -> str:
    """Return the name of a module's class, as a suite has it, and of its method."""
    from harness.recipes.methods import called_by

    network, called = called_by(module)
    method = "" if called == "forward" else f".{called}"
    cls = type(network)
    top = cls.__module__.partition(".")[0]
    known = sys.modules.get(top) if top in LIBRARIES else None
    home = top if hasattr(known, cls.__qualname__) else cls.__module__
    return f"{home}:{cls.__qualname__}{method}"


def _axes(calls: Sequence[RecordedCall], name: str, of: str = "inputs") -> list[Sizes]:
    """Return the sizes of each axis of a tensor, in every call."""
    shapes = [tuple(getattr(call, of)[name].shape) for call in calls]
    return list(zip(*shapes, strict=True))


def _symbols(
    calls: Sequence[RecordedCall], opened: Mapping[tuple[str, int], str]
) -> dict[Sizes, str]:
    """Return a name for the sizes of each open axis."""
    symbols: dict[Sizes, str] = {}
    for name in calls[0].inputs:
        axes = _axes(calls, name)
        for axis, sizes in enumerate(axes):
            wanted = opened.get((name, axis), "")
            if sizes in symbols or (len(set(sizes)) == 1 and not wanted):
                continue
            symbols[sizes] = wanted or _named(name, axis, len(axes), symbols.values())
    return symbols


def _named(name: str, axis: int, count: int, taken: Iterable[str]) -> str:
    """Return what an open axis is called: by its place, or by its tensor and number."""
    taken = set(taken)
    sides = _SIDES.get(count, ("batch", "tokens"))
    usual = sides[axis] if axis < len(sides) else ""
    plain = re.sub(r"\W", "_", name)[:40]
    if not plain.isidentifier():
        plain = f"input_{plain}"
    for one in (usual, f"{plain}_{axis}"):
        if one and is_symbol(one) and one not in taken:
            return one
    return next(
        f"{plain}_{axis}_{at}"
        for at in range(2, 1000)
        if f"{plain}_{axis}_{at}" not in taken
    )


def _derived(  # noqa: PLR0911  # one for each way
    sizes: Sizes, named: dict[Sizes, str], own_name: str
) -> int | str:
    """Return a size of an output, as it follows from those of the inputs.

    A size that follows in no way that `TensorSpec` can say gets a name of its own.
    """
    if sizes in named:
        return named[sizes]
    if len(set(sizes)) == 1:
        return sizes[0]
    for own, name in [*named.items()]:
        pairs = list(zip(own, sizes, strict=True))
        times = {
            given // one if one and given % one == 0 else 0 for one, given in pairs
        }
        if len(times) == 1 and (by := times.pop()) > 1:
            return f"{by}*{name}"
        for over in range(2, 65):
            if all(-(-one // over) == given for one, given in pairs):
                return f"{name}/{over}"
        more = {given - one for one, given in pairs}
        if len(more) == 1 and (added := more.pop()) > 0:
            return f"{name}+{added}"
        for other, beside in named.items():
            if all(a + b == given for (a, given), b in zip(pairs, other, strict=True)):
                return f"{name}+{beside}"
    named[sizes] = name = re.sub(r"\W", "_", f"output_{own_name}")[:60]
    return name


def _dtype(name: str, tensor: torch.Tensor) -> str:
    """Return the dtype in which a tensor is tested."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype in _HALVES:
        return "float32"
    if dtype not in DTYPES:
        msg = (
            f"{name} is of {dtype}, and files are compared in {', '.join(DTYPES)}; "
            "cast it inside forward."
        )
        raise SpecError(msg)
    return dtype
