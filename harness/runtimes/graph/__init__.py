"""An exported ONNX graph: its operators, constants and weights."""
