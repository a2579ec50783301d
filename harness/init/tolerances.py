"""The first tolerances.toml of a checkpoint: a tier for each built-in variant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from harness.spec import BACKENDS

TIERS: Final[Mapping[str, tuple[str, str]]] = {
    "onnxruntime.fp32": ("standard", "standard"),
    "onnxruntime.fp16": ("relaxed", "relaxed"),
    "onnxruntime.int8-weights": ("quantized", "quantized"),
    "mnn.fp32": ("standard", "standard"),
    "mnn.fp16-weights": ("relaxed", "relaxed"),
    "mnn.int8-weights": ("quantized", "quantized"),
    "mnn.int4-weights": ("quantized", "quantized"),
    "mnn.fused": ("standard", "standard"),
    "mnn.deploy": ("relaxed", "relaxed"),
}
"""Tiers to begin with, for every built-in variant: of outputs, and of all else."""

_OF_T5 = "\n".join(
    f"""\
[t5_encoder.{backend}."*".probes."*SelfAttention"]
allow_nonfinite = true
why = "T5 takes the logarithm of a distance of 0, and then uses another value there"
"""
    for backend in BACKENDS
)


def tolerances_text(names: Collection[str]) -> str:
    """Return tolerances.toml with a tier for each built-in variant of components."""
    head = """\
# How far a value may be from PyTorch's. Tiers, from tight to loose:
#   exact, strict, standard, relaxed, quantized
# `parity tune` measures many inputs and proposes tighter ones. A table that loosens one
# for a component or a probe gives its reason:
#   [unet.mnn.fp32.probes."*.attn2.*"]
#   layers = { tier = "standard", floors = 64.0 }
#   why = "..."
"""
    tables = [
        f'[{key}]\noutputs = "{outputs}"\nlayers = "{rest}"\n'
        f'latents = "{rest}"\nimage = "{rest}"\n'
        for key, (outputs, rest) in TIERS.items()
    ]
    return "\n".join([head, *tables, *([_OF_T5] if "t5_encoder" in names else [])])
