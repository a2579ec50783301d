"""What a first suite says of runtimes: the safe variant runs, the others wait.

A healthy checkpoint is to be green at first. What loses something, or is known to be
wrong in some networks, stands beside the safe variant with its risk, one # away.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from harness.commands.init.text import noted
from harness.core.case import PROFILES
from harness.core.runtime import EXACT, Runtime, runtimes

_TF32 = noted("tf32 = false", "on CUDA: TensorFloat-32 is not float32")

_CONVOLVES = ("unet", "controlnet", "controlled_unet", "vae_encoder", "vae_decoder")


def first_runtimes() -> list[Runtime]:
    """Return the runtimes that a first suite asks for."""
    return [one for one in runtimes().values() if one.is_first]


def backend_tables(names: Collection[str]) -> list[list[str]]:
    """Return the table of each runtime for a checkpoint's components."""
    convolves = any(name in _CONVOLVES for name in names)
    return [
        [
            f"[backend.{one.name}]",
            *_variants(one),
            _device(one),
            *_precision(one),
            "threads = 2",
            *([_TF32] if one.tf32 else []),
            *(one.first_hint if convolves else []),
        ]
        for one in first_runtimes()
    ]


def _device(one: Runtime) -> str:
    usual, *others = one.devices
    listed = ", ".join(f'"{name}"' for name in others)
    return noted(f'device = "{usual}"', f"or {listed}" if others else "")


def _precision(one: Runtime) -> list[str]:
    if not one.precisions:
        return []
    return [noted(f'precision = "{one.precision}"', one.precision_note)]


def _variants(one: Runtime) -> list[str]:
    others = (
        (f'# "{name}",', built_in.risk)
        for name, built_in in one.variants.items()
        if name != EXACT
    )
    return [
        noted("variants = [", "take the # away of what you deploy"),
        f'  "{EXACT}",',
        *(f"  {name:<17} # {risk}" for name, risk in others),
        "]",
    ]


def variant_tables() -> list[list[str]]:
    """Return what the safe variants are fed, and how to write one of one's own."""
    profiles = f"profiles = {json.dumps(PROFILES)}"
    first, *others = first_runtimes()
    return [
        [
            "# Synthetic inputs find what realistic ones hide: a wrong epsilon, lost",
            "# digits. Rounded weights would only hide it again.",
            f"[variant.{first.name}.{EXACT}]",
            profiles,
        ],
        *([f"[variant.{one.name}.{EXACT}]", profiles] for one in others),
        *(list(one.example) for one in (first, *others) if one.example),
    ]
