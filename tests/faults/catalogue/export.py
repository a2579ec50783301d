"""Exports that go wrong: in the exported module, or in the graph that is left."""

from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.faults.catalogue.fault import InModule, fault, in_graph
from tests.faults.catalogue.graphs import (
    after,
    at,
    constant,
    left_out,
    nowhere,
    reads,
    replaced,
    set_input,
    set_weight,
    shown_as,
    together,
)
from tests.faults.catalogue.texts import DROPOUT, SAMPLED, TURNED_AND_RESHAPED


def _input_renamed(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.input[:] = ["t" if name == "timestep" else name for name in node.input]
    next(v for v in model.graph.input if v.name == "timestep").name = "t"


def _input_dropped(model: onnx.ModelProto) -> None:
    wanted = next(v for v in model.graph.input if v.name == "timestep")
    model.graph.input.remove(wanted)
    constant(model, "timestep", np.array([500], np.int32))


def _output_dropped(model: onnx.ModelProto) -> None:
    del model.graph.output[-1]


def _output_renamed(model: onnx.ModelProto) -> None:
    old = model.graph.output[-1].name
    for node in model.graph.node:
        node.output[:] = ["pooled" if name == old else name for name in node.output]
    model.graph.output[-1].name = "pooled"


def _outputs_in_other_order(model: onnx.ModelProto) -> None:
    first, second = model.graph.output
    del model.graph.output[:]
    model.graph.output.extend((second, first))


def _weights_as_inputs(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name.startswith("network."):
            model.graph.input.append(
                helper.make_tensor_value_info(
                    tensor.name, tensor.data_type, tensor.dims
                )
            )


def _other_training(model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim > 1:
            noise = rng.standard_normal(value.shape, dtype=np.float32)
            other = value * (1 + np.float32(1e-3) * noise)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))


def _half_weights(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim > 1:
            rounded = value.astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))


def _batch_frozen(shape: np.ndarray) -> np.ndarray:
    return np.where(shape == -1, 2, shape)


_in_text = partial(in_graph, "export", "text_encoder")
_in_decoder = partial(in_graph, "export", "vae_decoder")
_in_encoder = partial(in_graph, "export", "vae_encoder")
_in_controlnet = partial(in_graph, "export", "controlnet")
_in_controlled = partial(in_graph, "export", "controlled_unet")
_in_module = partial(fault, "export", InModule())
MASK_OF_TWO = "s = Constant<value_ints=[2,1,77,77]>() out = Expand(m, s)"
FOLDED = "five = Constant<value_ints=[500]>() t = Cast<to=6>(five) out = Expand(t, n)"

GRAPH = (
    _in_text("batch-axis-frozen", set_weight("view_1", _batch_frozen), "cannot run"),
    _in_text(
        "batch-axis-frozen-in-the-mask",
        replaced("expand", MASK_OF_TWO, m="le"),
        "is fixed in it",
        "is not open in it",
    ),
    _in_controlnet(
        "timestep-folded",
        replaced("expand", FOLDED, n="val_1"),
        "lost or renamed",
        "a constant in its place",
    ),
    _in_controlnet(
        "timestep-dropped",
        nowhere(_input_dropped),
        "unknown ['timestep']",
        "the inputs",
    ),
    _in_controlnet(
        "input-renamed", nowhere(_input_renamed), "missing ['t']", "the inputs"
    ),
    _in_controlled(
        "inputs-of-one-shape-swapped",
        at(
            "add_2054",
            together(
                reads("add_2060", 1, "down_block_res_sample_1"),
                reads("add_2054", 1, "down_block_res_sample_2"),
            ),
        ),
        "another value's place",
    ),
    _in_controlled(
        "example-inputs-aliased",
        reads("add_2060", 1, "down_block_res_sample_1"),
        "another value's place",
    ),
    _in_text("output-dropped", nowhere(_output_dropped), "pooler_output"),
    _in_text("output-renamed", nowhere(_output_renamed), "pooled"),
    _in_text(
        "outputs-in-other-order",
        nowhere(_outputs_in_other_order),
        "has the outputs",
        backends=("onnxruntime",),
    ),
    _in_text(
        "weights-as-inputs",
        nowhere(_weights_as_inputs),
        "the inputs",
        backends=("onnxruntime",),
    ),
    _in_text(
        "initialiser-permuted", set_weight("linear_2", lambda b: b[::-1]), "a bias"
    ),
    _in_decoder(
        "initialiser-of-another-layer",
        reads("conv2d_5", 1, "network.decoder.mid_block.resnets.0.conv1.weight"),
        "it is decoder.mid_block.resnets.0.conv1.weight",
        also=("initialiser is another one",),
    ),
    _in_text(
        "initialisers-of-another-training",
        nowhere(_other_training),
        "of another training step",
        also=("initialiser is another one",),
    ),
    _in_text(
        "initialisers-through-float16", nowhere(_half_weights), "rounded to float16"
    ),
    _in_text(
        "dropout-left-in",
        after("linear_5", DROPOUT),
        "Dropout",
        backends=("onnxruntime",),
    ),
    _in_encoder("sampling-in-the-graph", after("conv2d_16", SAMPLED), "RandomNormal"),
    _in_text(
        "layer-skipped",
        reads("last_hidden_state", 0, "add_298"),
        "another value's place",
    ),
    _in_text(
        "pooled-before-the-norm",
        reads("pooler_output", 0, "add_432"),
        "another value's place",
    ),
    _in_text(
        "pooled-from-the-first-token",
        set_input("eq_117", 1, lambda _: 0),
        "it compares with",
    ),
    _in_text(
        "scalar-folded",
        set_weight("mul_38", lambda _: 0.3),
        *("everything is ", "constant is "),
    ),
    _in_text(
        "value-in-a-wrong-layout",
        shown_as("linear_5", TURNED_AND_RESHAPED),
        *("shape [", "its axes are axes 0, 2, 1"),
        backends=("onnxruntime",),  # MNN makes both operators one
    ),
    _in_text(
        "scale-left-out",
        left_out("mul_38"),
        "the exporter left out mul",
        also=("everything is 4 times",),
    ),
)

MODULE = (
    _in_module("train-mode", "vae_encoder", "train mode", backends=("onnxruntime",)),
    _in_module(
        "sampling-in-the-module", "vae_encoder", "is random", backends=("onnxruntime",)
    ),
    _in_module(
        "in-place-change", "vae_encoder", "changes its input", backends=("onnxruntime",)
    ),
    _in_module(
        "remembers-calls",
        "vae_encoder",
        "changes its attribute 'calls'",
        backends=("onnxruntime",),
    ),
    _in_module(
        "keeps-a-buffer",
        "vae_encoder",
        "changes its buffer 'last'",
        backends=("onnxruntime",),
    ),
    _in_module("branch-on-batch-size", "vae_encoder", "everything is "),
    _in_module(
        "rewrite-for-export-wrong",
        "text_encoder",
        "every layer within",
        also=("other weights",),
    ),
)

FAULTS = (*GRAPH, *MODULE)
