"""Diffusion pipelines: the same picture from PyTorch and from a runtime."""
