"""Line up a file that others exported with PyTorch's values, as far as it lets us.

Four ways, from the finest to none; the first that lines up half of what computes is
used, or failing that the one that lines up most:

===========  =========================================================================
``names``    The dynamo exporter left the program's own names, and the modules' paths
             beside them: operator by operator.
``scopes``   The TorchScript exporter names nodes by the modules around them:
             ``/down_blocks.0/resnets.0/conv1/Conv``. Module by module; what the
             exporter's and the recipe's wrappers put in front is looked through.
``weights``  A node reads a tensor whose bytes are a parameter's, maybe transposed or
             in float16. Modules with parameters of their own.
             Of these and of scopes, only what has the module's shape is paired.
``outputs``  Nothing; the file's outputs alone are compared.
===========  =========================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir
import torch

from harness.core.case import Component, ExportSettings
from harness.core.probes import Kind, Probe
from harness.measure.align import link
from harness.runtimes.foreign.pairing import followed, paired, sizes_in, widened
from harness.runtimes.foreign.translated import Translated, translate_now
from harness.runtimes.graph.onnx_graph import (
    graph_values,
    made_in,
    module_scope,
    program_value,
)
from harness.runtimes.pytorch.program import Program
from harness.runtimes.pytorch.submodules import program_of_module
from harness.runtimes.pytorch.weights import digest, owners_of

NAMES, SCOPES, WEIGHTS, OUTPUTS = "names", "scopes", "weights", "outputs"
ENOUGH = 0.5
"""Of the values that compute; a finer way that lines up less is passed over."""

ALMOST_ALL = 0.9
"""Bare names, such as `add_5`, are believed where so many are there."""

_DEEPEST_PREFIX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """How a file's values lie on a program's.

    Attributes:
        by: Which way was taken.
        program: Whose values they are.
        probes: With the file's value that carries each, if any.

    """

    by: str
    program: Program
    probes: tuple[Probe, ...]

    @property
    def share(self) -> float:
        """The part of the computing values that the file carries."""
        computing = [p for p in self.probes if p.kind in {Kind.COMPUTE, Kind.DUPLICATE}]
        return sum(bool(p.onnx) for p in computing) / max(1, len(computing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a file is lined up with, and all that it takes to run that.

    Attributes:
        module: Unmodified.
        copy: What an exporter would get; maybe `module` itself.
        component: What is tested.
        settings: What to export with, where names are compared.
        example: Inputs to run with.
        translated: Returns what the exporter makes of `copy`, made now or stored.

    """

    module: torch.nn.Module
    copy: torch.nn.Module
    component: Component
    settings: ExportSettings
    example: tuple[torch.Tensor, ...]
    translated: Callable[..., Translated] = translate_now


def line_up(path: Path, network: Network, outputs: Mapping[str, str]) -> Lineup:
    """Line up the ONNX file at `path` with a network's values.

    Args:
        path: Of the file.
        network: That it was exported from, as the suite has it.
        outputs: The component's name of an output to the file's.

    """
    found = []
    by_names = _by_names(path, network, outputs)
    if by_names is not None:
        if by_names.share >= ENOUGH:
            return by_names
        found.append(by_names)
    program = program_of_module(network.module, network.example)
    probes, shapes = followed(network.module, network.example, program.probes)
    program = replace(widened(program, network.module), probes=probes)
    sized = sizes_in(path, network.component, network.example)

    def of_one_shape(lineup: Lineup) -> Lineup:
        return replace(lineup, probes=tuple(paired(lineup.probes, shapes, sized)))

    by_scopes = of_one_shape(_by_scopes(path, program))
    if by_scopes.share >= ENOUGH:
        return by_scopes
    by_weights = _by_weights(path, program, network.module)
    found += [by_scopes, of_one_shape(by_weights)]
    best = max(found, key=lambda one: one.share)
    if best.share:
        return best
    return Lineup(by=OUTPUTS, program=best.program, probes=best.probes)


def _by_names(
    path: Path, network: Network, outputs: Mapping[str, str]
) -> Lineup | None:
    nodes = onnx.load(path, load_external_data=False).graph.node
    places = {
        name: made_in(node)
        for node in nodes
        if program_value(node)
        for name in node.output
    }
    # Tools that drop what the exporter noted beside the names keep the names.
    bare = not places and not any(module_scope(node) for node in nodes)
    if not places and not bare:
        return None
    try:
        translated = network.translated(
            network.copy, network.component, network.settings, network.example
        )
    except Exception:  # noqa: BLE001  # exporters raise anything; there are other ways
        return None
    program = translated.program
    modules = {probe.name: probe.module for probe in program.probes}
    # A name such as `add_5` counts where the module around it is the same one too.
    values = [
        value
        for value in graph_values(path, program_value)
        if bare or _same_place(places.get(value.name, ""), modules.get(value.name, ""))
    ]
    behind = {
        value: outputs[name]
        for value, name in translated.outputs.items()
        if name in outputs
    }
    probes = link(program.probes, values, behind)
    lineup = Lineup(by=NAMES, program=program, probes=tuple(probes))
    return lineup if not bare or lineup.share >= ALMOST_ALL else None


def _same_place(theirs: str, ours: str) -> bool:
    """Whether two paths are one, but for what wrappers put before one of them."""
    long, short = sorted((f".{theirs}", f".{ours}"), key=len, reverse=True)
    return long.endswith(short) or short == "."


def _by_scopes(path: Path, program: Program) -> Lineup:
    nodes = onnx.load(path, load_external_data=False).graph.node
    theirs = {module_scope(node) for node in nodes} - {""}
    paths = paths_of_scopes(program.scopes, theirs)

    def origin(node: onnx.NodeProto) -> str:
        return paths.get(module_scope(node), "")

    probes = link(program.probes, graph_values(path, origin), {})
    return Lineup(by=SCOPES, program=program, probes=tuple(probes))


def paths_of_scopes(ours: Mapping[str, str], theirs: Collection[str]) -> dict[str, str]:
    """Return the module's path of each of a file's scopes that has one.

    Of all that may stand before either side's scopes, what makes most of them equal
    is looked through: ``network/conv_in`` and ``unet/conv_in`` are one.
    """
    best: dict[str, str] = {}
    for mine in _prefixes(ours):
        short = {scope.removeprefix(mine): path for scope, path in ours.items()}
        for other in _prefixes(theirs):
            found = {
                scope: short[scope.removeprefix(other)]
                for scope in theirs
                if scope.removeprefix(other) in short
            }
            if len(found) > len(best):
                best = found
    return best


def _prefixes(scopes: Collection[str]) -> list[str]:
    """Return what half of the scopes begin with, the shortest first."""
    counted = Counter(
        "/".join(parts[:depth]) + "/"
        for parts in (scope.split("/") for scope in scopes)
        for depth in range(1, min(len(parts), _DEEPEST_PREFIX))
    )
    common = [text for text, count in counted.items() if 2 * count >= len(scopes)]
    return ["", *sorted(common, key=len)]


def _by_weights(path: Path, program: Program, module: torch.nn.Module) -> Lineup:
    nodes = list(onnx.load(path, load_external_data=False).graph.node)
    looked_up = {
        name
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Embedding)
    }
    origins = dict(_origins(nodes, _held(path), owners_of(module), looked_up))

    def origin(node: onnx.NodeProto) -> str:
        return origins.get(node.output[0], "")

    probes = link(program.probes, graph_values(path, origin), {})
    return Lineup(by=WEIGHTS, program=program, probes=tuple(probes))


def _held(path: Path) -> dict[str, bytes]:
    """Return a digest of each tensor that the file holds, by name."""
    graph = onnx_ir.load(path).graph
    held = {
        name: digest(value.const_value.tobytes())
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
    for node in graph:
        name = node.outputs[0].name
        if node.op_type == "Constant" and "value" in node.attributes and name:
            held[name] = digest(node.attributes["value"].as_tensor().tobytes())
    return held


def _origins(
    nodes: Sequence[onnx.NodeProto],
    held: Mapping[str, bytes],
    owners: Mapping[bytes, frozenset[tuple[str, str]]],
    looked_up: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Yield each value that a module's own parameters make, and the module.

    A module that looks up rows, of `looked_up`, is carried by what looks up rows alone:
    where a whole table is added to something, the sum is not the module's value.

    A module counts only where all of its own parameters are read on its behalf: half
    of one, a product without its bias, is not what PyTorch's module returns.
    """
    carried = dict(held)
    for node in nodes:
        if (
            node.op_type in {"Identity", "Transpose", "Cast"}
            and node.input[0] in carried
        ):
            carried[node.output[0]] = carried[node.input[0]]
    made: dict[str, str] = {}
    read: dict[str, set[str]] = {}
    for node in nodes:
        tensors = [owners[carried[n]] for n in node.input if carried.get(n) in owners]
        if not tensors or node.output[0] in carried:
            continue
        looks_up = node.op_type == "Gather"
        paths = [
            frozenset(path for path, _ in tensor if (path in looked_up) == looks_up)
            for tensor in tensors
        ]
        common = frozenset.intersection(*paths)
        before = {made[name] for name in node.input if name in made}
        # Equal tensors, such as biases of zeros, are whoever's they are added to.
        chosen = common & before or common
        if len(chosen) == 1:
            (path,) = chosen
            made[node.output[0]] = path
            read.setdefault(path, set()).update(
                name for tensor in tensors for own, name in tensor if own == path
            )
    whole = _parameters(owners)
    yield from (
        (value, path) for value, path in made.items() if read[path] >= whole[path]
    )


def _parameters(
    owners: Mapping[bytes, frozenset[tuple[str, str]]],
) -> dict[str, set[str]]:
    """Return the names of each module's own parameters."""
    whole: dict[str, set[str]] = {}
    for tensor in owners.values():
        for path, name in tensor:
            whole.setdefault(path, set()).add(name)
    return whole
