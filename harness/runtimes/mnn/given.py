"""Describe an ``.mnn`` file that others made: its inputs, outputs and graph.

This runs in a child process. The file's values keep their names of an ONNX file, so the
graph is described as ONNX.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import MNN
import MNN.expr
import onnx

from harness.core.onnx_ports import Port
from harness.runtimes.mnn.ports import file_ports
from harness.runtimes.mnn.session import refused

_DATA, _CONSTANT = "Input", "Const"
_LAYOUT = "___tr4"


def ports(model: Path, original: Path) -> tuple[list[Port], list[Port]]:
    """Return the inputs and outputs of an ``.mnn`` file, a copy of the `original`.

    Raises:
        StageError: MNN refuses the file.

    """
    try:
        taken, made = file_ports(model)
    except Exception as error:  # MNN raises no class of its own
        raise refused(original, error, MNN.version()) from error
    return taken, [Port(name=name, dtype="", shape=None) for name in made]


def graph(
    model: Path, inputs: Sequence[str], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Return a file's operators as an ONNX graph without weights, which cannot run."""
    found = MNN.expr.load_as_dict(str(model))
    inputs_of = {
        name: [entry.name for entry in variable.inputs]
        for name, variable in found.items()
        if variable.op_type not in {_DATA, _CONSTANT}
    }
    inputs_of = contracted(inputs_of, outputs)
    helper = onnx.helper
    nodes = [
        helper.make_node(found[name].op_type, inputs_of[name], [name], name=name)
        for name in _sorted(inputs_of)
    ]
    kind = onnx.TensorProto.FLOAT
    described = helper.make_graph(
        nodes,
        "mnn",
        [helper.make_tensor_value_info(name, kind, None) for name in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
    )
    return helper.make_model(described)


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
