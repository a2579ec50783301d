"""Compare a graph's weights and attributes with PyTorch's, without running either.

A weight is paired with the constant that the operator at its place reads, or with the
constant of its name. A weight with neither is looked up by a digest of its bytes. Each
pair is equal bit for bit, or `kinds` describes the difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from harness.core.errors import StageError, first_line
from harness.core.outcome import Outcome
from harness.core.probes import Probe, ValueKind
from harness.measure.align import wanted_values
from harness.plugins.weights.attributes import attributes_told, left_in_training
from harness.plugins.weights.causes import Lora, dropped, lora_words
from harness.plugins.weights.kinds import (
    ANOTHER,
    CHANNELS,
    FEW,
    MOVED,
    OTHER,
    Difference,
    difference,
)
from harness.plugins.weights.module_settings import with_settings
from harness.plugins.weights.removed import removed_operators
from harness.runtimes.graph.onnx_graph import makers_of, nodes_between, tensors_of
from harness.runtimes.pytorch.program import (
    WRAPPER,
    applied_parameters,
    own_path,
)
from harness.runtimes.pytorch.weights import digest_of, of_recurrent

NAMED = 64
"""Number of differing weights that are kept one by one; further ones are counted."""

_MATRIX = 2
_UNKNOWN = (OTHER, FEW, MOVED, CHANNELS)
"""Kinds that say less than "it is another weight of PyTorch's"."""

_ADDED = {"weight": False, "bias": True}

_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm", "LayerNormalization")
_BIAS = 2
"""Index of the bias among these operators' inputs."""

_PASSES_ON = ("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze")
_HELD_BY_OUTPUT = ("aten.linear.", "aten.conv", "aten.embedding.")
_MODULES = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding")
"""Operators and modules whose weight has one row for each output."""

_NARROW = ("FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT4", "UINT4")
"""Dtypes with fewer bits than float32."""


@dataclass(frozen=True, slots=True)
class Read:
    """A constant as an operator reads it.

    Attributes:
        name: Name of the initialiser or of the Constant node's value.
        turned: Whether it is the transpose of the weight of PyTorch's operator; None
            where the operator does not tell.
        added: Whether the operator adds it, as it does a bias.

    """

    name: str
    turned: bool | None
    added: bool | None = None


def _places(
    probes: Sequence[Probe], graph: onnx.GraphProto
) -> dict[str, dict[Read, None]]:
    """Return each module's path to the constants that its operators read, in order."""
    makers = makers_of(graph)
    computed = {
        value: probe
        for value, probe in wanted_values(probes).items()
        if probe.kind is ValueKind.COMPUTE
    }
    found: dict[str, dict[Read, None]] = {}
    for value, probe in computed.items():
        knows = probe.op.startswith(_HELD_BY_OUTPUT) or probe.op in _MODULES
        reads = found.setdefault(probe.module, {})
        for node in nodes_between(makers, value, computed):
            for one in _read_by(node, makers):
                reads[one if knows else replace(one, turned=None)] = None
    return found


def _read_by(
    node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]
) -> Iterator[Read]:
    if node.op_type in (*_PASSES_ON, "Transpose"):  # its readers look through it
        return
    for index, given in enumerate(node.input):
        name, turned = given, _turned(node, index)
        last = node.op_type in _WITH_BIAS and index == _BIAS
        added = last or node.op_type in {"Add", "Sub"}
        while (maker := makers.get(name)) is not None and maker.input:
            if maker.op_type == "Transpose":
                turned = None if turned is None else not turned
            elif maker.op_type not in _PASSES_ON:
                break
            name = maker.input[0]
        yield Read(name, turned, added)


def _turned(node: onnx.NodeProto, index: int) -> bool | None:
    """Return whether an operator reads the transpose of PyTorch's matrix."""
    if node.op_type == "MatMul" and index == 1:
        return True
    if node.op_type == "Gemm" and index == 1:
        return not any(a.name == "transB" and a.i for a in node.attribute)
    if (node.op_type, index) in {("Gather", 0), ("Conv", 1)}:
        return False
    return None


class Held:
    """The constants that a graph's nodes read.

    Attributes:
        arrays: Numbers of each float32 constant by its name, without axes of one.
        digests: A digest of the bytes of each of these.
        narrow: Dtype with fewer bits than float32 to the number of its constants.

    """

    def __init__(self, path: Path, graph: onnx.GraphProto) -> None:
        read = {name for node in graph.node for name in node.input}
        self.arrays: dict[str, np.ndarray] = {}
        self.digests: dict[str, bytes] = {}
        self.narrow: Counter[str] = Counter()
        for name, proto in tensors_of(graph).items():
            if name not in read:
                continue
            tensor = onnx_ir.serde.deserialize_tensor(proto, str(path.parent))
            if tensor.dtype is onnx_ir.DataType.FLOAT:
                self.arrays[name] = _array(name, tensor).squeeze()
                self.digests[name] = digest_of(self.arrays[name])
            elif tensor.dtype.name in _NARROW and tensor.size > 1:
                self.narrow[tensor.dtype.name.lower()] += 1


def _array(name: str, tensor: onnx_ir.TensorProtocol) -> np.ndarray:
    """Return a tensor's numbers, memory-mapped if a file beside the graph has them."""
    try:
        return np.asarray(tensor.numpy())
    except (OSError, ValueError) as error:
        msg = (
            f"weight {name} of the graph cannot be read ({first_line(error)}): the "
            "file that holds it is missing or cut short; export or copy it again."
        )
        raise StageError(msg, outcome=Outcome.LOAD) from error


def check_graph(
    module: nn.Module, probes: Sequence[Probe], path: Path, lora: Lora | None = None
) -> dict[str, Any]:
    """Return where a graph differs from its module, as JSON.

    `lora` is what was merged into the module's weights; None if nothing was.

    Returns:
        ``tensors``: number of weights in PyTorch; ``matrices``: number of weights with
        two axes and more; ``equal``: number of weights that the graph holds bit for
        bit; ``elsewhere``: names of weights that the graph holds in another form or
        not at all; ``stored``: dtype with fewer bits than float32 to the number of
        tensors that the file stores in it; ``weights``: the weights that differ;
        ``differing``: their number; ``kinds``: kind of difference to its number;
        ``attributes``: the attributes that differ; ``dropped``: the modules that the
        graph lacks; ``removed``: the operators that it lacks and that others read past;
        ``lora``: how all weights that differ are those of a LoRA.

    """
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    places = _places(probes, graph)
    held = Held(path, graph)
    weights = _Weights(module, held)
    found = {
        name: weights.compared(name, places.get(_module_of(name), ()))
        for name in weights.names
    }
    norms = {
        own_path(name)
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm)
    }
    _leave_out_folded(found, norms)
    remade = {*_remade(module), *_folded(weights.names, probes)}
    remade |= {
        name
        for name, one in found.items()
        if isinstance(one, _Differing)
        and any(digest_of(made) == one.told for made in _made_alone(module, name))
    }
    remade = {name for name in remade if found.get(name, EQUAL) != EQUAL}
    found.update(dict.fromkeys(remade, ELSEWHERE))
    _pair_by_shape(found, weights, held, remade)
    _leave_out_folded(found, norms)
    differing = [one for one in found.values() if isinstance(one, _Differing)]
    equal = {name for name, one in found.items() if one == EQUAL}
    _name_others(differing, weights, equal)
    narrow = bool(held.narrow)
    asked = {name: one == EQUAL for name, one in found.items()}
    return {
        "dropped": dropped(asked, probes, exact=not narrow),
        "lora": lora_words(lora, module, weights.sides(differing)) if lora else "",
        "tensors": len(found),
        "matrices": sum(weights.array(name).ndim >= _MATRIX for name in found),
        "equal": list(found.values()).count(EQUAL),
        "elsewhere": [name for name, one in found.items() if one == ELSEWHERE],
        "stored": dict(held.narrow),
        "differing": len(differing),
        "kinds": dict(Counter(one.found.kind for one in differing)),
        "weights": [one.to_json() for one in differing[:NAMED]],
        "attributes": _attributes(module, probes, model),
        "removed": [
            {
                "probe": one.probe.name,
                "module": one.probe.module,
                "words": one.words,
                "reader": one.reader.name,
            }
            for one in removed_operators(probes, graph)
        ],
    }


def _attributes(
    module: nn.Module, probes: Sequence[Probe], model: onnx.ModelProto
) -> list[dict[str, str]]:
    """Return the attributes that differ from the module's, as JSON."""
    found = [
        {
            "probe": told.probe.name,
            "module": told.probe.module,
            "op": told.probe.op,
            "name": told.name,
            "words": told.words,
        }
        for told in attributes_told(list(with_settings(module, probes)), model)
    ]
    return found + [
        {
            "probe": node.output[0],
            "module": node.name,
            "op": node.op_type,
            "name": "training mode",
            "words": "the file was exported in training mode: its Dropout is left in",
        }
        for node in left_in_training(model.graph)
    ]


EQUAL, ELSEWHERE = "equal", "elsewhere"
NAME, PLACE, SHAPE = "name", "place", "shape"


@dataclass(slots=True, kw_only=True)
class _Differing:
    """One weight that differs from the constant that it is paired with."""

    name: str
    constant: str
    by: str
    found: Difference
    told: bytes
    axes: int
    other: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "constant": self.constant,
            "by": self.by,
            "kind": self.found.kind,
            "words": self.found.words,
            "rms": self.found.rms if math.isfinite(self.found.rms) else None,
            "axes": self.axes,
            "other": self.other,
        }


class _Weights:
    """A module's parameters in float32, by their names in the checkpoint."""

    def __init__(self, module: nn.Module, held: Held) -> None:
        self._held = held
        self._digests = frozenset(held.digests.values())
        self._parameters = {
            own_path(name): parameter
            for name, parameter in module.named_parameters()
            if parameter.dtype == torch.float32 and parameter.numel()
        }
        self.names = tuple(self._parameters)
        self._forms: dict[str, dict[bytes, frozenset[bool]]] = {}
        self._siblings: dict[str, list[str]] = {}
        for name in self.names:
            self._siblings.setdefault(_module_of(name), []).append(name)

    def array(self, name: str) -> np.ndarray:
        """Return a parameter's numbers, without axes of one."""
        return np.asarray(self._parameters[name].detach().cpu().numpy()).squeeze()

    def forms(self, name: str) -> Mapping[bytes, frozenset[bool]]:
        """Return digests of a parameter, and whether each is of its transpose.

        A parameter that the graph holds unchanged is not transposed, since that would
        copy it.
        """
        if name not in self._forms:
            array = self.array(name)
            forms = {digest_of(array): frozenset({False})}
            if array.ndim == _MATRIX and self._digests.isdisjoint(forms):
                turned = digest_of(array.T)
                forms[turned] = forms.get(turned, frozenset()) | {True}
            self._forms[name] = forms
        return self._forms[name]

    def sides(
        self, differing: Iterable[_Differing]
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Return the graph's numbers of weights that differ, and their transposes."""
        held = {one.name: self._held.arrays[one.constant] for one in differing}
        return {name: (array, array.T) for name, array in held.items()}

    def turned(self, constant: str) -> Iterator[bytes]:
        """Yield the digest of the transpose of a constant that is a matrix."""
        held = self._held.arrays[constant]
        if held.ndim == _MATRIX:
            yield digest_of(held.T)

    def compared(self, name: str, reads: Iterable[Read]) -> str | _Differing:
        """Compare one parameter with the constant that it is paired with."""
        forms, shape = self.forms(name), self.array(name).shape
        fitting = {
            read.name: read
            for read in reads
            if self._could_be(read.name, shape)
            if _ADDED.get(name.rpartition(".")[2], read.added) == read.added
        }
        named = [known for known in fitting if own_path(known) == name]
        for known in named or fitting:
            sides = forms.get(self._held.digests[known])
            if sides and fitting[known].turned in (None, *sides):
                return EQUAL
        siblings = [o for o in self._siblings[_module_of(name)] if o != name]
        theirs = {told for other in siblings for told in self.forms(other)}
        free = [known for known in fitting if self._held.digests[known] not in theirs]
        for pair in (named, free):
            if len(pair) == 1:
                return self.paired(name, fitting[pair[0]])
        for known in (name, f"{WRAPPER}.{name}"):
            if self._could_be(known, shape):
                if self._held.digests[known] in forms:
                    return EQUAL
                return self.paired(name, Read(known, None))
        found = not self._digests.isdisjoint(forms)
        # A graph may leave out a parameter of zeros: it adds nothing.
        return EQUAL if found or not self.array(name).any() else ELSEWHERE

    def _could_be(self, constant: str, shape: tuple[int, ...]) -> bool:
        """Whether the graph has a constant of a parameter's shape, or its transpose."""
        held = self._held.arrays.get(constant)
        turned = shape[::-1] if len(shape) == _MATRIX else shape
        return held is not None and held.shape in {shape, turned}

    def paired(self, name: str, read: Read, by: str = PLACE) -> str | _Differing:
        """Compare a parameter with one constant."""
        expected, actual = self.array(name), self._held.arrays[read.name]
        sides = [actual]
        if actual.shape != expected.shape:
            sides = [actual.T]
        elif actual.ndim == _MATRIX and actual.shape[0] == actual.shape[1]:
            sides = [actual.T] if read.turned else [actual]
            if read.turned is None:
                sides = [actual, actual.T]
        if any(np.array_equal(expected, side, equal_nan=True) for side in sides):
            return EQUAL
        found = (difference(expected, np.ascontiguousarray(side)) for side in sides)
        least = min(found, key=lambda one: one.rms)
        return _Differing(
            name=name,
            constant=read.name,
            by=NAME if own_path(read.name) == name else by,
            found=least,
            told=self._held.digests[read.name],
            axes=expected.ndim,
        )


def _remade(module: nn.Module) -> Iterator[str]:
    """Yield parameters that no file holds as they are.

    A weight is computed from some of them at each call: a direction and a length, for
    example. Those of recurrent layers are in another order.
    """
    for name, _ in module.named_parameters():
        if "parametrizations" in name.split("."):
            yield own_path(name)
    for path, part in module.named_modules():
        for hook in part._forward_pre_hooks.values():  # noqa: SLF001  # no public name
            if type(hook).__name__ in {"WeightNorm", "SpectralNorm"}:
                for end in ("_g", "_v", "_orig"):
                    yield own_path(f"{path}.{hook.name}{end}".lstrip("."))
    yield from map(own_path, of_recurrent(module))


def _folded(names: Iterable[str], probes: Sequence[Probe]) -> set[str]:
    """Return parameters that no operator applies to a value made from the inputs.

    The exporter computes with them while it exports, or leaves them out. So a constant
    in their module's place is another value than theirs.
    """
    applied = applied_parameters(probes)
    return set() if applied is None else {*names} - applied


def _made_alone(module: nn.Module, name: str) -> Iterator[np.ndarray]:
    """Yield what a part computes from one parameter alone: ``1 + weight``, for example.

    The part is called with ones. Nothing is yielded if it does not take one
    tensor whose last axis is the parameter's.
    """
    for path, parameter in module.named_parameters():
        if own_path(path) == name and parameter.ndim == 1:
            part = module.get_submodule(_module_of(path))
            seen = _FromParameter(parameter)
            with seen, torch.no_grad(), suppress(Exception):
                part(torch.ones(2, 3, len(parameter), device=parameter.device))
            yield from (np.asarray(one.detach().cpu().numpy()) for one in seen.made)


class _FromParameter(TorchDispatchMode):
    """Notes the results of operators whose only tensors are made from a parameter."""

    def __init__(self, parameter: nn.Parameter) -> None:
        super().__init__()
        self._held: list[torch.Tensor] = [parameter]

    @property
    def made(self) -> list[torch.Tensor]:
        """The results, in order."""
        return self._held[1:]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        held = all(any(one is held for held in self._held) for one in given)
        if given and held and isinstance(made, torch.Tensor):
            self._held.append(made)
        return made


def _pair_by_shape(
    found: dict[str, str | _Differing],
    weights: _Weights,
    held: Held,
    remade: Collection[str],
) -> None:
    """Pair each lost matrix with the constant of its shape, if only one is left.

    An example is a table that is read while the graph is made: a constant takes the
    place of its operator.
    """
    known = {told for name in weights.names for told in weights.forms(name)}
    known |= {one.told for one in found.values() if isinstance(one, _Differing)}
    lost: dict[tuple[int, ...], list[str]] = {}
    for name, one in found.items():
        shape = weights.array(name).shape
        if one == ELSEWHERE and len(shape) >= _MATRIX and name not in remade:
            lost.setdefault(shape, []).append(name)
    for shape, names in lost.items():
        free = [
            constant
            for constant, told in held.digests.items()
            if told not in known and held.arrays[constant].shape == shape
        ]
        if len(names) == len(free) == 1:
            (name,) = names
            found[name] = weights.paired(name, Read(free[0], None), SHAPE)


def _leave_out_folded(
    found: dict[str, str | _Differing], norms: Collection[str]
) -> None:
    """Let no weight differ that a batch normalisation was folded into.

    `norms` are the modules of batch normalisations. A convolution without a bias gets
    one, which stands where the bias of its normalisation stood.
    """
    differing = {n: one for n, one in found.items() if isinstance(one, _Differing)}
    folded = {
        _module_of(name)
        for name, one in differing.items()
        if norms and one.found.kind == CHANNELS
    }
    folded |= {*norms} if folded else set()
    found.update((n, ELSEWHERE) for n in differing if _module_of(n) in folded)


def _name_others(
    differing: Sequence[_Differing], weights: _Weights, equal: Collection[str]
) -> None:
    """Note each differing constant that equals another of PyTorch's weights.

    `equal` are the weights that the graph has in their own places too. A constant may
    hold another weight's transpose, as where a table of tokens is the last layer too.
    """
    if not any(one.found.kind in _UNKNOWN for one in differing):
        return
    owners = {
        told: name
        for name in reversed(weights.names)
        for told in weights.forms(name)
        if weights.array(name).any()
    }
    for one in differing:
        if one.found.kind not in _UNKNOWN:
            continue
        forms = (one.told, *weights.turned(one.constant))
        found = (owners[told] for told in forms if told in owners)
        owner = next((name for name in found if name != one.name), "")
        if owner:
            words = f"it is {owner}"
            if owner in equal:
                words += ", which is in its own place too, as if the two were tied"
            one.found = replace(one.found, kind=ANOTHER, words=words)
            one.other = owner


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]
