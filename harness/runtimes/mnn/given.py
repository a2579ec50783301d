"""Read a foreign ``.mnn`` file, and describe its graph.

This runs in a child process. The file's values keep their names of an ONNX file. So the
graph is written as ONNX, without weights, for `lineup` to read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import MNN
import MNN.expr
import onnx

from harness.core.case import Component
from harness.core.errors import StageError, SuiteError
from harness.core.foreign_files import bring, check_whole
from harness.core.onnx_header import Port
from harness.core.outcome import Outcome
from harness.engine.export_files import GRAPH
from harness.measure.name_map import Names, match
from harness.runtimes.mnn import MODEL, RUNTIME
from harness.runtimes.mnn.ports import file_ports
from harness.runtimes.mnn.session import refused
from harness.suite.foreign import whose_file

_DATA, _CONSTANT = "Input", "Const"
_LAYOUT = "___tr4"


def take_mnn(folder: Path, component: Component) -> None:
    """Put a component's foreign ``.mnn`` file, its names and its graph into a folder.

    Raises:
        StageError: MNN refuses the file, or its weights are not all there.
        SuiteError: The file's names are not the recipe's.

    """
    path = component.foreign.of(RUNTIME.reads) if component.foreign else None
    if path is None:
        return
    check_whole(path, RUNTIME.reads, component.name)
    bring(path, RUNTIME.reads, folder, MODEL)
    names = _names(component, path, folder / MODEL)
    names.save(folder)
    onnx.save(_graph(folder / MODEL, names), folder / GRAPH)


def _names(component: Component, path: Path, model: Path) -> Names:
    try:
        taken, made = file_ports(model)
    except Exception as error:  # MNN raises no class of its own
        raise refused(path, error, MNN.version()) from error
    try:
        return match(
            component,
            path.name,
            taken,
            [Port(name=name, dtype="", shape=None) for name in made],
            whose=whose_file,
        )
    except SuiteError as error:
        raise StageError(str(error), outcome=Outcome.MISSING) from error


def _graph(model: Path, names: Names) -> onnx.ModelProto:
    """Return the file's operators as an ONNX graph, which cannot run."""
    found = MNN.expr.load_as_dict(str(model))
    inputs_of = {
        name: [entry.name for entry in variable.inputs]
        for name, variable in found.items()
        if variable.op_type not in {_DATA, _CONSTANT}
    }
    inputs_of = contracted(inputs_of, names.own_outputs)
    helper = onnx.helper
    nodes = [
        helper.make_node(found[name].op_type, inputs_of[name], [name], name=name)
        for name in _sorted(inputs_of)
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "mnn",
        [helper.make_tensor_value_info(name, kind, None) for name in names.own_inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in names.own_outputs],
    )
    return helper.make_model(graph)


def contracted(
    inputs_of: Mapping[str, list[str]], outputs: Collection[str]
) -> dict[str, list[str]]:
    """Return a graph without the values that the converter put between exported ones.

    The converter names its reshapes and changes of layout itself, ``Reshape441`` or
    ``/conv_in/Conv_output_0___tr4sample``. In the result, a reader of such a value
    reads the values that it is computed from.
    """
    if not any(name.startswith("/") for name in inputs_of):
        return dict(inputs_of)
    between = {
        name
        for name in inputs_of
        if name not in outputs and (not name.startswith("/") or _LAYOUT in name)
    }
    made_of: dict[str, list[str]] = {}
    for name in _sorted(inputs_of):
        made_of[name] = list(
            dict.fromkeys(
                source
                for one in inputs_of[name]
                for source in (made_of[one] if one in between else [one])
            )
        )
    return {name: made_of[name] for name in made_of if name not in between}


def _sorted(inputs_of: Mapping[str, list[str]]) -> list[str]:
    """Return the values in order: each comes after those that it is computed from."""
    order = TopologicalSorter(inputs_of).static_order()
    return [name for name in order if name in inputs_of]
