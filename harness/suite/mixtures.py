"""Chains of several runtimes: who sits where, and what such a chain is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from harness.core.pipeline import DENOISING, Pipeline


def mixtures(words: Sequence[str], pipeline: Pipeline) -> Iterator[dict[str, str]]:
    """Yield who sits where, for every chain of two or more.

    ControlNet and UNet are one place here: they work in turns at every step. So are
    two text encoders: they read the same prompts.
    """
    places = tuple(dict.fromkeys(_place(seat) for seat in pipeline.seats))
    for row in product(words, repeat=len(places)):
        if len(set(row)) > 1:
            given = dict(zip(places, row, strict=True))
            yield {seat: given[_place(seat)] for seat in pipeline.seats}


def _place(seat: str) -> str:
    if seat in DENOISING:
        return DENOISING[0]
    return "text_encoder" if seat.startswith("text_encoder") else seat


def mixture_name(pipeline: Pipeline, given: Mapping[str, str]) -> str:
    """Return ``pytorch-mnn-pytorch``, in the order in which the seats work.

    The variant is named where it is not fp32; what shares a place is named once.
    """
    chosen = {_place(seat): given[seat] for seat in pipeline.seats}.values()
    words = (word.removesuffix("/fp32").replace("/", ".") for word in chosen)
    return "-".join(words)
