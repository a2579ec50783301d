"""Find what a module changes in forward, so that its next run is another one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch

_LIMIT_BYTES: Final = 2**28
"""Buffers of more than this together are not copied, and then not named."""

_PLAIN: Final = (bool, int, float, str, type(None))
_ABSENT: Final = object()


@dataclass(eq=False)
class State:
    """The buffers of a module, and its own attributes, as they were at one time."""

    module: torch.nn.Module
    _kept: dict[tuple[str, str, str], Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        left = _LIMIT_BYTES
        for place, value in self._values():
            left -= _bytes(value)
            if left >= 0:
                with suppress(RuntimeError, NotImplementedError):  # of a rare layout
                    self._kept[place] = copy.deepcopy(value)

    def changed(self) -> list[tuple[str, str]]:
        """Return what is another one now: ``buffer`` or ``attribute``, and the name."""
        now = dict(self._values())
        return [
            (kind, ".".join(filter(None, (path, name))))
            for kind, path, name in {**self._kept, **now}
            if not _same(
                self._kept.get((kind, path, name), _ABSENT),
                now.get((kind, path, name), _ABSENT),
            )
        ]

    def restore(self) -> None:
        """Give the module back what it had."""
        for kind, path, name in dict(self._values()):
            if (kind, path, name) not in self._kept:
                delattr(self.module.get_submodule(path), name)
        for (_, path, name), value in self._kept.items():
            setattr(self.module.get_submodule(path), name, copy.deepcopy(value))

    def _values(self) -> Iterator[tuple[tuple[str, str, str], Any]]:
        for path, part in self.module.named_modules():
            for name, value in part.named_buffers(recurse=False):
                yield ("buffer", path, name), value
            for name, value in vars(part).items():
                if not name.startswith("_") and name != "training" and _is_state(value):
                    yield ("attribute", path, name), value


def _is_state(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_state, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_state, value))
    return isinstance(value, (torch.Tensor, *_PLAIN)) and not (
        isinstance(value, torch.Tensor) and value.requires_grad
    )


def _bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0


def _same(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        if alike and (one.is_floating_point() or one.is_complex()):
            return bool(((one == other) | (one.isnan() & other.isnan())).all())
        return alike and bool(torch.equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
