"""Line up a foreign model with PyTorch's values, as far as the file allows.

There are four ways, from the finest to none. The first way that lines up half of the
computed values is used; if none does, the way that lines up most:

===========  =========================================================================
``names``    The dynamo exporter left the program's own names, and the modules' paths
             beside them: operator by operator.
``scopes``   The TorchScript exporter names nodes by the modules around them:
             ``/down_blocks.0/resnets.0/conv1/Conv``. Module by module; prefixes of the
             exporter's and the recipe's wrappers are ignored.
``weights``  A node reads a tensor whose bytes are a parameter's, maybe transposed or
             in float16. Modules with parameters of their own.
             By weights and by scopes, only values of the module's shape are paired.
``outputs``  Nothing; the file's outputs alone are compared.
===========  =========================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir
import torch
from msgspec import structs

from harness.core.case import ONNX, ForeignModel
from harness.core.errors import StageError, first_line
from harness.core.onnx_header import read_header
from harness.core.outcome import Outcome
from harness.core.probes import Probe, ValueKind, save_probes
from harness.core.runtime import formats
from harness.engine import keys, tasks
from harness.engine.export_files import GRAPH, MODEL, PROBES
from harness.engine.host import report_progress
from harness.measure.align import link
from harness.measure.name_map import BY_NAMES, Names
from harness.plugins.foreign.files.beside import bring, check_whole
from harness.plugins.foreign.files.names import match
from harness.plugins.foreign.files.pairing import paired, sizes_in
from harness.runtimes.graph.onnx_graph import (
    UNSORTED,
    graph_values,
    made_in,
    module_scope,
    program_value,
)
from harness.runtimes.graph.opset import ONNX_RUNTIMES_OWN, another_opset
from harness.runtimes.pytorch.export import Exported, quiet
from harness.runtimes.pytorch.program import Program
from harness.runtimes.pytorch.submodules import program_of_module
from harness.runtimes.pytorch.translation import TracedNetwork, translate_once
from harness.runtimes.pytorch.weights import digests_in, owners_of

NAMES, SCOPES, WEIGHTS, OUTPUTS = BY_NAMES, "scopes", "weights", "outputs"
ENOUGH = 0.5
"""Share of the computed values; a finer way that lines up less is not used."""

ALMOST_ALL = 0.9
"""Share of the computed values above which bare names, such as `add_5`, are trusted."""

_DEEPEST_PREFIX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """How a file's values correspond to a program's, and by which way it was found."""

    by: str
    program: Program
    probes: tuple[Probe, ...]

    @property
    def share(self) -> float:
        """The share of the computed values that the file carries."""
        computing = [
            p for p in self.probes if p.kind in {ValueKind.COMPUTE, ValueKind.DUPLICATE}
        ]
        return sum(bool(p.onnx) for p in computing) / max(1, len(computing))


def take_file(network: TracedNetwork, folder: Path) -> Exported:
    """Put a network's foreign file into a folder, and line it up with the network.

    Raises:
        StageError: The file cannot be taken.
        SuiteError: The file's names are not the recipe's.

    """
    component = network.component
    kind, path = (component.foreign or ForeignModel()).files[0]
    report_progress("lining up", component.name, str(path))
    if kind == ONNX:
        return take_onnx(path, network, folder)
    return _take_converted(kind, path, network, folder)


def take_onnx(path: Path, network: TracedNetwork, folder: Path) -> Exported:
    """Bring the file at `path` to `folder`, and line it up with the network.

    The empty folder gets the files that an export would leave, and the names.

    Raises:
        StageError: onnx.checker refuses the file, or a file beside it is too short.
        SuiteError: The file's names are not the recipe's.

    """
    component = network.component
    header = read_header(path)
    names = match(component, path.name, header.inputs, header.outputs)
    check_whole(path, "onnx", component.name)
    bring(path, "onnx", folder, MODEL)
    try:
        onnx.checker.check_model(str(folder / MODEL))
    except (onnx.checker.ValidationError, OSError) as error:
        # ONNX Runtime sorts nodes, and its own tool for float16 leaves some late. Its
        # optimiser writes operators that it takes as ONNX's in a file of any opset.
        taken = (UNSORTED, *(f"No Op registered for {op}" for op in ONNX_RUNTIMES_OWN))
        if not any(words in str(error) for words in taken):
            model = onnx.load(path, load_external_data=False)
            why = another_opset(model) or f"{first_line(error)}."
            msg = f"{component.name}: onnx.checker refuses {path.name}: {why}"
            raise StageError(msg, outcome=Outcome.LOAD) from error
    return _lined_up(folder / MODEL, names, network, folder)


def _take_converted(
    kind: str, path: Path, network: TracedNetwork, folder: Path
) -> Exported:
    """Line up a converted file with the network; `folder` gets no model."""
    component, owner = network.component, formats()[kind]
    file = keys.converted(component, kind)
    taken = tasks.TAKEN.of(kind=kind).find(network.store, file, owner)
    names = Names.load(taken.path) if taken else None
    if taken is None or names is None:
        msg = f"{component.name}: the store lost its file {path.name}."
        raise StageError(msg, outcome=Outcome.LOAD)
    return _lined_up(taken.file(GRAPH), names, network, folder)


def _lined_up(
    graph: Path, names: Names, network: TracedNetwork, folder: Path
) -> Exported:
    with quiet():
        outputs = {known: name for name, known in names.compared.items()}
        found = line_up(graph, network, outputs)
    structs.replace(names, by=found.by).save(folder)
    save_probes(found.probes, folder / PROBES)
    return Exported(program=found.program, probes=found.probes)


def line_up(path: Path, network: TracedNetwork, outputs: Mapping[str, str]) -> Lineup:
    """Line up the ONNX file at `path` with a network's values.

    `outputs` maps the component's name of each output to the file's.
    """
    found = []
    by_names = _by_names(path, network, outputs)
    if by_names is not None:
        if by_names.share >= ENOUGH:
            return by_names
        found.append(by_names)
    program = program_of_module(network.module, network.example)
    shapes = program.shapes or {}
    sized = sizes_in(path, network.component, network.example)

    def of_one_shape(lineup: Lineup) -> Lineup:
        return replace(lineup, probes=tuple(paired(lineup.probes, shapes, sized)))

    by_scopes = of_one_shape(_by_scopes(path, program))
    if by_scopes.share >= ENOUGH:
        return by_scopes
    by_weights = _by_weights(path, program, network.module)
    found += [by_scopes, of_one_shape(by_weights)]
    best = max(found, key=lambda one: one.share)
    return best if best.share else replace(best, by=OUTPUTS)


def _by_names(
    path: Path, network: TracedNetwork, outputs: Mapping[str, str]
) -> Lineup | None:
    nodes = onnx.load(path, load_external_data=False).graph.node
    places = {
        name: made_in(node)
        for node in nodes
        if program_value(node)
        for name in node.output
    }
    # Some tools drop the exporter's metadata, but keep the names.
    bare = not places and not any(module_scope(node) for node in nodes)
    if not places and not bare:
        return None
    try:
        translated = translate_once(network)
    except Exception:  # noqa: BLE001  # exporters raise anything; there are other ways
        return None
    program = translated.program
    modules = {probe.name: probe.module for probe in program.probes}
    # A name such as `add_5` counts only where the module around it is the same too.
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
    probes = link(program.probes, values, behind, program.shapes)
    lineup = Lineup(by=NAMES, program=program, probes=tuple(probes))
    return lineup if not bare or lineup.share >= ALMOST_ALL else None


def _same_place(theirs: str, ours: str) -> bool:
    """Whether two paths are equal, but for a wrapper's prefix of one of them."""
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
    """Return each of a file's scopes that belongs to a module, to the module's path.

    Each side's scopes may have a prefix. The two prefixes are removed that make most
    scopes equal: ``network/conv_in`` and ``unet/conv_in`` are one.
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
    """Return the prefixes that half of the scopes have, the shortest first."""
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
    held = digests_in(onnx_ir.load(path))
    origins = dict(_origins(nodes, held, owners_of(module), looked_up))

    def origin(node: onnx.NodeProto) -> str:
        return origins.get(node.output[0], "")

    probes = link(program.probes, graph_values(path, origin), {})
    return Lineup(by=WEIGHTS, program=program, probes=tuple(probes))


def _origins(
    nodes: Sequence[onnx.NodeProto],
    held: Mapping[str, bytes],
    owners: Mapping[bytes, frozenset[tuple[str, str]]],
    looked_up: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Yield each value computed with a module's own parameters, and the module.

    Only a node that looks up rows carries a module of `looked_up`, which does the same.
    Where a node adds a whole table to a value, the sum is not the module's value.

    A module counts only where nodes read all of its own parameters for it: a product
    without its bias is not the output of PyTorch's module.
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
        # Equal tensors, such as biases of zeros, belong to the module before them.
        chosen = common & before or common
        if len(chosen) == 1:
            (path,) = chosen
            made[node.output[0]] = path
            read.setdefault(path, set()).update(
                name for tensor in tensors for own, name in tensor if own == path
            )
    whole: dict[str, set[str]] = {}
    for tensor in owners.values():
        for path, name in tensor:
            whole.setdefault(path, set()).add(name)
    yield from (
        (value, path) for value, path in made.items() if read[path] >= whole[path]
    )
