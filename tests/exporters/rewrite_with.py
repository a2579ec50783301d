"""Rewrite ONNX files with somebody's tool; runs in an environment of its own.

python rewrite_with.py TOOL IN OUT [IN OUT ...]

Prints a line of JSON for each file: the path, and what the tool refused; "" if nothing.
"""

import json
import sys
from functools import partial

import onnx


def onnxsim(source, target):
    import onnxsim

    model, agrees = onnxsim.simplify(onnx.load(source))
    if not agrees:
        msg = "onnxsim's own check fails"
        raise ValueError(msg)
    onnx.save(model, target)


def onnxslim(source, target):
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), target)


def onnxoptimizer(source, target):
    import onnxoptimizer

    passes = onnxoptimizer.get_fuse_and_elimination_passes()
    onnx.save(onnxoptimizer.optimize(onnx.load(source), passes), target)


def by_onnxruntime(source, target, level):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, level
    )
    options.optimized_model_filepath = target
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


TOOLS = {
    "onnxsim": onnxsim,
    "onnxslim": onnxslim,
    "onnxoptimizer": onnxoptimizer,
    "ort-basic": partial(by_onnxruntime, level="ORT_ENABLE_BASIC"),
    "ort-extended": partial(by_onnxruntime, level="ORT_ENABLE_EXTENDED"),
}


def main():
    tool, *paths = sys.argv[1:]
    for source, target in zip(paths[::2], paths[1::2], strict=True):
        refused = ""
        try:
            TOOLS[tool](source, target)
        except Exception as error:  # noqa: BLE001  # tools raise anything
            refused = f"{type(error).__name__}: {error}".splitlines()[0]
        print("\n" + json.dumps({"file": target, "refused": refused}), flush=True)


main()
