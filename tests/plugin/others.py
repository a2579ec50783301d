"""Foreign models as tools export them: a notebook's, a converter's, wrong ones."""

import subprocess
import sys
import warnings

import numpy as np
import onnx
import torch

from harness.core.case import Source
from harness.recipes import describe, recipe_module

CONVERT = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"


class Notebook(torch.nn.Module):
    """Somebody's wrapper: a name of their own around the network."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, latents, t, text):
        return self.model(latents, t, text, return_dict=False)[0]


def unet(folder, seed=0):
    source = Source(path=folder, seed=seed)
    component = describe("unet", "unet", source)
    return component, recipe_module("unet").build(component).network


def notebook(folder, path, *, seed=0, whole=False):
    """Export a UNet as a notebook does: its own names, opset 14, a batch left open.

    Args:
        folder: The checkpoint.
        path: To write.
        seed: Of the weights; another one makes somebody else's model.
        whole: Fix every axis, the batch too.

    """
    component, network = unet(folder, seed)
    latents, _, text = (spec.shape for spec in component.inputs)
    example = (
        torch.randn(2, latents[1], 8, 12),
        torch.tensor([5]),
        torch.randn(2, *text[1:]),
    )
    names = ["latents", "t", "text"]
    axes = {name: {0: "n"} for name in ("latents", "text", "noise")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notebooks use what is deprecated
        torch.onnx.export(
            Notebook(network).eval(),
            example,
            str(path),
            dynamo=False,
            opset_version=14,
            input_names=names,
            output_names=["noise"],
            dynamic_axes=None if whole else axes,
        )
    return path


def nameless(source, path):
    """Rename every node and value but inputs and outputs, as some tools do."""
    model = onnx.load(source)
    graph = model.graph
    kept = {value.name for value in (*graph.input, *graph.output)}
    new: dict[str, str] = {}

    def renamed(name):
        if not name or name in kept:
            return name
        return new.setdefault(name, f"v{len(new)}")

    del graph.value_info[:]
    for node in graph.node:
        node.name = ""
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    onnx.save(model, path)
    return path


def rounded(source, path):
    """Change the last bit of every weight: numbers alike, bytes not."""
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = onnx.numpy_helper.to_array(tensor)
            near = np.nextafter(value, np.float32(np.inf))
            tensor.CopyFrom(onnx.numpy_helper.from_array(near, tensor.name))
    onnx.save(model, path)
    return path


def without_output(source, path, name):
    """Leave an output out, as Optimum's users do."""
    model = onnx.load(source)
    kept = [value for value in model.graph.output if value.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, path)
    return path


def folded(source, path, name, renamed, value):
    """Rename an input, and read a constant in its place."""
    model = onnx.load(source)
    (given,) = (one for one in model.graph.input if one.name == name)
    given.name = renamed
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([value], dtype=np.float32), name)
    )
    onnx.save(model, path)
    return path


def beside(source, path):
    """Save a model with its weights in a file beside it."""
    onnx.save_model(
        onnx.load(source),
        path,
        save_as_external_data=True,
        location=f"{path.name}_data",
        size_threshold=0,
    )
    return path


def converted(source, path, *flags):
    """Convert an ONNX file to MNN, as the converter's users do."""
    arguments = ["-f", "ONNX", "--modelFile", source, "--MNNModel", path]
    command = [sys.executable, "-c", CONVERT, *map(str, arguments), *flags]
    subprocess.run(
        [*command, "--bizCode", "x"], check=True, capture_output=True, timeout=200
    )
    return path
