"""The first tolerances.toml of a checkpoint: a tier for each built-in variant."""

from __future__ import annotations

import math
from collections.abc import Collection

from harness.commands.init.variants import first_runtimes
from harness.core.case import GIVEN
from harness.judge.tolerance import GROUPS, TIERS, first_tiers

_OF_T5 = """\
[t5_encoder.{backend}."*".probes."*SelfAttention"]
allow_nonfinite = true
why = "T5 takes the logarithm of a distance of 0, and then uses another value there"
"""


_OF_GROUPNORM = """\
# A GroupNorm of the encoder takes the mean of {values:,} values of a picture. Both
# runtimes sum in plainer float32 than PyTorch, which flat pictures show: healthy VAEs
# of four sizes were 2e-3 to 4.6e-3 floors off for each value. Twice that may be.
"""
_FLOORS_A_VALUE = 2 * 4.6e-3
"""Floors that a GroupNorm over one flat group may be off, for each value of the group.

Twice the worst of 200 draws in fixtures/digits (38.1 floors of 8,192 values). Fixtures
sd3 and sdxl have 33.6 and 36.8 of 12,288, Stable Diffusion 1.5 has 1,030 of 393,216.
"""
_MOST_FLOORS = 1024.0
"""Beyond this a bound in floors says nothing, and the layers are held in decibels."""


def _groupnorm(values: int) -> list[str]:
    """Return the bounds of a VAE's encoder whose groups have so many values."""
    bound = math.ceil(_FLOORS_A_VALUE * values)
    standard = TIERS["standard"].layers.floors
    assert standard is not None  # noqa: S101  # the tier states it
    if bound <= standard:
        return []
    lines = [f'layers = {{ tier = "standard", floors = {bound}.0 }}']
    why = f"GroupNorm over {values:,} values"
    if bound > _MOST_FLOORS:
        loose = '{ tier = "relaxed", sqnr_db = 60.0 }'
        lines = [f"outputs = {loose}", f"layers = {loose}"]
        why += "; Stable Diffusion 1.5 has 71 dB"
    return [
        ("" if number else _OF_GROUPNORM.format(values=values))
        + "\n".join([f"[vae_encoder.{one.name}.fp32]", *lines, f'why = "{why}"', ""])
        for number, one in enumerate(first_runtimes())
    ]


def tolerances_text(names: Collection[str], group: int = 0) -> str:
    """Return tolerances.toml with a tier for each built-in variant of components.

    Args:
        names: Of the components.
        group: Values in the largest group that a GroupNorm of the VAE's encoder takes
            the mean of; 0 where there is none.

    """
    head = """\
# How far a value may be from PyTorch's. Tiers, from tight to loose:
#   exact, strict, standard, relaxed, quantized
# `parity tune` measures many inputs and proposes tighter ones. A table that loosens one
# for a component or a probe gives its reason:
#   [unet.mnn.fp32.probes."*.attn2.*"]
#   layers = { tier = "standard", floors = 64.0 }
#   why = "..."
"""
    asked = [one.name for one in first_runtimes()]
    t5 = [_OF_T5.format(backend=name) for name in asked]
    tables = [
        f"[{key}]\n" + "".join(f'{group} = "{tier}"\n' for group in GROUPS)
        for key, tier in first_tiers().items()
        if not key.endswith(f".{GIVEN}") and key.partition(".")[0] in asked
    ]
    tables += _groupnorm(group) if "vae_encoder" in names else []
    return "\n".join([head, *tables, *(t5 if "t5_encoder" in names else [])])
