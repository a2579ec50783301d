"""Proof that an exported file holds the module's weights, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from xxhash import xxh3_128_digest

if TYPE_CHECKING:
    import onnx_ir


def lost_weights(
    module: torch.nn.Module, example: tuple[torch.Tensor, ...], model: onnx_ir.Model
) -> list[str]:
    """Return parameters that the file must hold and whose values it does not.

    Values are compared by a digest of their bytes; a matrix may be transposed. Zeros
    may be missing: exporters leave out a bias of zeros, which adds nothing.
    """
    held = set(digests_in(model).values())
    absent = []
    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        kept = any(xxh3_128_digest(side.tobytes()) in held for side in _sides(array))
        if array.any() and not kept:
            absent.append(name)
    due = weights_due(module, example) if absent else set()
    due -= set(of_recurrent(module))
    return [name for name in absent if name in due]


def digest_of(array: np.ndarray) -> bytes:
    """Return a digest that is equal for arrays of equal bytes."""
    return xxh3_128_digest(np.ascontiguousarray(array).view(np.uint8).data)


def of_recurrent(module: torch.nn.Module) -> Iterator[str]:
    """Yield parameters of recurrent layers, whose gates ONNX has in another order."""
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.RNNBase):
            for name, _ in part.named_parameters():
                yield f"{path}.{name}".lstrip(".")


def owners_of(module: torch.nn.Module) -> dict[bytes, frozenset[tuple[str, str]]]:
    """Return each digest to its parameters, as pairs of module path and local name.

    Each parameter has a digest unchanged, of its transpose if it is a matrix, and of
    both in float16.
    """
    owners: dict[bytes, frozenset[tuple[str, str]]] = {}
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            array = parameter.detach().cpu().numpy()
            sides = _sides(array)
            forms = [*sides, *(side.astype("float16") for side in sides)]
            for data in {xxh3_128_digest(form.tobytes()) for form in forms}:
                owners[data] = owners.get(data, frozenset()) | {(path, name)}
    return owners


def _sides(array: np.ndarray) -> list[np.ndarray]:
    """Return an array, and the transpose of a matrix."""
    return [array, array.T] if array.ndim == 2 else [array]  # noqa: PLR2004  # a matrix


def weights_due(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> set[str]:
    """Return parameters that every faithful export holds unchanged.

    These are applied to values computed from the inputs, on a path to the outputs.
    Others may be missing: exporters prune values that reach no output, compute values
    that depend on parameters alone, such as complex numbers, and multiply a batch
    normalisation into the operator before it.
    """
    names: dict[int, frozenset[str]] = {}
    for name, parameter in module.named_parameters():
        memory = _memory(parameter)
        names[memory] = names.get(memory, frozenset()) | {name}
    following = _Following(names)
    origins = following.origins
    origins.update((_memory(value), _Origin()) for value in example)
    with torch.no_grad(), following:
        outputs = module(*example)
    made = [origins[memory].all for memory in _memories(outputs) if memory in origins]
    return set().union(*made)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The parameters on which a value computed from the inputs depends.

    Attributes:
        before: Parameters applied on the path to the value.
        last: The parameters that the last operator applied.

    """

    before: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        return self.before | self.last


class _Following(TorchDispatchMode):
    """Follows values from the inputs on, by the memory that holds them."""

    def __init__(self, names: Mapping[int, frozenset[str]]) -> None:
        super().__init__()
        self._names = names
        self.origins: dict[int, _Origin] = {}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,  # no public name
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = _memories((args, kwargs))
        origins = [self.origins[m] for m in read if m in self.origins]
        for memory in _memories(result):
            if memory in read and not func._schema.is_mutable:  # noqa: SLF001  # no public name
                continue  # a view depends on the same parameters as its base
            if origins:
                self.origins[memory] = self._made(str(func), (args, kwargs), origins)
            else:
                self.origins.pop(memory, None)  # freed memory, used again
        return result

    def _made(self, operator: str, given: object, origins: list[_Origin]) -> _Origin:
        if "batch_norm" in operator:
            return _Origin(frozenset().union(*(o.before for o in origins)))
        before = frozenset().union(*(o.all for o in origins))
        # ONNX has no complex numbers: exporters compute a parameter's real and
        # imaginary parts, or pairs of them, while they export.
        read = _memories(given, but_complex=True)
        applied = (self._names[m] for m in read if m in self._names)
        return _Origin(before, frozenset().union(*applied))


def _memories(values: object, *, but_complex: bool = False) -> list[int]:
    leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return [_memory(o) for o in leaves if not (but_complex and o.is_complex())]


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def digests_in(model: onnx_ir.Model) -> dict[str, bytes]:
    """Return a digest of each tensor that a model holds, by name."""
    held = {
        name: xxh3_128_digest(value.const_value.tobytes())
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    for node in model.graph:
        if node.op_type == "Constant" and "value" in node.attributes:
            value = node.attributes["value"].as_tensor()
            held[str(node.outputs[0].name)] = xxh3_128_digest(value.tobytes())
    return held
