"""What a first suite says of runtimes: the safe variant runs, the others wait.

A healthy checkpoint is to be green at first. What loses something, or is known to be
wrong in some networks, stands beside the safe variant with its risk, one # away.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from harness.commands.init.text import noted
from harness.core.case import PROFILES

SAFE: Final = "fp32"

RISKS: Final[Mapping[str, Mapping[str, str]]] = {
    "onnxruntime": {
        "fp16": "half the size; numbers beyond 65504 overflow, small ones vanish",
        "int8-weights": "a quarter; an outlier takes the digits of its whole tensor",
    },
    "mnn": {
        "fp16-weights": "half the size; weights keep 3 digits, timesteps lose most",
        "int8-weights": "a quarter; an outlier takes the digits of its channel",
        "int4-weights": "an eighth; 16 steps a channel: most networks need more bits",
        "fused": "--transformerFuse: MNN 3.6.1 gets all but batch item 0 wrong",
        "deploy": "the converter's own defaults; GELU may become an approximation",
    },
}
"""What every other built-in variant may cost, for whoever takes its # away."""

_CONVOLVES = ("unet", "controlnet", "controlled_unet", "vae_encoder", "vae_decoder")

_HINT = """\
# MNN convolves by Winograd's method in large tiles, which rounds more: the decoder of a
# healthy VAE was 62 floors off, and is 3 with this hint. The app must give it as well
# (Interpreter::WINOGRAD_MEMORY_LEVEL); where yours does not, take it out here too.
hints = { winograd_memory_level = 0 }"""


def backend_tables(names: Collection[str]) -> list[list[str]]:
    """Return the tables of both runtimes for a checkpoint's components."""
    convolves = any(name in _CONVOLVES for name in names)
    return [
        [
            "[backend.onnxruntime]",
            *_variants("onnxruntime"),
            noted('device = "cpu"', 'or "cuda"'),
            "threads = 2",
            noted("tf32 = false", "on CUDA: TensorFloat-32 is not float32"),
        ],
        [
            "[backend.mnn]",
            *_variants("mnn"),
            noted('device = "cpu"', 'or "opencl", "vulkan", "cuda", "metal"'),
            noted('precision = "high"', '"low" computes in fp16 where it can'),
            "threads = 2",
            *(_HINT.splitlines() if convolves else []),
        ],
    ]


def _variants(backend: str) -> list[str]:
    others = ((f'# "{name}",', risk) for name, risk in RISKS[backend].items())
    return [
        noted("variants = [", "take the # away of what you deploy"),
        f'  "{SAFE}",',
        *(f"  {name:<17} # {risk}" for name, risk in others),
        "]",
    ]


def variant_tables() -> list[list[str]]:
    """Return what the safe variants are fed, and how to write one of one's own."""
    profiles = f"profiles = {json.dumps(PROFILES)}"
    return [
        [
            "# Synthetic inputs find what realistic ones hide: a wrong epsilon, lost",
            "# digits. Rounded weights would only hide it again.",
            f"[variant.onnxruntime.{SAFE}]",
            profiles,
        ],
        [f"[variant.mnn.{SAFE}]", profiles],
        [
            "# A variant of your own, with flags as MNN's converter takes them:",
            "# [variant.mnn.int4-hqq]",
            '# from = "int4-weights"',
            '# flags = ["--hqq"]',
        ],
    ]
