"""The memory of a scheduler after each step, in files that hold data alone.

`schedule.state_of` says what such a memory has: numbers, texts, tensors, and lists of
these. Tensors become arrays. The rest is MessagePack, because JSON has no infinity.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from harness.core.received import DamagedError, in_a_clause, read_bytes

if TYPE_CHECKING:
    import numpy as np

FILE = "states.msgpack"
_PREFIX = "states."
"""Prefix of the names of the tensors among the other arrays."""


class _Tensor(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor, by its number among the arrays."""

    at: int


class _Items(msgspec.Struct, frozen=True, tag="items"):
    """A list, or a tuple."""

    values: list[_Value]
    is_tuple: bool


_Value = bool | int | float | str | _Tensor | _Items | None


def save_states(
    states: Sequence[Mapping[str, Any]], arrays: MutableMapping[str, Any], folder: Path
) -> None:
    """Write `FILE` to a folder, and add the tensors to `arrays`, which has others."""
    tensors: list[torch.Tensor] = []

    def plain(value: Any) -> _Value:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return _Tensor(len(tensors) - 1)
        if isinstance(value, list | tuple):
            return _Items(list(map(plain, value)), isinstance(value, tuple))
        found: _Value = value
        return found

    told = [{name: plain(value) for name, value in state.items()} for state in states]
    (folder / FILE).write_bytes(msgspec.msgpack.encode(told))
    for at, tensor in enumerate(tensors):
        arrays[f"{_PREFIX}{at}"] = tensor.detach().cpu().numpy()


def load_states(
    arrays: Mapping[str, np.ndarray], folder: Path
) -> tuple[dict[str, Any], ...]:
    """Return what `save_states` wrote.

    Raises:
        OSError: The file cannot be read.
        DamagedError: It is damaged, or an array is missing.

    """

    def value(told: _Value) -> Any:
        if isinstance(told, _Tensor):
            return torch.from_numpy(arrays[f"{_PREFIX}{told.at}"].copy())
        if isinstance(told, _Items):
            values = list(map(value, told.values))
            return tuple(values) if told.is_tuple else values
        return told

    content = read_bytes(folder / FILE)
    with in_a_clause():
        told = msgspec.msgpack.decode(content, type=list[dict[str, _Value]])
    try:
        return tuple({name: value(one) for name, one in each.items()} for each in told)
    except KeyError as error:
        msg = f"{FILE} names the array {error}, which is not there"
        raise DamagedError(msg) from error
