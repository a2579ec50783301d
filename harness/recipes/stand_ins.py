"""Stand-ins for real inputs: drawn weights or words, or a default scheduler.

A run with stand-ins shows nothing about the real checkpoint, so its verdict names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from harness.core.case import GIVEN, Component, Source, TensorSpec
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.errors import ParityError
from harness.recipes.checkpoint import clip_encoders, t5_folder, tokenizer_of
from harness.recipes.text.folder import is_encoder
from harness.recipes.tokenizer import FILES

WEIGHTS: Final = "weights"
PROMPTS: Final = "prompts"
SCHEDULER: Final = "scheduler"

_NOISED = ("unet", "controlnet", "controlled_unet")
"""Recipes with inputs that text encoders and a scheduler make."""


def stand_ins_of(case: Tested) -> tuple[str, ...]:
    """Return the stand-ins for real inputs of a case, in order.

    There are none if a file of it is damaged, which a stage will report.
    """
    with suppress(ParityError):
        if isinstance(case, EndToEndCase):
            return case.stand_ins
        return stand_ins(case.component)
    return ()


def stand_ins(component: Component) -> tuple[str, ...]:
    """Return the stand-ins for real inputs of a component, in order.

    Latents, pictures and hints are always drawn, so they are not named.
    """
    found = [WEIGHTS] if component.source.seed is not None else []
    if _has_drawn_prompts(component):
        found.append(PROMPTS)
    if component.recipe in _NOISED and not has_scheduler(component.source):
        found.append(SCHEDULER)
    return tuple(found)


def lacks_tokenizer(source: Source, encoders: Iterable[str]) -> bool:
    """Whether one of the text encoders' folders has no tokenizer beside it."""
    homes = [source.path / tokenizer_of(folder) for folder in encoders]
    return not all(any((home / name).is_file() for name in FILES) for home in homes)


def has_scheduler(source: Source) -> bool:
    """Whether a checkpoint has a scheduler; if not, Stable Diffusion's DDIM is used."""
    return (source.path / "scheduler" / "scheduler_config.json").is_file()


def _are_ids(spec: TensorSpec) -> bool:
    """Whether a foreign file's input takes token ids, which are drawn."""
    other = any(word in spec.name for word in ("mask", "type"))
    return spec.dtype.startswith("int") and not spec.draw and not other


def _has_drawn_prompts(component: Component) -> bool:
    source, recipe = component.source, component.recipe
    if recipe == GIVEN:
        return any(_are_ids(spec) for spec in component.inputs)
    if recipe in {"text_encoder", "text_encoder_2"}:
        return lacks_tokenizer(source, [recipe])
    if recipe == "t5_encoder":
        return lacks_tokenizer(source, [t5_folder(source)])
    if recipe in _NOISED:
        return lacks_tokenizer(source, clip_encoders(source))
    reads = any(spec.name == "input_ids" for spec in component.inputs)
    alone = reads and source.path.is_dir() and is_encoder(source)
    return alone and not any((source.path / name).is_file() for name in FILES)
