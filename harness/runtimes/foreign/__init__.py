"""Models that others exported.

tables     onnx = "path" and mnn = "path" in parity.toml
files      which files belong to one
onnx, mnn  bring it into the store under the recipe's names
lineup     which of its values is which of PyTorch's
alone      without a PyTorch model: the ONNX file is its own reference
probes     its values, named by itself
"""
