"""The first tolerances.toml of a checkpoint: a tier for each built-in variant."""

from __future__ import annotations

from collections.abc import Collection

from harness.spec import BACKENDS, GIVEN
from harness.tolerance import FIRST_TIERS, GROUPS

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
        f"[{key}]\n" + "".join(f'{group} = "{tier}"\n' for group in GROUPS)
        for key, tier in FIRST_TIERS.items()
        if not key.endswith(f".{GIVEN}")
    ]
    return "\n".join([head, *tables, *([_OF_T5] if "t5_encoder" in names else [])])
