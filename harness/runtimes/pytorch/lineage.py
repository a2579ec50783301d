"""From which values of a module's submodules another one's value is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from harness.core.probes import Probe, ValueKind

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_SAME = frozenset({"alias", "clone", "detach", "lift_fresh"})
"""Operators that pass a value on, in its own shape."""

Seen = Callable[[str, torch.nn.Module, object], object]
"""A function that gets a submodule's path, the submodule, and its inputs or output.
What it returns replaces them, unless it returns None."""


Shapes = dict[str, tuple[int | None, ...]]


def followed(
    module: torch.nn.Module,
    example: tuple[torch.Tensor, ...],
    probes: Sequence[Probe],
) -> tuple[tuple[Probe, ...], Shapes]:
    """Run a module, and record from which values its submodules' values are computed.

    Returns:
        The probes with their parents, and with whether something stands between a
        module and them; and the shape of each computed value.

    """
    wanted = {probe.name for probe in probes if probe.kind is ValueKind.COMPUTE}
    following = _Following()
    shapes: Shapes = {}
    parents: dict[str, frozenset[str]] = {}
    between: set[str] = set()

    def before(_path: str, _part: torch.nn.Module, _given: object) -> None:
        following.calls.append(_Call())

    def after(path: str, _part: torch.nn.Module, returned: object) -> None:
        call = following.calls.pop()
        tensors = list(_tensors(returned))
        if path in wanted and len(tensors) == 1:
            shapes[path] = tuple(tensors[0].shape)
            made = following.name(tensors[0], path)
            parents[path] = made.names - {path}
            between.update([path] if call in made.into else [])

    with watched(module, before, after), torch.no_grad(), following:
        module(*example)
    # Parents are in order of execution, not in the order in which they were read.
    order = {probe.name: probe.position for probe in probes}
    return tuple(
        replace(
            probe,
            parents=tuple(sorted(parents.get(probe.name, ()), key=order.__getitem__)),
            between=probe.name in between,
        )
        for probe in probes
    ), shapes


class _Call:
    """One call of a submodule."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """How a tensor was computed.

    Attributes:
        names: Nearest named values that it was computed from.
        named: Whether it is such a value itself. It no longer is once its numbers are
            changed in place, which PyTorch counts as its version.
        calls: Calls of submodules in which it was computed, the outermost first.
        into: Calls that read, for it, a tensor from outside that is no named value.

    """

    names: frozenset[str] = frozenset()
    named: bool = True
    calls: Sequence[_Call] = ()
    into: frozenset[_Call] = frozenset()


_GIVEN = _Origin()
"""The origin of an input of the module, of a weight and of a constant."""


class _Following(TorchDispatchMode):
    """Follows from which named values each tensor was computed.

    `calls` are the calls of submodules that have not returned, the outermost first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._origins = WeakTensorKeyDictionary()

    def name(self, tensor: torch.Tensor, path: str) -> _Origin:
        """Give a tensor a name; return how it was computed."""
        before = self._origin(tensor)
        self._origins[tensor] = tensor._version, _Origin(frozenset((path,)))  # noqa: SLF001  # no public name
        return before

    def _origin(self, tensor: torch.Tensor) -> _Origin:
        version, origin = self._origins.get(tensor, (None, _GIVEN))
        same = version in {None, tensor._version}  # noqa: SLF001  # no public name
        return origin if same else replace(origin, named=False)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,  # no public name
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        kwargs = kwargs or {}
        read = [self._origin(tensor) for tensor in _tensors((args, kwargs))]
        unnamed = [origin for origin in read if not origin.named]
        result = func(*args, **kwargs)
        names = frozenset[str]().union(*(origin.names for origin in read))
        into = frozenset(
            call for one in unnamed for call in self.calls if call not in one.calls
        ).union(*(one.into for one in unnamed))
        same = func._schema.name.removeprefix("aten::") in _SAME  # noqa: SLF001  # no public name
        named = same and bool(read) and read[0].named
        for one in _tensors(result):
            made = _Origin(names, named, tuple(self.calls), into)
            self._origins[one] = one._version, made  # noqa: SLF001  # no public name
        return result


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


@contextmanager
def watched(
    module: torch.nn.Module, before: Seen | None, after: Seen
) -> Iterator[None]:
    """Watch each submodule's call and return, for the length of a ``with``."""

    def hooks(path: str, part: torch.nn.Module) -> list[RemovableHandle]:
        made = [part.register_forward_hook(lambda m, _, out: after(path, m, out))]
        if before is not None:
            made.append(part.register_forward_pre_hook(lambda m, x: before(path, m, x)))
        return made

    parts = [(path, part) for path, part in module.named_modules() if path]
    handles = [handle for path, part in parts for handle in hooks(path, part)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
