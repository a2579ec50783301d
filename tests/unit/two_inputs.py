"""Small graphs of two inputs and a step, as ONNX files and as functions."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from harness.core.errors import StageError
from harness.core.outcome import Outcome
from tests.unit import nets

SHAPE = ("batch", 4)
TWO = nets.component("two", {"x": SHAPE, "y": SHAPE, "t": (1,)})


def graph(path, body, inputs=("x", "y", "t"), batch="batch", dtype=TensorProto.FLOAT):
    """Write a graph of ``(op, inputs, output)``; ``x`` and ``y`` have two axes."""
    sides = [
        helper.make_tensor_value_info(name, dtype, [1] if name == "t" else [batch, 4])
        for name in inputs
    ]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    constants = [
        numpy_helper.from_array(np.array([2, 4]), "two_by_four"),
        numpy_helper.from_array(np.array([0.5], dtype=np.float32), "half"),
    ]
    nodes = [helper.make_node(op, list(given), [made]) for op, given, made in body]
    made = helper.make_graph(nodes, "g", sides, [out], constants)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(made, opset_imports=opset, ir_version=9), path)
    return path


RIGHT = [
    ("Tanh", ["y"], "a"),
    ("Mul", ["a", "t"], "b"),
    ("Add", ["x", "b"], "out"),
]


def run_of(path):
    def run(feeds):
        try:
            return nets.by_onnxruntime(path, feeds)
        except Exception as error:
            raise StageError(str(error), outcome=Outcome.RUN) from error

    return run
