"""Tensors in nested arguments and results, and the plain data around them.

A `Tree` is a value for JSON: one key says what it is, and its value holds the rest.
Tuples, lists, dicts, data classes, named tuples and the caches of transformers may be
nested, around tensors, numbers, texts and None.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.errors import SpecError
from harness.core.received import DamagedError

if TYPE_CHECKING:
    import torch

Tree = dict[str, Any]
"""One value, as data: ``{"tensor": 0}``, ``{"value": 2}``, ``{"tuple": [...]}``, …"""

_DEEPEST = 32


def taken_apart(  # noqa: C901, PLR0911  # one for each kind of value
    value: Any, name: str, tensors: dict[str, torch.Tensor]
) -> Tree:
    """Return the plain data of a value, and put its tensors into `tensors`.

    Args:
        value: What somebody gave to a network, or what a network returned.
        name: The name of the value; a part of it is ``name.part``.
        tensors: Receives each tensor by its name.

    Raises:
        SpecError: A part of it is neither a tensor nor plain data.

    """
    import torch

    def parts(items: Mapping[str, Any]) -> Tree:
        return {
            key: taken_apart(item, f"{name}.{key}" if name else key, tensors)
            for key, item in items.items()
        }

    def listed(items: Sequence[Any]) -> list[Tree]:
        return list(parts({str(at): item for at, item in enumerate(items)}).values())

    if isinstance(value, torch.Tensor):
        tensors[free := _free(name or "output", tensors)] = value
        return {"tensor": list(tensors).index(free)}
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        return {"value": value} if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    if (layers := _layers(value)) is not None:
        return {"cache": [listed(layer) for layer in layers]}
    if type(value).__name__ == "EncoderDecoderCache":
        return {
            "caches": listed([value.self_attention_cache, value.cross_attention_cache])
        }
    if (fields := _fields(value)) is not None:
        cls = type(value)
        return {"data": f"{cls.__module__}:{cls.__qualname__}", "fields": parts(fields)}
    if isinstance(value, tuple):
        return {"tuple": listed(value)}
    if isinstance(value, list):
        return {"list": listed(value)}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": parts(value)}
    msg = (
        f"{name} is of type {type(value).__name__}, and a network is called with "
        "tensors, numbers, texts and None, in tuples, lists, dicts of text keys and "
        "data classes; give it in this form."
    )
    raise SpecError(msg)


def put_together(  # noqa: C901, PLR0911  # likewise
    tree: Tree, tensors: Sequence[torch.Tensor], types: Mapping[str, type]
) -> Any:
    """Return the value that `taken_apart` took apart.

    Args:
        tree: Its plain data.
        tensors: Its tensors, in order.
        types: Its data classes by their names, beside those of modules that are
            imported already. No module is imported for a name.

    Raises:
        DamagedError: The data is of no value, or names a class that is not there.

    """
    match tree:
        case {"tensor": int(at)}:
            return tensors[at]
        case {"value": value}:
            return value
        case {"number": str(text)}:
            return float(text)
        case {"dtype": str(name)}:
            import torch

            if isinstance(found := getattr(torch, name, None), torch.dtype):
                return found
        case {"device": "cpu"}:
            import torch

            return torch.device("cpu")
        case {"cache": list(layers)}:
            return _cache(
                [
                    [put_together(one, tensors, types) for one in layer]
                    for layer in layers
                ]
            )
        case {"caches": list(pair)}:
            from transformers import EncoderDecoderCache

            return EncoderDecoderCache(
                *(put_together(one, tensors, types) for one in pair)
            )
        case {"data": str(name), "fields": dict(fields)}:
            made = {
                key: put_together(one, tensors, types) for key, one in fields.items()
            }
            return _of_class(types.get(name) or class_of(name), name, made)
        case {"tuple": list(items)}:
            return tuple(put_together(one, tensors, types) for one in items)
        case {"list": list(items)}:
            return [put_together(one, tensors, types) for one in items]
        case {"dict": dict(items)}:
            return {
                key: put_together(one, tensors, types) for key, one in items.items()
            }
    msg = f"{str(tree)[:80]!r} is no part of a call"
    raise DamagedError(msg)


def check_tree(tree: object, count: int, deep: int = 0) -> None:
    """Refuse data that is not what `taken_apart` returns.

    Args:
        tree: The data.
        count: The number of its tensors.
        deep: How many trees it is inside of.

    Raises:
        DamagedError: It is nested too deeply, or names a tensor that is not there.

    """
    if deep > _DEEPEST:
        msg = f"it is nested more than {_DEEPEST} deep"
        raise DamagedError(msg)
    if isinstance(tree, dict):
        at = tree.get("tensor", 0)
        if not (isinstance(at, int) and 0 <= at < max(count, 1)):
            msg = f"it names tensor {str(at)[:20]!r} of {count}"
            raise DamagedError(msg)
    for part in (
        tree.values()
        if isinstance(tree, dict)
        else tree
        if isinstance(tree, list)
        else ()
    ):
        if isinstance(part, dict | list):
            check_tree(part, count, deep + 1)


def classes_in(tree: object) -> Iterator[str]:
    """Yield the names of the data classes in the data of a value."""
    if isinstance(tree, dict):
        if isinstance(name := tree.get("data"), str):
            yield name
        for part in tree.values():
            yield from classes_in(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from classes_in(part)


def _free(name: str, taken: Mapping[str, object]) -> str:
    """Return a name that a file can hold, and that nothing else has."""
    plain = re.sub(r"[^A-Za-z0-9_.]", "_", name)[:120]
    free, count = plain, 2
    while free in taken:
        free, count = f"{plain}_{count}", count + 1
    return free


def _fields(value: object) -> dict[str, Any] | None:
    """Return the fields of a data class or of a named tuple; None for others."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A result of transformers or diffusers leaves out what is None.
        return {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init
        }
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(value._asdict())  # type: ignore[attr-defined]  # a named tuple's own
    return None


def _layers(value: object) -> list[Sequence[Any]] | None:
    """Return keys and values of each layer of a cache; None for what is no cache."""
    if type(value).__name__ != "DynamicCache" or not hasattr(value, "layers"):
        return None
    return [
        () if layer.keys is None else (layer.keys, layer.values)
        for layer in value.layers
    ]


def _cache(layers: Sequence[Sequence[Any]]) -> Any:
    from transformers import DynamicCache

    made = DynamicCache()
    for at, layer in enumerate(layers):
        if layer:
            made.update(*layer, at)
    return made


def class_of(name: str) -> type | None:
    """Return a data class of a module that is imported already."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _of_class(cls: type | None, name: str, fields: Mapping[str, Any]) -> Any:
    if cls is None or not (dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")):
        msg = f"there is no data class {name[:80]!r} in what the module imports"
        raise DamagedError(msg)
    return cls(**fields)
