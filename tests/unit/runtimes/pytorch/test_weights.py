"""Which of a module's weights an exported file must hold."""

import onnx_ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from harness.runtimes.pytorch.weights import lost_weights

FLOAT = TensorProto.FLOAT


@pytest.fixture
def linear():
    """A linear layer, and a graph of it without its bias."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    weight = numpy_helper.from_array(layer.weight.detach().numpy().T.copy(), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 2])],
        [weight],
    )
    return layer, onnx_ir.from_proto(helper.make_model(graph))


def test_a_bias_that_is_gone_is_lost(linear):
    layer, model = linear

    assert lost_weights(layer, (torch.ones(1, 3),), model) == ["bias"]


def test_a_bias_of_zeros_adds_nothing_and_may_be_gone(linear):
    layer, model = linear
    torch.nn.init.zeros_(layer.bias)

    assert lost_weights(layer, (torch.ones(1, 3),), model) == []
