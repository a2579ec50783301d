"""Numerical parity of models on their way from PyTorch to ONNX to MNN."""

from __future__ import annotations

__version__ = "0.1.0"
