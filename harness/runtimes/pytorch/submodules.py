"""A module as a program: the inputs and outputs of its submodules."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import accumulate

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from harness.core.probes import Probe, ValueKind
from harness.runtimes.pytorch.lineage import followed, watched
from harness.runtimes.pytorch.program import (
    Program,
    Rounding,
    as_computed,
    as_tuple,
    doubled,
    own_path,
    widened,
)


def program_of_module(
    module: torch.nn.Module, example: tuple[torch.Tensor, ...]
) -> Program:
    """Return a module's program, whose values are the outputs of its submodules.

    The name of a submodule means one value only if one forward calls it exactly once
    and it returns one tensor. A submodule that returns its input, or the output of its
    own submodule, computes no new value.
    """
    calls: Counter[str] = Counter()
    order: list[tuple[str, str, bool]] = []
    known: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def note(tensor: torch.Tensor) -> None:
        # The version counts changes in place: an in-place activation does compute.
        known[id(tensor)] = (weakref.ref(tensor), tensor._version)  # noqa: SLF001

    def before(_path: str, _part: torch.nn.Module, given: object) -> None:
        for value in given if isinstance(given, tuple) else ():
            if isinstance(value, torch.Tensor):
                note(value)

    def after(path: str, part: torch.nn.Module, returned: object) -> None:
        calls[path] += 1
        output = _one_tensor(returned)
        if output is not None:
            held, version = known.get(id(output), (None, 0))
            same = held is not None and held() is output
            passed_on = same and version == output._version  # noqa: SLF001
            order.append((path, type(part).__name__, passed_on))
            note(output)

    with torch.no_grad(), watched(module, before, after):
        module(*example)
    probes = tuple(
        Probe(
            name=path,
            position=position,
            kind=ValueKind.IDENTITY if passed_on else ValueKind.COMPUTE,
            op=cls,
            module=own_path(path),
        )
        for position, (path, cls, passed_on) in enumerate(order)
        if calls[path] == 1
    )
    wanted = frozenset(
        probe.name for probe in probes if probe.kind is ValueKind.COMPUTE
    )
    probes, shapes = followed(module, example, probes)

    def run(
        inputs: tuple[torch.Tensor, ...],
        on_value: Callable[[str, torch.Tensor], None],
        *,
        double: bool = False,
        rounding: Rounding = as_computed,
    ) -> tuple[torch.Tensor, ...]:
        def hand_over(path: str, _part: torch.nn.Module, returned: object) -> object:
            output = _one_tensor(returned)
            if path not in wanted or output is None:
                return None
            rounded = rounding(output)
            on_value(path, rounded)
            return None if rounded is output else _like(returned, rounded)

        inputs = doubled(inputs) if double else inputs
        weights = _in_double(module) if double else nullcontext()
        tensors = _Widening() if double else nullcontext()
        with torch.no_grad(), weights, watched(module, None, hand_over), tensors:
            return as_tuple(module(*inputs))

    return Program(
        probes=probes,
        run=run,
        place=module.to,
        scopes=scopes_of(calls),
        shapes=shapes,
    )


def _like(returned: object, tensor: torch.Tensor) -> object:
    """Return a tensor in the form in which a module returned one."""
    return (tensor,) if isinstance(returned, tuple) else tensor


def scopes_of(called: Mapping[str, int]) -> dict[str, str]:
    """Return the TorchScript exporter's scope of each submodule, to its path.

    A scope is the names of the called modules around a submodule, joined by ``/``. A
    name that is a number follows the names before it, back to the first that is not a
    number. A scope that two submodules share is left out.
    """
    scopes: dict[str, list[str]] = {}
    for path in called:
        above = accumulate(path.split("."), lambda one, two: f"{one}.{two}")
        names = [_last_name(part) for part in above if part in called]
        scopes.setdefault("/".join(names), []).append(path)
    return {scope: paths[0] for scope, paths in scopes.items() if len(paths) == 1}


class _Widening(TorchDispatchMode):
    """Makes float64 tensors where a module requests float32, for weights of any dtype.

    A table of frequencies is an example. A deployed file holds it as the exporting
    machine computed it, or as another program did, so its rounding is part of the noise
    floor, as it is in dynamo's program. MKL's `exp` alone differs between instruction
    sets by one unit in the last place, and a timestep of 999 multiplies that.
    """

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,  # no public name
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        wide = tree_map_only(torch.dtype, widened, kwargs or {})
        given = [leaf for leaf in tree_leaves((args, wide)) if torch.is_tensor(leaf)]
        mixed = len({one.dtype for one in given if one.is_floating_point()}) > 1
        # A tensor that is neither a parameter nor a buffer is not made wide with them.
        if mixed and not func._schema.is_mutable:  # noqa: SLF001  # no public name
            args, wide = tree_map_only(torch.Tensor, widened, (args, wide))
        return func(*args, **wide)


@contextmanager
def _in_double(module: torch.nn.Module) -> Iterator[None]:
    """Hold weights in float64 for the length of a ``with``; restore them exactly."""
    odd = [
        (table, name, value, value.data)
        for part in module.modules()
        for table in (part._parameters, part._buffers)  # noqa: SLF001  # to put back
        for name, value in table.items()
        if value is not None and value.is_floating_point()
        if value.dtype != torch.float32
    ]
    module.to(torch.float64)
    try:
        yield
    finally:
        module.to(torch.float32)
        for table, name, value, data in odd:
            value.data = data
            table[name] = value


def _last_name(path: str) -> str:
    """Return ``net.0`` of ``ff.net.0``."""
    parts = path.split(".")
    words = [place for place, part in enumerate(parts) if not part.isnumeric()]
    return ".".join(parts[words[-1] :]) if words else path


def _one_tensor(returned: object) -> torch.Tensor | None:
    """Return the tensor that a module returned, bare or as a tuple's only item."""
    if isinstance(returned, tuple) and len(returned) == 1:
        returned = returned[0]
    return returned if isinstance(returned, torch.Tensor) else None
